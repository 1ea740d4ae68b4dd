from tests.support.kafka import kafka_broker
from tests.support.registries import front, memory

__all__ = ["front", "kafka_broker", "memory"]
