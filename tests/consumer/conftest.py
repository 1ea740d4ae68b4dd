"""One broker for all tests of a session."""

from tests.support.servers.kafka import kafka_broker

__all__ = ["kafka_broker"]
