"""DDLs in the database: each in the session that it was run in upstream, and those that may take long beside the rows.

In: DDLs as `control` describes them. Out: statements that were run, or the reason why not. Read `statement.py` first, then `running.py`.
"""
