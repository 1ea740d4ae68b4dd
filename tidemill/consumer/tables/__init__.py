"""Tables kept as they are upstream, from row events and the texts of DDLs alone.

definitions, statements   the text of a DDL → what it does, as frozen effects
partitions                which partition a row lies in
values                    defaults, conversions of values when a column's type changes
catalog                   what is known of each table
sqlite                    the tables themselves, in a file of SQLite (the only file here that does IO)
"""
