"""What a Drainer leaves out of what goes downstream, beside the filters of tables.

In: entries. Out: what of them is delivered. Read `picking.py` first; `rules.py` has the event rules of the TOML file. Pure.
"""
