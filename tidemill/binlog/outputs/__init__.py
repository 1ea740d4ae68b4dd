"""A transaction or DDL → what a Drainer writes: messages of Kafka and the relay log (`slave.py`), of files (`pb.py`), and SQL. Pure.

In: rows with the versions of their tables. Out: bytes and SQL. `frames.py` has the records of files. Read `transactions.py` first.
"""
