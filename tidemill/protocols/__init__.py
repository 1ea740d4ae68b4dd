"""Message formats: readable encoders and decoders, without IO.

In: row events, DDLs, resolved ts. Out: keys and values of messages, and events of them again. `all.py` lists the protocols, each folder
has a `spec.py` and a TYPES.md. Read `all.py`, then `open/`.
"""
