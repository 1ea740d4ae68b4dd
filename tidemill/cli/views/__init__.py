"""Verbs about views.

In: arguments of the command line. Out: what is printed, and an exit code. Read `view.py`.
"""
