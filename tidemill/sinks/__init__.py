"""Sinks: Kafka, files, storage in TiCDC's layout, black hole.

In: a batch's messages, from tasks and from the driver. Out: Kafka records or files. `spec.py` lists the sinks and their URIs; `base.py`
defines the interface. Read `base.py` first.
"""
