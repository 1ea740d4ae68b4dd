"""Message tables in the forms that sinks write: librdkafka's message array, length-prefixed frames, JSON lines.

In: MESSAGE records. Out: what a client library or a file takes. Read `batch.py` first.
"""
