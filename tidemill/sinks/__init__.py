"""Sinks: Kafka, databases, storage in TiCDC's layout, message files, JSON lines, Canal's entry store, black hole.

In: a batch's messages, from tasks and from the driver. Out: Kafka records, rows of a database, or files.
`base.py` defines the interface, `event_messages.py` has what sinks of messages share. `tidemill.config.sinks` lists the sinks and what is
special to each, `spec.py` opens them. Read `base.py` first.
"""
