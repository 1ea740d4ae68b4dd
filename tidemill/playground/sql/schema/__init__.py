"""The playground's DDL: statements as jobs of TiDB, step by step, with their meta keys.

In: parsed statements. Out: jobs that change the catalog. `jobs.py` runs a job's states, `ddl.py` and `alter.py` have the statements,
`tableinfo.py` writes descriptions of tables as TiDB does. Read `jobs.py` first.
"""
