"""What happens to a batch, decided: a state machine without IO.

In: events (a batch begins, an item reports, something failed, a stop is asked for). Out: actions for the driver (`delivery/batch.py`).
Pure: no Spark, no clock, no storage; events bring the time where a decision needs it.
`batch_machine.py` has the phases and the table of transitions, `state.py` what it remembers, `failures.py` the table of what follows
from which failure.
Read `events.py` and `actions.py`, then `batch_machine.py`. tests/delivery/machine/scenarios shows what it does, case by case.
"""
