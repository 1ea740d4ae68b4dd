"""Views into topics of a real broker."""

from __future__ import annotations

import datetime
import json
import time
from decimal import Decimal

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic, Producer

from tests.support.servers.kafka import new_topic_name
from tests.support.views.compared import comparable, rows_of
from tests.support.views.shop import NUMBER, QUERIES, Shop, arrived, engine, planned
from tests.support.views.topic import intervals, states
from tidemill.errors import ConfigError, SinkError
from tidemill.playground.programs.kafka_broker import KafkaBroker
from tidemill.views.shape import Keyed, Shape, shape_of
from tidemill.views.targets.base import Target
from tidemill.views.targets.kafka_messages import Messages, mark_of
from tidemill.views.targets.open import target_of


def target(broker: KafkaBroker, topic: str, sql: str, feed: str = "view-v-1") -> Target:
    uri = f"kafka://{broker.address}/{topic}?partition-num=3&compression=lz4"
    return target_of(uri, "v", f"{topic}-{feed}", shape_of(planned(sql)))


@pytest.mark.kafka
@pytest.mark.parametrize("sql", [NUMBER, QUERIES[6]])
def test_a_consumer_has_the_rows_of_the_view(kafka_broker: KafkaBroker, sql: str) -> None:
    topic, plan, shop = new_topic_name("view"), planned(sql), Shop(5)
    names = [one.name for one in plan.root.columns]
    into = target(kafka_broker, topic, sql)
    into.create()
    truth = {0: comparable([])}
    with engine(plan, content=False) as state:
        for ts in (2, 3, 4):
            state.advance(ts, arrived(plan, shop.transaction(20)))
            truth[ts] = rows_of(state.whole())
            into.deliver(state.pending(), ts)
            if ts == 3:  # another process goes on
                into.close()
                into = target(kafka_broker, topic, sql)
                assert into.delivered() == 3
            into.deliver(state.pending(), ts)  # again, as after a crash: nothing happens
    into.resolved(9)
    into.resolved(8)
    assert into.delivered() == 9
    found = states(kafka_broker.address, topic)
    assert [ts for ts, _ in found] == [0, 2, 3, 4, 9]
    for ts, rows in found:
        assert comparable([tuple(row[name] for name in names) for row in rows]) == truth.get(ts, truth[4])
    assert any(row is None for partition in intervals(kafka_broker.address, topic) for one in partition for row in one.changes.values())
    with pytest.raises(SinkError, match="another view"):
        target(kafka_broker, topic, sql, "other").create()
    into.drop()
    into.close()
    admin, deadline = AdminClient({"bootstrap.servers": kafka_broker.address}), time.monotonic() + 120
    while topic in admin.list_topics(timeout=30).topics:  # brokers hear of it in a moment
        assert time.monotonic() < deadline


@pytest.mark.kafka
def test_a_topic_with_messages_of_others_is_refused(kafka_broker: KafkaBroker) -> None:
    topic = new_topic_name("view")
    client, failed = {"bootstrap.servers": kafka_broker.address}, []
    admin = AdminClient(client)
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result()
    producer = Producer(client)
    producer.produce(topic, b"a message", partition=1, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(60) == 0
    assert failed == [None]
    into = target_of(f"kafka://{kafka_broker.address}/{topic}", "v", "view-v-1", shape_of(planned(NUMBER)))
    with pytest.raises(SinkError, match="messages of others"):
        into.create()
    into.close()


def test_messages() -> None:
    moment = datetime.datetime(2024, 1, 2, 3, 4, 5, 6)
    row = {
        "id": 1,
        "text": 'ö"',
        "price": Decimal("-0.000000010"),
        "ratio": float("nan"),
        "day": moment.date(),
        "at": moment,
        "when": moment.replace(tzinfo=datetime.UTC),
        "raw": b"\x00\xff",
        "yes": True,
        "none": None,
    }
    kinds = (pa.int64(), pa.string(), pa.decimal128(12, 9), pa.float64(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"))
    schema = pa.schema(list(zip(row, (*kinds, pa.binary(), pa.bool_(), pa.int32()), strict=True)))
    messages = Messages("v", "view-v-1", Shape(Keyed.COLUMNS, schema, ("text", "id"), ()))
    rows = pa.Table.from_pylist([row], schema)
    (key, value), gone = messages.rows(rows, rows, 7)
    assert key == '{"text":"ö\\"","id":1}'.encode()
    assert gone == (key, None)
    assert value is not None
    assert json.loads(value) == {
        "id": 1,
        "text": 'ö"',
        "price": "-0.000000010",
        "ratio": "NaN",
        "day": "2024-01-02",
        "at": "2024-01-02T03:04:05.000006",
        "when": "2024-01-02T03:04:05.000006Z",
        "raw": "AP8=",
        "yes": True,
        "none": None,
        "_resolved_ts": 7,
    }
    assert mark_of(*messages.mark(7)) == ("view-v-1", 7)
    assert mark_of(b"{}", b"[" * 100_000) is mark_of(b"[" * 100_000, b"{}") is None  # of whoever may write to the topic
    assert mark_of(key, value) is mark_of(key, None) is mark_of(b"x", b"{}") is None


def test_what_is_refused() -> None:
    shape = shape_of(planned(NUMBER))
    for uri, told in (("kafka://h:1/t?protocol=canal-json", "no protocol"), ("kafka://h:1/t?required-acks=1", "required-acks")):
        with pytest.raises(ConfigError, match=told):
            target_of(uri, "v", "view-v-1", shape)
    with pytest.raises(ConfigError, match="cannot have a column _view"):
        target_of("kafka://h:1/t", "v", "view-v-1", shape_of(planned("SELECT id AS _view FROM orders")))
