"""From messages to committed rows.

In: raw messages of the streams. Out: committed rows in memory, resolved timestamps, events for the region state machine.
`decode.py` finds the entries of a message, `matcher.py` joins prewrites with commits, `memory.py` holds their bytes.
Read `ingest.py` first, then `kernels/receive/match.py`, where each resolved ts is kept.
"""
