"""The schema registry of protocols in Avro: a client, a cache of ids, and the rule that a topic holds one table.

Only `client` and `cache` do IO.

In: schemas and subjects. Out: their ids. Read `registrar.py` first.
"""
