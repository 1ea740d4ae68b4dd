"""A changefeed from its start to its end.

In: a config, a change log. Out: deliveries, a checkpoint, states with TiCDC's names. `runner.py` is the process, `states.py` the table of
transitions, `preflight.py` what is checked before the start. Read `states.py`, then `runner.py`.
"""
