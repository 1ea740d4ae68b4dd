"""The inner parts of DDL statements: expressions, functions, literals, hints and whole queries.

In: tokens from `cursor.py`. Out: the text as TiDB prints it. `tree.py` decides where parentheses are needed, `select.py` parses queries.
Read `expressions.py` first.
"""
