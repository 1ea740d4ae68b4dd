"""The command line: one module a verb. Nothing else imports it. Read `main.py` first.

In: arguments. Out: what a verb prints, and its exit code.
"""
