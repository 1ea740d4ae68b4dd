"""What several verbs share: options, times, addresses, lines for people.

In: a command line. Out: what it asks for, and an exit code. Read `options.py` first.
"""
