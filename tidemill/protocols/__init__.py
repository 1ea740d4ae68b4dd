"""Message formats: reference encoders and decoders, without IO.

Encoders turn row events, DDLs and resolved ts into keys and values of messages; decoders do the reverse. `all.py` lists the protocols.
Each protocol's folder has a `spec.py` and a TYPES.md. Read `all.py`, then `open/`.

In: row events, DDLs, resolved ts; or messages. Out: messages; or events.
"""
