"""A MySQL-compatible database as a Drainer, or Reparo, writes it.

In: the rows of transactions, and DDLs. Out: transactions downstream, and the position. Read `applying.py` first: it chooses which
connection writes what; `merging.py` makes a row's changes one; `tables.py` asks for tables and their keys.
"""
