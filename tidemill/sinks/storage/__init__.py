"""`file://` and `s3://` in TiCDC's layout: a folder a table version, numbered data files, schema files, index files, a checkpoint."""
