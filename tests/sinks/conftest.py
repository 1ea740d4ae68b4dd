from tests.support.servers.kafka import kafka_broker

__all__ = ["kafka_broker"]
