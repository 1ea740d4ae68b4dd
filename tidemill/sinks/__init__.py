"""Where messages go: one folder or module a kind of sink.

In: messages of a batch, from tasks and from the driver. Out: bytes at Kafka, in files, nowhere. `spec.py` names all sinks and their URIs,
`base.py` says what a sink has to do. Read `base.py` first.
"""
