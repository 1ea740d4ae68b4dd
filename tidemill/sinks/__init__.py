"""Sinks: Kafka, databases, storage in TiCDC's layout, message files, JSON lines, Canal's entry store, black hole.

In: a batch's messages, from tasks and from the driver. Out: Kafka records, rows of a database, or files.
`spec.py` lists the sinks and their URIs; `base.py` defines the interface. Read `base.py` first.
"""
