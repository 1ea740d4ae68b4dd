"""Verbs of TiDB-Binlog: `pump`, `drainer`, `reparo`, `binlogctl`.

In: a command line. Out: what it asks for, and an exit code. Read `pump.py` first.
"""
