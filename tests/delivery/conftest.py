from tests.support.servers.kafka import kafka_broker
from tests.support.servers.registries import front, memory

__all__ = ["front", "kafka_broker", "memory"]
