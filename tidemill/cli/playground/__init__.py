"""Verbs to try things with: `playground` and `demo`.

In: a command line. Out: what it asks for, and an exit code. Read `playground.py` first.
"""
