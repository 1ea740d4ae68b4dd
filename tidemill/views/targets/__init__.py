"""Where views go. In: changes of a view up to a resolved ts, as rows with a weight. Out: one commit, which carries the resolved ts.

`open` finds the one that a URI names. Read `base.py` first: it says what a target does.
"""
