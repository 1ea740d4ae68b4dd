"""Confluent's own deserializer reads every message, as ours does."""

from __future__ import annotations

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.support.golden import avro
from tests.support.servers.registries import Front, MemoryRegistry
from tidemill.config.registry_address import parse_address
from tidemill.protocols.avro.decode import AvroReader
from tidemill.protocols.avro.wire import head
from tidemill.registry.client import RegistryClient


@pytest.mark.slow
@pytest.mark.parametrize("config", [avro.PRECISE, avro.STRINGS])
def test_confluents_deserializer_reads_every_message(config: str, front: Front, memory: MemoryRegistry) -> None:
    ids = {number: memory.ids.setdefault(text, 1 + len(memory.ids)) for (of, number), (text, _) in avro.schemas().items() if of == config}
    deserializer = AvroDeserializer(SchemaRegistryClient({"url": front.url}))
    reader = AvroReader(RegistryClient(parse_address(front.url)).schema)
    seen = 0
    for want in avro.expected()[config]:
        for side, number, data in ((MessageField.KEY, want.key_id, want.key), (MessageField.VALUE, want.value_id, want.value)):
            if want.error is not None or data is None or number is None:
                continue
            sent = head(ids[number]) + data[5:]
            theirs, ours = deserializer(sent, SerializationContext(want.topic, side)), reader.decode(sent)
            plain = {f.name for f in ours.schema.fields if f.tidb_type in ("INT", "BIGINT", "TEXT", "BLOB", "DOUBLE", "DATE", "JSON", "")}
            assert {name: theirs[name] for name in plain} == {name: ours.values[name] for name in plain}
            assert list(theirs) == list(ours.values)
            seen += 1
    assert seen > 1500
