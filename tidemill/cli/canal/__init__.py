"""Verbs of Canal: `canal` serves its clients; `canal ctl` and `decode canal` look at what they get.

In: a command line. Out: what it asks for, and an exit code. Read `canal.py` first.
"""
