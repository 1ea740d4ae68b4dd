"""Whole replays into a real broker: what arrives, and what happens when the broker goes away in the middle."""

from __future__ import annotations

import base64
import json
import threading
from datetime import UTC
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.support.delivery.deliveries import settings_of
from tests.support.delivery.feeds import PLAIN, Delivered, World, expected, in_batches
from tests.support.servers.kafka import new_topic_name, read_topic
from tidemill.changefeed import replay as module
from tidemill.changefeed.replay import replay
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings
from tidemill.delivery.machine.actions import Report
from tidemill.delivery.machine.retry import RetryPolicy
from tidemill.errors import SinkUnavailable
from tidemill.playground.programs.kafka_broker import KafkaBroker
from tidemill.rules.dispatch import DispatchMode, DispatchRule, partition
from tidemill.sinks.kafka import options
from tidemill.tidb.rows.reader import RowReader
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def settings(broker: KafkaBroker, topic: str) -> Settings:
    return settings_of(f"kafka://{broker.address}/{topic}?protocol=open-protocol&partition-num=3&max-batch-size=4", feed="k")


def delivered(broker: KafkaBroker, topic: str, folder: Path) -> Delivered:
    """The topic's content as the reader of message files takes it."""
    lines = []
    for record in read_topic(broker.address, topic):
        key, value = (base64.b64encode(part or b"").decode() for part in (record.key, record.value))
        lines.append(json.dumps({"topic": topic, "partition": record.partition, "key": key, "value": value}))
    path = folder / "topic.jsonl"
    path.write_text("\n".join(lines))
    return Delivered.read(path)


def test_a_replay_into_kafka(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    world, topic = World.make(seed=11), new_topic_name("replay")
    done = replay(world.log(tmp_path / "log", partitions=2), settings(kafka_broker, topic))
    got = delivered(kafka_broker, topic, tmp_path)
    assert got.events == expected(world, "index-value", 3)
    assert got.resolved == {p: [world.end + 1] for p in range(3)}
    assert got.late == 0
    assert done.messages == sum(1 for n in got.batch_sizes) - 3


def test_a_broker_that_comes_back_has_it_all(kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes between two batches and returns while the next one is being tried."""
    monkeypatch.setattr(options, "DELIVERY_TIMEOUT_MS", 3000)
    world, topic = in_batches(12), new_topic_name("back")
    reports: list[Report] = []
    starting: list[threading.Thread] = []

    def go_away_once(report: Report) -> None:
        reports.append(report)
        if len(reports) == 1:
            kafka_broker.stop()
            starting.append(threading.Timer(3.5, kafka_broker.start))
            starting[0].start()

    replay(world.log(tmp_path / "log"), settings(kafka_broker, topic), on_batch=go_away_once)
    starting[0].join()
    assert len(reports) == 3
    got = delivered(kafka_broker, topic, tmp_path)
    first = {p: {t: list(dict.fromkeys(e)) for t, e in tables.items()} for p, tables in got.events.items()}
    assert sum(len(e) for t in first.values() for e in t.values()) == sum(r.stats.rows for r in reports)
    for tables in first.values():
        for events in tables.values():
            stamps = [int(key.split(b":")[1].split(b",")[0]) for key, _ in events]
            assert stamps == sorted(stamps)


def test_a_broker_that_stays_away_ends_it(kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "DELIVERY_TIMEOUT_MS", 1500)
    monkeypatch.setattr(options, "METADATA_TIMEOUT", 2.0)
    monkeypatch.setattr(module, "RETRY", RetryPolicy(first_s=0.2, total_s=0.3))
    world, topic = in_batches(12), new_topic_name("away")
    reports: list[Report] = []

    def go_away(report: Report) -> None:
        reports.append(report)
        kafka_broker.stop()

    try:
        with pytest.raises(SinkUnavailable, match=r"batch 1 of k, .* [23] attempts"):
            replay(world.log(tmp_path / "log"), settings(kafka_broker, topic), on_batch=go_away)
    finally:
        kafka_broker.start()
    assert len(reports) == 1


def test_topics_of_tables_are_made_and_their_growth_is_noticed(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    """Each table's topic is created with partition-num partitions; a delivery that starts later uses those that were added."""
    prefix = new_topic_name("tables")
    config = parse_config(
        f"""
        [[sink.dispatchers]]
        matcher = ["app.t1", "app.t2"]
        partition = "columns"
        columns = ["id"]
        topic = "{prefix}.{{schema}}_{{table}}"
        """
    )
    base = f"kafka://{kafka_broker.address}/{prefix}?protocol=open-protocol&replication-factor=1"
    world = World.make(seed=13)
    log = world.log(tmp_path / "log")
    replay(log, Settings("k", config.sink_uri(base + "&partition-num=2"), config, UTC))
    admin = AdminClient({"bootstrap.servers": kafka_broker.address})
    made = {name: len(t.partitions) for name, t in admin.list_topics(timeout=60).topics.items() if name.startswith(prefix)}
    assert made == {prefix: 2, f"{prefix}.app_t1": 2, f"{prefix}.app_t2": 2}
    first = read_topic(kafka_broker.address, f"{prefix}.app_t1")
    assert all(b'"tbl":"t1"' in (r.key or b"") for r in first if b'"t":1' in (r.key or b""))
    assert {r.partition for r in first if b'"t":3' in (r.key or b"")} == {0, 1}

    grown = admin.create_partitions([NewPartitions(f"{prefix}.app_t1", 5)])
    grown[f"{prefix}.app_t1"].result(60)
    replay(log, Settings("k", config.sink_uri(base), config, UTC))
    both = read_topic(kafka_broker.address, f"{prefix}.app_t1")
    rule, info = DispatchRule(DispatchMode.COLUMNS, columns=("id",)), TableInfo.from_json(world.infos[PLAIN])
    version, reader = TableVersion("app", 500, info, (), 0), RowReader(info, UTC)
    images = [reader.read(c.key, c.value or c.old_value) for c in world.rows if c.table_id == PLAIN and (c.value or c.old_value)]
    places = {partition(rule, version, None, cells, 0, 5) for cells in images}
    assert {r.partition for r in both if b'"t":1' in (r.key or b"")} == {0, 1} | places
    assert places >= {2, 3, 4}
    assert {r.partition for r in both if b'"t":3' in (r.key or b"")} == set(range(5))
