"""What a real TiDB did, into a real Kafka with a real registry: Confluent's consumer reads every message of every topic.

All types, keys and partitions, and all that becomes of columns.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.support.changelog.logs import golden_log, golden_span
from tests.support.servers.registries import Front, forward
from tidemill.changefeed.replay import replay
from tidemill.config.file import parse_config
from tidemill.config.registry_address import with_registry
from tidemill.delivery.inputs.table_router import Settings
from tidemill.playground.programs.kafka_broker import KafkaBroker
from tidemill.playground.programs.schema_registry import RegistryProcess

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

CONFIG = "[sink]\ndispatchers = [{matcher = ['*.*'], topic = '%s_golden_{schema}_{table}', partition = 'index-value'}]\n"


IMAGES = {"c": (False, True), "u": (True, True), "d": (True, False)}
"""Whether Debezium's messages have the row before and after the change, by operation."""


def new_row(protocol: str, value: Any) -> dict[str, Any] | None:
    """The row that a message leaves. None: it is a delete."""
    row: dict[str, Any] | None = value if protocol == "avro" else value["after"]
    assert protocol == "avro" or IMAGES[value["op"]] == (value["before"] is not None, row is not None)
    return row


@pytest.mark.parametrize(
    "protocol",
    ["avro", pytest.param("debezium-avro", marks=pytest.mark.thorough("[avro] takes the same way; tests/delivery/sinks has its messages"))],
)
def test_every_message_of_the_golden_log_is_read(
    protocol: str, kafka_broker: KafkaBroker, registry: RegistryProcess, tmp_path: Path
) -> None:
    registry.set_compatibility("NONE")
    config = parse_config(CONFIG % protocol)
    with Front(forward(registry.url)) as front:
        uri = with_registry(f"kafka://{kafka_broker.address}/golden?protocol={protocol}&partition-num=1", front.url)
        settings = Settings("golden", config.sink_uri(uri), config, UTC)
        done = replay(str(golden_log(tmp_path / "log")), settings, target_ts=golden_span("ddl_columns")[1])
        calls = Counter(front.registered)
    registry.set_compatibility("BACKWARD")
    assert done.rows > 600
    read, seen, deletes = AvroDeserializer(SchemaRegistryClient({"url": registry.url})), 0, 0
    consumer = Consumer({"bootstrap.servers": kafka_broker.address, "group.id": "golden", "enable.auto.commit": False})
    try:
        topics = [name for name in consumer.list_topics(timeout=30).topics if name.startswith(f"{protocol}_golden_")]
        consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
        while seen < done.messages:
            message = consumer.poll(30)
            assert message is not None, f"{seen} of {done.messages} messages came"
            assert message.error() is None
            topic = message.topic()
            key = read(message.key(), SerializationContext(topic, MessageField.KEY))
            value = new_row(protocol, read(message.value(), SerializationContext(topic, MessageField.VALUE)))
            assert key is not None
            assert value is None or key.keys() <= value.keys()
            assert value is None or all(value[name] == key[name] for name in key)
            seen += 1
            deletes += value is None
        assert consumer.poll(0.5) is None
    finally:
        consumer.close()
    assert deletes > 100
    assert {subject.rpartition("-")[0] for subject in calls} <= {topic.replace(".", "_") for topic in topics}
