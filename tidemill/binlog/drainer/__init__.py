"""Drainer: pulls binlogs from all Pumps, merges them by commit ts, and writes them in the forms of TiDB-Binlog's Drainer.

In: Pumps of the registry, schemas and DDL jobs from TiKV. Out: files, Kafka, MySQL, and the checkpoint. Read `drainer.py` first;
`pulling.py` reads Pumps, `schemas.py` follows the schema, `outlets.py` chooses where to write. Merge, rows and messages are pure, in
`tidemill/binlog`.
"""
