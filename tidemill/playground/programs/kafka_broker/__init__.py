"""A one-node Kafka broker (KRaft) for the demo and the tests. Never for data that matters.

In: a folder. Out: a broker's address. Read `broker.py`.
"""

from tidemill.playground.programs.kafka_broker.broker import KafkaBroker
from tidemill.playground.programs.kafka_broker.jars import jars

__all__ = ["KafkaBroker", "jars"]
