"""What a Canal server does with one client: pure state machines, without IO, clock or randomness.

In: bytes that a client sent, blocks of an entry store. Out: actions for `tidemill.canal.server`: bytes to send, places to save, batches to
fetch. `machine.py` is one connection, `subscriber.py` a client's batches and place, `desk.py` all destinations and clients. `cutting.py`
says what goes into a batch, `fast_cutting.py` does it for whole blocks. `filters.py`, `patterns.py`, `fields.py`, `renames.py` say which
entries and columns a client gets. Read `machine.py` first.
"""
