"""Verbs of the change log and of what fills it: `capture`, `log`, `resync`, `tables`.

In: a command line. Out: what it asks for, and an exit code. Read `capture.py` first.
"""
