"""Shared by several protocols: message records, text and JSON as TiCDC writes them, MySQL's types and names, compression, claim checks.

In: values of columns. Out: their texts, and MESSAGE records. Read `messages.py` first.
"""
