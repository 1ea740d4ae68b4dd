"""The upstream's tables, kept in SQLite from row events and the texts of DDLs.

definitions, statements   the text of a DDL → its effects, as frozen objects
values                    defaults, and conversions when a column's type changes
catalog                   the description of each table
sqlite                    the tables themselves, in an SQLite file (the only module here with IO)

In: row events and DDLs, in order. Out: rows of SQLite tables. Read `catalog.py`, then `sqlite.py`.
"""
