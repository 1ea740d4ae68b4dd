"""Verbs that explain one thing, or check all: `decode`, `tso`, `doctor`, `metrics`.

In: a command line. Out: what it asks for, and an exit code. Read `decode.py` first.
"""
