"""Canal's connector for Kafka of its Java client reads topics of the protocols canal and canal-json."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.canal.clients import kafka_reader
from tests.support.canal.clients.stores import deliver, made_log
from tests.support.servers.kafka import Record, new_topic_name, read_topic
from tidemill.playground.programs.canal_client import ClientRefused
from tidemill.playground.programs.kafka_broker import KafkaBroker
from tidemill.protocols.canal.codes import EventType
from tidemill.protocols.canal.events import EntryColumn
from tidemill.protocols.canal.packets import Messages, parse_packet
from tidemill.protocols.canal.parse import parse_entry

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]


FLAT = ("data", "database", "es", "gtid", "id", "isDdl", "mysqlType", "old", "pkNames", "sql", "sqlType", "table", "ts", "type")
"""The fields of Canal's FlatMessage."""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    return made_log(tmp_path_factory.mktemp("log"), 60)


def topic_of(log: str, broker: KafkaBroker, protocol: str) -> tuple[str, list[Record]]:
    """A topic with the whole log; its records."""
    topic = new_topic_name("connector")
    deliver(log, f"kafka://{broker.address}/{topic}?protocol={protocol}&partition-num=1")
    return topic, read_topic(broker.address, topic)


def entries(record: Record) -> list[dict[str, Any]]:
    """What has to be said about a record's entries."""
    body = parse_packet(record.value or b"")
    assert isinstance(body, Messages)
    found = []
    for entry in map(parse_entry, body.entries):
        change = entry.change
        assert change is not None
        rows = [[[column(c) for c in image] for image in (row.before, row.after)] for row in change.rows]
        kind = EventType(change.event_type).name
        names = {"type": entry.type.name, "schema": entry.header.schema, "table": entry.header.table}
        found.append(names | {"kind": kind, "ddl": change.ddl, "sql": change.sql, "rows": rows})
    return found


def column(one: EntryColumn) -> list[Any]:
    return [one.name, None if one.value is None else one.value.decode(), one.mysql_type, one.key]


def read(broker: str, topic: str, word: str, want: list[Any], at_once: int) -> None:
    """What is rolled back comes again; what is acknowledged does not, also not to the next reader of the group."""
    found: list[Any] = []
    with kafka_reader() as reader:
        for upto in (len(want) // 2, len(want)):
            assert len(found) < upto
            reader.ask("open", broker, topic, "g", str(word == "flat").lower(), at_once)
            first: list[Any] = []
            while not first:
                first = reader.ask(word)["messages"]
            assert first == want[len(found) : len(found) + len(first)]
            if word == "packets":
                reader.ask("rollback")
            else:  # a fault of Canal's connector: it goes back, then commits with the consumer that it has not
                with pytest.raises(ClientRefused, match="NullPointerException"):
                    reader.ask("rollback")
            while len(found) < upto:
                more = reader.ask(word)["messages"]
                assert more == want[len(found) : len(found) + len(more)]
                found += more
                reader.ask("ack")
            reader.ask("disconnect")
    assert len(found) == len(want)


def test_packets(log: str, kafka_broker: KafkaBroker) -> None:
    """`getListWithoutAck`: a message for each packet, with one entry or many."""
    topic, records = topic_of(log, kafka_broker, "canal")
    want = [entries(record) for record in records]
    assert {one["kind"] for message in want for one in message} >= {"INSERT", "UPDATE", "DELETE", "CREATE"}
    assert max(map(len, want)) > 1
    read(kafka_broker.address, topic, "packets", want, at_once=4)


def test_flat_messages(log: str, kafka_broker: KafkaBroker) -> None:
    """`getFlatListWithoutAck`: rows and DDLs as Canal's own flat messages."""
    topic, records = topic_of(log, kafka_broker, "canal-json")
    want = [dict.fromkeys(FLAT) | json.loads(record.value or b"") for record in records]
    assert {one["type"] for one in want} >= {"INSERT", "UPDATE", "DELETE", "CREATE"}
    read(kafka_broker.address, topic, "flat", want, at_once=70)
