from tests.support.kafka import kafka_broker

__all__ = ["kafka_broker"]
