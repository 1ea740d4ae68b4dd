"""A cluster in place of a change log: the option `pd` of `format("tidemill")`.

In: PD's addresses, and perhaps where the log is to lie. Out: a change log that a capture writes as long as the Spark application lives.
Read `captures.py` first (what a query asks for), then `owner.py` (the process that runs the capture), `place.py`, `connection.py`.
"""
