"""`tidemill consume` on a real broker: topics as TiCDC wrote them, repeated and torn apart, into tables."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from prometheus_client.parser import text_string_to_metric_families

from tests.support.changelog.loads import Loaded
from tests.support.consumer.consumers import Process, flushed_ts, make_topic, select, write
from tests.support.consumer.upstreams import truth
from tests.support.delivery.runs import PATIENCE_S, tidemill
from tests.support.golden.topics import delivery, golden_differences, until_last_drop
from tests.support.servers.kafka import new_topic_name
from tidemill.consumer.order.progress import Progress
from tidemill.consumer.tables.sqlite import SqliteTables
from tidemill.demo.compare import compare
from tidemill.playground.programs.kafka_broker import KafkaBroker
from tidemill.protocols.open import resolved_message
from tidemill.protocols.open.encode import framed

pytestmark = pytest.mark.kafka


def test_a_topic_of_ticdc_with_repeats_becomes_the_upstreams_tables(
    kafka_broker: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, file = new_topic_name("golden"), tmp_path / "tables.db"
    messages = until_last_drop()
    make_topic(kafka_broker, topic, 3)
    written = delivery(messages, 3, Random(5))
    assert len(written) > len(messages) * 1.5
    write(kafka_broker, topic, written)
    flags = ("--kafka", kafka_broker.address, "--topic", topic, "--sink-uri", f"sqlite://{file}", "--tz", "UTC")
    half = messages[len(messages) // 2].ts
    assert tidemill(capsys, "consume", *flags, "--target-ts", half)[0] == 0
    tables = SqliteTables(file)
    assert tables.progress().flushed_ts == half
    tables.close()
    code, out, err = tidemill(capsys, "consume", *flags, "--stop-at-end", "--memory-quota", "1M")
    assert code == 0, err
    assert f"up to {messages[-1].ts} " in out
    assert golden_differences(file, messages) == []


def test_killed_in_the_middle_again_and_again(kafka_broker: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """While the topic is still written; each time it goes on from what is in the file."""
    topic, file = new_topic_name("killed"), tmp_path / "tables.db"
    messages = until_last_drop()
    make_topic(kafka_broker, topic, 2)
    written = delivery(messages, 2, Random(7))
    flags = ("--kafka", kafka_broker.address, "--topic", topic, "--sink-uri", f"sqlite://{file}", "--tz", "UTC", "--flush-interval", "10ms")
    pieces = 2
    for piece in range(pieces):
        before = flushed_ts(file)
        with Process(tmp_path, *flags) as consumer:
            write(kafka_broker, topic, written[len(written) * piece // pieces : len(written) * (piece + 1) // pieces])
            consumer.wait_for(lambda before=before: flushed_ts(file) > before, "something is written")  # type: ignore[misc]
            consumer.process.send_signal(signal.SIGKILL)
    with Process(tmp_path, *flags) as consumer:
        consumer.wait_for(lambda: flushed_ts(file) == messages[-1].ts and consumer.said.count("following") > pieces, "it reaches the end")
        consumer.process.send_signal(signal.SIGTERM)
        assert consumer.process.wait(PATIENCE_S) == 0, consumer.said
    assert golden_differences(file, messages) == []


def changes(ts: int, key: int, table: str = "t", value: int | None = None) -> tuple[bytes, bytes]:
    """An insert or update of d.TABLE."""
    head = json.dumps({"ts": ts, "scm": "d", "tbl": table, "t": 1}).encode()
    row = {"id": {"t": 3, "h": True, "f": 11, "v": key}, "v": {"t": 3, "f": 65, "v": ts if value is None else value}}
    return framed(head, json.dumps({"u": row}).encode())


def test_new_partitions_and_topics_are_noticed(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    """With a topic expression. A partition without a resolved ts holds everything, and is named."""
    prefix, file = new_topic_name("many"), tmp_path / "tables.db"
    one, two = f"{prefix}.d_t", f"{prefix}.d_u"
    make_topic(kafka_broker, one, 1)
    write(kafka_broker, one, [(0, *changes(5, 1)), (0, *resolved_message(9))])
    flags = ("--upstream-uri", f"kafka://{kafka_broker.address}/{prefix}.{{schema}}_{{table}}?protocol=open-protocol&version=2.4.0")
    with Process(tmp_path, *flags, "--sink-uri", f"sqlite://{file}", "--status-addr", "127.0.0.1:0") as consumer:
        consumer.wait_for(lambda: flushed_ts(file) == 9, "the first topic is written")
        make_topic(kafka_broker, two, 1)
        write(kafka_broker, two, [(0, *changes(12, 7, "u"))])
        write(kafka_broker, one, [(0, *changes(13, 1)), (0, *resolved_message(15))])
        address = re.findall(r"/status and /metrics are served at (http://\S+)", consumer.said)[0]

        def status() -> dict[str, Any]:
            with urllib.request.urlopen(f"{address}/status") as answer:
                return dict(json.load(answer))

        consumer.wait_for(lambda: status()["held_by"] == [f"{two}[0]"] and status()["pending_rows"] == 2, "the new topic holds everything")
        assert flushed_ts(file) == 9
        with urllib.request.urlopen(f"{address}/metrics") as answer:
            found = text_string_to_metric_families(answer.read().decode())
            told = {(one.name, one.labels.get("topic", "")): one.value for family in found for one in family.samples}
        assert (told["tidemill_consume_partition_holds", one], told["tidemill_consume_partition_holds", two]) == (0, 1)
        assert (told["tidemill_consume_flushed_ts", ""], told["tidemill_consume_rows_total", ""]) == (9, 1)
        write(kafka_broker, two, [(0, *resolved_message(15))])
        consumer.wait_for(lambda: flushed_ts(file) == 15, "both topics are written")
        admin = AdminClient({"bootstrap.servers": kafka_broker.address})
        admin.create_partitions([NewPartitions(one, 2)])[one].result()
        write(kafka_broker, one, [(1, *changes(17, 3)), (1, *resolved_message(20)), (0, *resolved_message(20))])
        write(kafka_broker, two, [(0, *resolved_message(20))])
        consumer.wait_for(lambda: flushed_ts(file) == 20, "the new partition is written")
        head = json.dumps({"ts": 22, "scm": "d", "tbl": "u", "t": 2}).encode()
        write(kafka_broker, two, [(0, *framed(head, json.dumps({"q": "DROP TABLE `d`.`u`", "t": 4}).encode()))])
        write(kafka_broker, one, [(p, *resolved_message(30)) for p in (0, 1)])
        consumer.wait_for(lambda: flushed_ts(file) == 30, "the topic of a table that is gone is not waited for")
    assert select(file, 'SELECT id, v FROM "d.t" ORDER BY id') == [(1, 13), (3, 17)]
    assert select(file, "SELECT name FROM sqlite_master WHERE name = 'd.u'") == []


def test_a_partition_that_the_writer_does_not_use(kafka_broker: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topic, file = new_topic_name("unused"), tmp_path / "tables.db"
    make_topic(kafka_broker, topic, 3)
    write(kafka_broker, topic, [(p, *message) for p in (0, 1) for message in (changes(5, p), resolved_message(9))])
    flags = ("--kafka", kafka_broker.address, "--topic", topic, "--sink-uri", f"sqlite://{file}", "--stop-at-end")
    code, out, _ = tidemill(capsys, "consume", *flags)
    assert (code, out.startswith("0 rows in 0 transactions")) == (0, True)
    code, out, _ = tidemill(capsys, "consume", *flags, "--partition-num", 2)
    assert (code, out.startswith("2 rows in 1 transactions")) == (0, True)


def test_errors_name_the_place(kafka_broker: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topic = new_topic_name("broken")
    make_topic(kafka_broker, topic, 1)
    flags = ("--kafka", kafka_broker.address, "--topic", topic, "--stop-at-end", "--sink-uri", f"sqlite://{tmp_path}/x.db")
    key, value = changes(5, 1)
    write(kafka_broker, topic, [(0, key, value), (0, *changes(6, 1)), (0, key, value.replace(b'"v": 1', b'"v": "'))])
    code, _, err = tidemill(capsys, "consume", *flags)
    assert code == 1
    assert f"Error TM:ErrMalformedMessage: topic {topic}, partition 0, offset 2: message value, byte " in err
    other = new_topic_name("other")
    make_topic(kafka_broker, other, 1)
    write(kafka_broker, other, [(0, b"k", b"<xml/>")])
    code, _, err = tidemill(capsys, "consume", *flags[:2], "--topic", other, *flags[4:])
    assert f"topic {other}, partition 0, offset 0: it is of no protocol" in err
    for more, said in (
        (("--upstream-uri", "kafka://h:1/t"), "either --kafka or --upstream-uri"),
        (("--protocol", "maxwell"), "protocol 'maxwell' cannot be read"),
        (("--topic", "a b"), "--topic a b"),
        (("--target-ts", "12"), "is not a TSO"),
        (("--memory-quota", "much"), "--memory-quota"),
        (("--sink-uri", "sqlite://relative.db"), "absolute path"),
        (("--sink-uri", "sqlite:///x?keep-droped=1h"), "did you mean `keep-dropped`"),
    ):
        code, _, err = tidemill(capsys, "consume", *flags, *more)
        assert (code, "Error TM:ErrConfig" in err, said in err) == (1, True, True), err


def test_lost_messages_are_not_passed_over(kafka_broker: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Retention took what was not flushed: the consumer says so instead of going on."""
    topic, file = new_topic_name("lost"), tmp_path / "tables.db"
    make_topic(kafka_broker, topic, 1)
    write(kafka_broker, topic, [(0, *changes(5, 1)), (0, *resolved_message(9)), (0, *changes(12, 1)), (0, *changes(13, 1))])
    flags = ("--kafka", kafka_broker.address, "--topic", topic, "--sink-uri", f"sqlite://{file}", "--stop-at-end")
    assert tidemill(capsys, "consume", *flags)[0] == 0
    admin = AdminClient({"bootstrap.servers": kafka_broker.address})
    admin.delete_records([TopicPartition(topic, 0, 4)])[TopicPartition(topic, 0)].result()
    code, _, err = tidemill(capsys, "consume", *flags)
    assert (code, f"topic {topic}, partition 0 is to be read from offset 2 on, but it has 4 to 4" in err) == (1, True), err


def test_two_consumers_of_one_file(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    """The later one has it; the earlier one ends at its next commit."""
    topic, file = new_topic_name("two"), tmp_path / "tables.db"
    make_topic(kafka_broker, topic, 1)
    write(kafka_broker, topic, [(0, *changes(5, 1)), (0, *resolved_message(9))])
    flags = ("--kafka", kafka_broker.address, "--topic", topic, "--sink-uri", f"sqlite://{file}")
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    with Process(tmp_path / "1", *flags) as first:
        first.wait_for(lambda: flushed_ts(file) == 9, "the first writes")
        with Process(tmp_path / "2", *flags) as second:
            second.wait_for(lambda: "following" in second.said, "the second has begun")
            write(kafka_broker, topic, [(0, *changes(12, 1)), (0, *resolved_message(15))])
            assert first.process.wait(PATIENCE_S) == 1
            assert "another consumer has taken" in first.said
            second.wait_for(lambda: flushed_ts(file) == 15, "the second writes")


def test_a_ddl_that_cannot_be_applied_is_named_and_can_be_left_out(
    kafka_broker: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, file = new_topic_name("stuck"), tmp_path / "tables.db"
    make_topic(kafka_broker, topic, 1)
    head = json.dumps({"ts": 7, "scm": "d", "tbl": "t", "t": 2}).encode()
    ddl = framed(head, json.dumps({"q": "ALTER TABLE `d`.`t` TRUNCATE PARTITION `p0`", "t": 23}).encode())
    write(kafka_broker, topic, [(0, *changes(5, 1)), (0, *ddl), (0, *changes(8, 2)), (0, *resolved_message(9))])
    flags = ("--kafka", kafka_broker.address, "--topic", topic, "--sink-uri", f"sqlite://{file}", "--stop-at-end")
    code, _, err = tidemill(capsys, "consume", *flags)
    assert (code, "Error TM:ErrSchema: the DDL at 7 (ALTER TABLE" in err, "--skip-ddl 7" in err or "CREATE TABLE" in err) == (
        1,
        True,
        True,
    ), err
    assert flushed_ts(file) == 0
    code, out, err = tidemill(capsys, "consume", *flags, "--skip-ddl", 7)
    assert (code, out.startswith("2 rows in 2 transactions and 0 DDLs")) == (0, True), err
    assert select(file, 'SELECT id FROM "d.t" ORDER BY id') == [(1,), (2,)]


def test_from_topic_to_topic_in_another_protocol(kafka_broker: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Open Protocol in, Canal-JSON out, twice as after a lost state; the second consumer makes the tables."""
    topic, other, file = new_topic_name("one"), new_topic_name("other"), tmp_path / "tables.db"
    make_topic(kafka_broker, topic, 1)
    made = [(0, *message) for ts in range(5, 40) for message in (changes(ts, ts % 7), resolved_message(ts))]
    write(kafka_broker, topic, made)
    flags = ("--kafka", kafka_broker.address, "--stop-at-end")
    uri = f"kafka://{kafka_broker.address}/{other}?protocol=canal-json&enable-tidb-extension=true&partition-num=2"
    for state in ("a", "b"):
        code, out, err = tidemill(capsys, "consume", *flags, "--topic", topic, "--sink-uri", uri, "--state", tmp_path / state)
        assert (code, out.startswith("35 rows in 35 transactions")) == (0, True), err
    assert Progress.from_json((tmp_path / "a").read_text().splitlines()[0]).flushed_ts == 39
    code, out, err = tidemill(capsys, "consume", *flags, "--topic", other, "--protocol", "canal-json", "--sink-uri", f"sqlite://{file}")
    assert (code, out.startswith("35 rows in 35 transactions")) == (0, True), err
    assert dict(select(file, 'SELECT id, v FROM "d.t"')) == {ts % 7: ts for ts in range(5, 40)}  # type: ignore[arg-type]


def test_a_topic_that_is_not_there(kafka_broker: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is to end at its end is refused; else it is waited for, and that is said."""
    there, absent, file = new_topic_name("there"), new_topic_name("absent"), tmp_path / "tables.db"
    make_topic(kafka_broker, there, 1)
    write(kafka_broker, there, [(0, *changes(5, 1)), (0, *resolved_message(9))])
    flags = ("--kafka", kafka_broker.address, "--topic", there, "--topic", absent, "--sink-uri", f"sqlite://{file}")
    code, _, err = tidemill(capsys, "consume", *flags, "--topic", "^no-such-.*", "--stop-at-end")
    assert (code, f"Error TM:ErrTopic: no such topic: {absent}, ^no-such-.*\n" in err) == (1, True), err
    assert not file.exists()
    with Process(tmp_path, *flags) as consumer:
        consumer.wait_for(lambda: f"no such topic yet, it is waited for: {absent}" in consumer.said, "it says so")
        make_topic(kafka_broker, absent, 1)
        write(kafka_broker, absent, [(0, *changes(6, 1, "u")), (0, *resolved_message(9))])
        consumer.wait_for(lambda: flushed_ts(file) == 9, "both are read")


def test_a_topic_is_not_sent_into_itself(kafka_broker: KafkaBroker, capsys: pytest.CaptureFixture[str]) -> None:
    uri = f"kafka://{kafka_broker.address}/loop?protocol=open-protocol"
    code, _, err = tidemill(capsys, "consume", "--kafka", kafka_broker.address, "--topic", "^lo+p", "--sink-uri", uri)
    assert (code, "topic loop is among those that are read" in err) == (1, True), err


def test_an_empty_target_becomes_the_upstreams_tables_by_an_initial_load(
    kafka_broker: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tables that are older than the log: `create-tables` says what they are, ahead of their rows; one of them is read again on the way."""
    loaded, topic, file = Loaded(tmp_path), new_topic_name("loaded"), tmp_path / "tables.db"
    sink = f"kafka://{kafka_broker.address}/{topic}?protocol=open-protocol&partition-num=3"
    code, out, err = tidemill(capsys, "replay", "--log", loaded.log, "--sink-uri", sink, "--create-tables", "--tz", "UTC")
    assert code == 0, err
    assert "DDLs from" in out
    flags = ("--kafka", kafka_broker.address, "--topic", topic, "--sink-uri", f"sqlite://{file}", "--tz", "UTC", "--stop-at-end")
    assert tidemill(capsys, "consume", *flags)[0] == 0
    tables = SqliteTables(file)
    expected = {name: rows for name, rows in truth(loaded.sql.tables_at(loaded.end)).items() if name[1] != "keyless"}
    assert [str(d) for d in compare(tables, expected)] == []  # type: ignore[arg-type]
    assert len(expected) == 4
    tables.close()
