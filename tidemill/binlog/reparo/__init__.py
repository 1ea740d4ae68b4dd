"""Reparo: brings what a Drainer wrote into files back into a database, or prints it.

In: `binlog-*` files of the `file` form. Out: rows and DDLs in MySQL, MariaDB or TiDB, or lines of text. Read `reparo.py` first.
"""
