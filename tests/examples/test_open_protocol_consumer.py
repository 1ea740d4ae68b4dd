"""The example of a plain consumer: rows of a real topic in commit order, each once, also where messages come again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from pathlib import Path

import pytest

from examples.open_protocol_consumer import Orderer, consume, line
from tests.support.delivery.feeds import World, expected
from tests.support.servers.kafka import new_topic_name
from tidemill.changefeed.replay import replay
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings
from tidemill.playground.programs.kafka_broker import KafkaBroker
from tidemill.protocols.open import DdlMessage, Event, ResolvedMessage, RowEvent, decode
from tidemill.protocols.open.encode import framed


def row(ts: int, number: int) -> Event:
    key = b'{"ts":%d,"scm":"s","tbl":"t","rid":%d,"t":1}' % (ts, number)
    return decode(*framed(key, b'{"u":{"id":{"t":3,"h":true,"f":11,"v":%d}}}' % number))[0]


def test_what_is_complete_comes_in_order_and_once() -> None:
    orderer, got = Orderer([0, 1]), []
    ddl = DdlMessage(5, "s", "t", "ALTER TABLE t", 5)
    events: Sequence[tuple[int, Event]] = [
        (0, row(3, 1)), (1, row(2, 2)), (0, row(3, 1)), (0, row(5, 3)), (0, ddl), (1, ddl), (0, ResolvedMessage(5)), (1, row(6, 4)),
        (1, ResolvedMessage(4)), (1, row(2, 2)), (1, ResolvedMessage(3)), (1, ResolvedMessage(9)), (0, ResolvedMessage(9)),
    ]  # fmt: skip
    for partition, event in events:
        got += orderer.add(partition, event)
    assert got == [row(2, 2), row(3, 1), row(5, 3), ddl, row(6, 4)]
    assert line(got[0]) == "2 insert s.t {'id': 2}"
    assert line(ddl) == "5 ddl ALTER TABLE t"


@pytest.mark.kafka
@pytest.mark.slow
def test_a_topic_that_was_written_twice(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    world, topic = World.make(seed=21), new_topic_name("example")
    config = parse_config('[[sink.dispatchers]]\nmatcher = ["*.*"]\npartition = "index-value"\n')
    uri = config.sink_uri(f"kafka://{kafka_broker.address}/{topic}?protocol=open-protocol&partition-num=3")
    log = world.log(tmp_path / "log")
    for _ in range(2):
        replay(log, Settings("k", uri, config, UTC))
    got = [event for event in consume(kafka_broker.address, topic, until=world.end + 1) if isinstance(event, RowEvent)]
    assert [e.ts for e in got] == sorted(e.ts for e in got)
    want = [
        decode(*framed(*event))[0]
        for tables in expected(world, "index-value", 3).values()
        for events in tables.values()
        for event in events
    ]
    assert len(got) == len(want)
    assert set(got) == set(want)
