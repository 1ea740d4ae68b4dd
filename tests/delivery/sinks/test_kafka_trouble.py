"""Replays into a real broker while somebody changes it: limits, partitions, topics; and while the link to it hangs or refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.support.delivery.deliveries import settings_of
from tests.support.delivery.feeds import in_batches
from tests.support.delivery.messages import context, messages_of
from tests.support.servers.kafka import Link, new_topic_name, read_topic
from tidemill.changefeed import replay as module
from tidemill.changefeed.replay import replay
from tidemill.delivery import batch
from tidemill.delivery.inputs.table_router import Settings
from tidemill.delivery.machine import batch_machine
from tidemill.delivery.machine.actions import Report
from tidemill.delivery.machine.retry import RetryPolicy
from tidemill.demo.audit import Audit
from tidemill.demo.delivered import from_kafka
from tidemill.errors import Fenced, MessageRefused, MessageTooLarge, SinkError
from tidemill.playground.programs.kafka_broker import KafkaBroker
from tidemill.sinks.kafka import options
from tidemill.sinks.spec import open_driver_sink, open_task_sink

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def admin(kafka_broker: KafkaBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka_broker.address})


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "DELIVERY_TIMEOUT_MS", 4000)
    monkeypatch.setattr(options, "METADATA_TIMEOUT", 4.0)
    monkeypatch.setattr(module, "RETRY", RetryPolicy(first_s=0.2, longest_s=1.0, total_s=30.0))


def settings(address: str, topic: str, more: str = "") -> Settings:
    return settings_of(f"kafka://{address}/{topic}?protocol=open-protocol{more}", feed="k")


def make_topic(admin: AdminClient, topic: str, partitions: int = 3, **config: str) -> None:
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result()


def set_limit(admin: AdminClient, topic: str, size: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()


class Once:
    """Does something after the first batch."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act, self.reports = act, list[Report]()

    def __call__(self, report: Report) -> None:
        self.reports.append(report)
        if len(self.reports) == 1:
            self._act()

    @property
    def rows(self) -> int:
        return sum(report.stats.rows for report in self.reports)


def audited(broker: KafkaBroker, topic: str, *, check_homes: bool = True) -> Audit:
    audit = Audit(check_homes=check_homes)
    audit.take(from_kafka(broker.address, topic))
    audit.finish()
    assert audit.problems == []
    return audit


def test_a_limit_that_is_lowered_while_running(kafka_broker: KafkaBroker, admin: AdminClient, tmp_path: Path) -> None:
    """The broker refuses a batch of messages, the limit is asked for again, and smaller messages go through; order holds."""
    topic = new_topic_name("limit")
    make_topic(admin, topic)
    lower = Once(lambda: set_limit(admin, topic, 1200))
    replay(in_batches(21).log(tmp_path / "log"), settings(kafka_broker.address, topic), on_batch=lower)
    assert [report.attempts for report in lower.reports] == [1, 2, 1]
    audit = audited(kafka_broker, topic)
    assert len(audit.rows) == lower.rows


def test_a_limit_below_a_row_names_the_row(kafka_broker: KafkaBroker, admin: AdminClient, tmp_path: Path) -> None:
    topic = new_topic_name("limit")
    make_topic(admin, topic, **{"max.message.bytes": "400"})
    named = r"a row of app\.t\d takes \d+ bytes .*max-message-bytes is 272: key [0-9a-f]+, start_ts \d+, commit_ts \d+(.|\n)*--skip-row"
    with pytest.raises(MessageTooLarge, match=named) as caught:
        replay(in_batches(22).log(tmp_path / "log"), settings(kafka_broker.address, topic))
    assert not caught.value.retryable


def test_a_refusal_that_no_limit_explains_ends_it(
    kafka_broker: KafkaBroker, admin: AdminClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client may not see the topic's settings: then the broker's own words end the changefeed, at once."""
    from tidemill.sinks.kafka.driver import KafkaDriverSink

    monkeypatch.setattr(KafkaDriverSink, "message_limits", lambda self, topics: {})
    topic = new_topic_name("limit")
    make_topic(admin, topic, **{"max.message.bytes": "400"})
    with pytest.raises(MessageRefused, match="MSG_SIZE_TOO_LARGE") as caught:
        replay(in_batches(22).log(tmp_path / "log"), settings(kafka_broker.address, topic))
    assert not caught.value.retryable


def test_partitions_that_are_added_while_running(
    kafka_broker: KafkaBroker, admin: AdminClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New partitions get rows and resolved events as soon as the topic is looked at again."""
    monkeypatch.setattr(batch_machine, "TOPICS_CHECK_S", 0.0)
    topic = new_topic_name("grow")
    make_topic(admin, topic, partitions=2)
    grow = Once(lambda: admin.create_partitions([NewPartitions(topic, 5)])[topic].result())
    summary = replay(in_batches(23).log(tmp_path / "log"), settings(kafka_broker.address, topic), on_batch=grow)
    audit = Audit(check_homes=False)
    audit.take(from_kafka(kafka_broker.address, topic))
    assert audit.problems == []
    assert len(audit.rows) == grow.rows
    assert {p for _, p in audit.partitions} == set(range(5))
    assert {state.resolved for state in audit.partitions.values()} == {summary.to_ts}


def test_a_topic_that_is_deleted_is_made_again(kafka_broker: KafkaBroker, admin: AdminClient, tmp_path: Path) -> None:
    """What it held is gone with it; everything after is there, and in order."""
    topic = new_topic_name("gone")
    remove = Once(lambda: admin.delete_topics([topic])[topic].result())
    replay(in_batches(24).log(tmp_path / "log"), settings(kafka_broker.address, topic, "&partition-num=2"), on_batch=remove)
    audit = audited(kafka_broker, topic)
    assert len(audit.rows) >= sum(report.stats.rows for report in remove.reports[1:])


def test_a_topic_that_is_deleted_and_may_not_be_made(kafka_broker: KafkaBroker, admin: AdminClient, tmp_path: Path) -> None:
    topic = new_topic_name("gone")
    make_topic(admin, topic)
    remove = Once(lambda: admin.delete_topics([topic])[topic].result())
    with pytest.raises(SinkError, match=f"topic {topic} does not exist and auto-create-topic is false"):
        replay(in_batches(24).log(tmp_path / "log"), settings(kafka_broker.address, topic, "&auto-create-topic=false"), on_batch=remove)


@pytest.mark.parametrize(
    "fault", [pytest.param("hang", marks=pytest.mark.thorough("[refuse] fails a batch too; the link of the next test hangs")), "refuse"]
)
def test_a_link_that_fails_in_the_middle(kafka_link: Link, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Requests are swallowed, or connections refused, until the batch has failed; then the link comes back."""
    broker, proxy, address = kafka_link
    topic = new_topic_name(fault)
    failures: list[str] = []
    make = batch.BatchDriver.__init__

    def watched(self: Any, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)

        def on_failure(error: Any) -> None:
            failures.append(str(error))
            proxy.forward()

        self.on_failure = on_failure

    monkeypatch.setattr(batch.BatchDriver, "__init__", watched)
    fail = Once(getattr(proxy, fault))
    replay(in_batches(25).log(tmp_path / "log"), settings(address, topic, "&partition-num=3"), on_batch=fail)
    assert failures
    audit = audited(broker, topic)
    assert len(audit.rows) == fail.rows


def test_what_a_fenced_task_had_queued_never_arrives(kafka_link: Link) -> None:
    """The link hangs while it waits; its epoch ends; then the link comes back."""
    broker, proxy, address = kafka_link
    topic = new_topic_name("fenced")
    uri = f"kafka://{address}/{topic}?protocol=open-protocol&partition-num=1"
    open_driver_sink(uri).ensure_topics({topic})
    task = open_task_sink(uri)
    task.begin(context())
    task.deliver(messages_of([(0, b"first", b"v")]), [(topic, 0)])
    assert task.flush() == 1
    looks = []

    def look(*, now: bool = False) -> None:
        looks.append(now)
        if len(looks) == 3:
            raise Fenced("epoch 1 is over")

    proxy.hang()
    task.begin(replace(context(batch=2), check_fence=look))
    task.deliver(messages_of([(0, b"%d" % i, b"v" * 1000) for i in range(1000)]), [(topic, 0)])
    with pytest.raises(Fenced):
        task.flush()
    task.abandon()
    proxy.forward()
    task.begin(context(batch=2, epoch=2))
    task.deliver(messages_of([(0, b"second", b"v")]), [(topic, 0)])
    assert task.flush() == 1
    assert [record.key for record in read_topic(broker.address, topic)] == [b"first", b"second"]
