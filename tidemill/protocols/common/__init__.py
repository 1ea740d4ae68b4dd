"""What several protocols share: message records, text and JSON as TiCDC writes them, MySQL's types and names, compression, claim checks."""
