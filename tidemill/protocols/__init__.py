"""Message formats: reference encoders and decoders, without IO.

Encoders turn row events, DDLs and resolved ts into keys and values of messages; decoders do the reverse. `all.py` lists the protocols.
Each protocol's folder has a TYPES.md, and `specs/` says what others know of it. Read `all.py`, then `open/`.

In: row events, DDLs, resolved ts; or messages. Out: messages; or events.
"""
