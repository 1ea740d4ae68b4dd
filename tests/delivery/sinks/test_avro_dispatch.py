"""Avro messages through the pipeline: keys are the handle columns, and rows go to the partitions that other protocols choose."""

from __future__ import annotations

import json
import logging
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelog.logs import Change
from tests.support.changelog.sqllogs import SqlLog
from tests.support.golden.ticdc import raw
from tests.support.servers.registries import Front, MemoryRegistry
from tidemill.changefeed.replay import replay
from tidemill.config.file import parse_config
from tidemill.config.registry_address import with_registry
from tidemill.delivery.inputs.table_router import Settings
from tidemill.delivery.row_warnings import CORRUPTED, RowWarning
from tidemill.protocols.avro.decode import AvroReader
from tidemill.protocols.open import RowEvent, decode
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows.write import with_checksum

PARTITIONS = 5


@pytest.fixture
def log(tmp_path: Path) -> str:
    sql = SqlLog("CREATE TABLE t (note VARCHAR(20), n INT, k VARCHAR(10), PRIMARY KEY (k, n))")
    for i in range(40):
        sql.run(f"INSERT INTO t (note, n, k) VALUES ('x{i}', {i - 20}, 'k{i % 7}')")
    sql.run("UPDATE t SET note = 'y' WHERE n > 10", "DELETE FROM t WHERE n < -10")
    return sql.write(tmp_path / "log")


def messages(log: str, out: Path, protocol: str, rule: str, registry: str | None) -> list[dict[str, Any]]:
    config = parse_config(f"[sink]\ndispatchers = [{{matcher = ['*.*'], partition = '{rule}'}}]\n")
    uri = with_registry(f"messages://{out}?protocol={protocol}&topic=only&partition-num={PARTITIONS}&max-batch-size=1", registry)
    replay(log, Settings("r", config.sink_uri(uri), config, UTC))
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.mark.parametrize("rule", ["index-value", "table", "ts"])
def test_rows_go_where_those_of_open_protocol_go(rule: str, log: str, tmp_path: Path, front: Front, memory: MemoryRegistry) -> None:
    reader = AvroReader(lambda number: next(text for text, i in memory.ids.items() if i == number))
    avro = []
    for sent in messages(log, tmp_path / "avro", "avro", rule, front.url):
        key = reader.decode(raw(sent["key"]) or b"")
        assert list(key.values) == ["n", "k"], "in table order"
        value = raw(sent["value"])
        note = reader.decode(value).values["note"] if value is not None else None
        avro.append((sent["partition"], *key.values.values(), note))
    open_protocol = []
    for sent in messages(log, tmp_path / "open", "open-protocol", rule, None):
        for event in decode(raw(sent["key"]) or b"", raw(sent["value"])):
            if isinstance(event, RowEvent):
                cells = {c.name: c.value for c in event.after or event.before}
                assert isinstance(cells["k"], bytes)
                assert isinstance(cells["note"], bytes)
                note = cells["note"].decode() if event.after else None
                open_protocol.append((sent["partition"], cells["n"], cells["k"].decode(), note))
    assert sorted(avro, key=str) == sorted(open_protocol, key=str)
    assert len(avro) > 50
    assert (len({partition for partition, *_ in avro}) == 1) is (rule == "table")


SUMS = """
[sink]
dispatchers = [{matcher = ['*.*'], topic = 'tidb_{schema}_{table}'}]
[integrity]
integrity-check-level = 'correctness'
"""
SUMMED = "&enable-tidb-extension=true&avro-decimal-handling-mode=string&avro-bigint-unsigned-handling-mode=string"


def test_rows_that_do_not_fit_their_checksum_are_told(front: Front, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first ones by name, the others by their number; they are sent and marked."""

    def alter(change: Change) -> Change:
        """Every second row has the checksum of another."""
        if change.value is None:
            return change
        handle = int.from_bytes(change.key[-8:], "big")
        key = record_key(7, 777) if handle % 2 else change.key
        return change._replace(value=with_checksum(key, change.value))

    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    sql.run("INSERT INTO t VALUES " + ", ".join(f"({i}, {i})" for i in range(20)))
    config = parse_config(SUMS)
    out = tmp_path / "out"
    sink = config.sink_uri(with_registry(f"messages://{out}?protocol=avro{SUMMED}", front.url))
    with caplog.at_level(logging.WARNING, "tidemill"):
        replay(sql.write(tmp_path / "log", alter=alter), Settings("r", sink, config, UTC))
    [told] = [record.getMessage() for record in caplog.records if "checksum" in record.getMessage()]
    assert told.startswith("10 rows do not fit their checksum and are sent marked as corrupted: app.t, key 74")
    assert told.count("app.t, key ") == 5
    assert len(out.read_text().splitlines()) == 20


def test_corrupted_rows_are_told_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    rows = RowWarning(CORRUPTED, lambda: now[0])
    with caplog.at_level(logging.WARNING, "tidemill"):
        for count in (0, 2, 3, 4):
            rows.tell(count, ("a.b, key 01, commit_ts 5",) * min(count, 1))
            now[0] += 4.9
        rows.tell(0, ())
        now[0] += 1
        rows.tell(1, ("c.d, key 02, commit_ts 6",))
    assert [record.getMessage().partition(":")[0].split()[0] for record in caplog.records] == ["2", "8"]
    assert "c.d, key 02" in caplog.text


ROUTED = "dispatchers = [{matcher = ['*.*'], topic = '{schema}_{table}'}]\n"


def test_columns_may_be_left_out(front: Front, memory: MemoryRegistry, tmp_path: Path) -> None:
    """Of the rows and of the registered schema; of a table that the selector does not match, none."""
    sql = SqlLog("CREATE TABLE t (a INT PRIMARY KEY, b INT, c INT)", "CREATE TABLE u (a INT PRIMARY KEY, b INT)")
    sql.run("INSERT INTO t VALUES (1, 2, 3), (2, 3, 4)", "UPDATE t SET c = 9, b = 9 WHERE a = 1", "INSERT INTO u VALUES (1, 2)")
    config = parse_config("[sink]\ncolumn-selectors = [{matcher = ['app.t'], columns = ['*', '!b']}]\n" + ROUTED)
    uri = with_registry(f"messages://{tmp_path}/out?protocol=avro&topic=other", front.url)
    replay(sql.write(tmp_path / "log"), Settings("r", config.sink_uri(uri), config, UTC))
    reader = AvroReader(lambda number: next(text for text, i in memory.ids.items() if i == number))
    sent = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    values = [reader.decode(raw(one["value"])).values for one in sent if one["value"]]
    assert sorted(tuple(v.items()) for v in values) == [
        (("a", 1), ("b", 2)),
        (("a", 1), ("c", 3)),
        (("a", 1), ("c", 9)),
        (("a", 2), ("c", 4)),
    ]
    assert all('"name":"b"' not in text for text in memory.ids if '"name":"c"' in text)
