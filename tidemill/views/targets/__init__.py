"""Where views go. In: changes of a view up to a resolved ts, as rows with a weight. Out: one commit, which carries the resolved ts.

`base` says what a target does, `open` finds the one that a URI names.
"""
