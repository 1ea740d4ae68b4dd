"""Files of records: the `file` form, and the relay log.

In: payloads. Out: files, and what they tell when read back. Read `files.py` first; `relay.py` is the relay log, `replaying.py` reads.
"""
