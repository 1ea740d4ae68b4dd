"""Python imports this by itself when it starts with this folder on its PYTHONPATH: a Kafka sink of that process gives up sooner.

Tests of a broker that is away take so much less time. The sink does the same things; only the time that it waits for an answer is shorter.
"""

from tidemill.sinks.kafka import options

options.DELIVERY_TIMEOUT_MS = 5_000
options.METADATA_TIMEOUT = 4.0
