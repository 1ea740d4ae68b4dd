"""Rows as the texts of SQL statements, for databases downstream: no protocol of messages, but made as those are.

`literals` writes values. It is the reference of kernels/sql. `keys` finds which columns tell whether two rows may be in each other's way.
`missing` names the DDL that makes what a database lacks. `predicates` is how a row is found, `missed` counts rows that were not, `hints`
says what to do about a database's errors.

In: values of columns. Out: literals. Read `literals.py` first.
"""
