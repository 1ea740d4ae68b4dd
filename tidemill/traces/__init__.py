"""Traces of what Tidemill does, sent to a collector by OpenTelemetry's protocol, if the environment asks for them.

In: finished `Span`s, whole trees, made around batches, seals and requests. Out: the same, by OTLP over HTTP.
Read `span.py` first.
"""
