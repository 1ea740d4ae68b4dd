"""Verbs that read what was delivered: `consume`, `show`, `verify`, `diff`.

In: a command line. Out: what it asks for, and an exit code. Read `consume.py` first.
"""
