"""Verbs that run changefeeds, or speak of them: `run`, `server`, `changefeed`, `cli`, `status`, `config`, `replay`, `redo`.

In: a command line. Out: what it asks for, and an exit code. Read `run.py` first.
"""
