"""What stands inside of DDL statements: expressions, functions, literals, hints and whole queries.

In: tokens of `cursor.py`. Out: the same text as TiDB prints it. `tree.py` decides where brackets are needed, `select.py` reads queries.
Read `expressions.py` first.
"""
