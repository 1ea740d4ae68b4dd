"""RENAME TABLE of several tables in messages: each pair of the statement by itself and in its place, as TiCDC sends it, so that a consumer
that runs one after the other has every name free, also where names go round in a ring."""

from __future__ import annotations

import base64
import json
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.consumer.fed_tables import apply
from tests.support.consumer.upstreams import truth
from tests.support.delivery.messages import decoded_from, sent_into
from tidemill.changefeed.replay import replay
from tidemill.config.file import parse_config
from tidemill.consumer.tables.sqlite import MEMORY, SqliteTables
from tidemill.delivery.inputs.table_router import Settings
from tidemill.demo.compare import compare

TABLES = ("a", "b", "c")
AS_WRITTEN = {
    "swap": "a TO t, b TO a, t TO b",
    "ring of three": "a TO t, b TO a, c TO b, t TO c",
    "chain": "a TO old, b TO a, c TO b",
    "chain through spare names": "a TO t1, b TO t2, c TO d, t2 TO c, t1 TO b",
    "across databases": "a TO other.t, b TO a, other.t TO other.b",
}
MADE_OTHERWISE = {
    "a table that keeps its name": ("a TO t, b TO a, a TO d, t TO a", ["b TO d"]),
    "a pair that comes twice": ("a TO d, d TO a, a TO d, b TO e", ["a TO d", "b TO e"]),
}


def log_of(folder: Path, pairs: str) -> tuple[SqlLog, str]:
    sql = SqlLog("CREATE DATABASE other")
    for number, table in enumerate(TABLES):
        sql.run(f"CREATE TABLE {table} (k INT PRIMARY KEY, v INT)", f"INSERT INTO {table} VALUES ({number}, {number})")
    sql.run(f"RENAME TABLE {pairs}")
    for schema, table in sorted(sql.tables_at(sql.run())):
        sql.run(f"INSERT INTO {schema}.{table} VALUES (100, 0)", f"UPDATE {schema}.{table} SET v = v + 1")
    return sql, sql.write(folder / "log")


def send(log: str, out: Path, protocol: str = "open-protocol", toml: str = "") -> None:
    config = parse_config(toml)
    replay(log, Settings("test", config.sink_uri(f"messages://{out}?protocol={protocol}&enable-tidb-extension=true"), config, UTC))


def pairs_in(queries: list[str]) -> list[str]:
    return [query.removeprefix("RENAME TABLE ").replace("`", "").replace("app.", "") for query in queries if query.startswith("RENAME")]


def values(out: Path) -> list[dict[str, Any]]:
    return [json.loads(base64.b64decode(json.loads(line)["value"])) for line in out.read_text().splitlines()]


@pytest.mark.parametrize("pairs", AS_WRITTEN.values(), ids=AS_WRITTEN.keys())
def test_each_pair_is_sent_in_its_place(tmp_path: Path, pairs: str) -> None:
    _, log = log_of(tmp_path, pairs)
    send(log, tmp_path / "open")
    assert pairs_in([body["q"] for _, _, head, body in sent_into(tmp_path / "open") if head["t"] == 2]) == pairs.split(", ")
    for protocol in ("canal-json", "simple"):
        send(log, tmp_path / protocol, protocol)
        assert pairs_in([value.get("sql") or "" for value in values(tmp_path / protocol)]) == pairs.split(", "), protocol


@pytest.mark.parametrize(("pairs", "expected"), MADE_OTHERWISE.values(), ids=MADE_OTHERWISE.keys())
def test_what_cannot_be_run_one_by_one_is_sent_once_a_table(tmp_path: Path, pairs: str, expected: list[str]) -> None:
    """A table that ends under its first name has no event, and a consumer takes the same text of one ts for the same DDL."""
    _, log = log_of(tmp_path, pairs)
    send(log, tmp_path / "out")
    assert pairs_in([body["q"] for _, _, head, body in sent_into(tmp_path / "out") if head["t"] == 2]) == expected


@pytest.mark.parametrize("pairs", [*AS_WRITTEN.values(), *(pairs for pairs, _ in MADE_OTHERWISE.values())])
def test_a_consumer_ends_with_the_tables_of_the_upstream(tmp_path: Path, pairs: str) -> None:
    sql, log = log_of(tmp_path, pairs)
    send(log, tmp_path / "out")
    tables = SqliteTables(MEMORY)
    apply(tables, decoded_from(tmp_path / "out"))
    assert [*compare(tables, truth(sql.tables_at(sql.run())))] == []  # type: ignore[arg-type]


def test_the_messages_show_the_table_under_the_names_of_the_pair(tmp_path: Path) -> None:
    _, log = log_of(tmp_path, AS_WRITTEN["swap"])
    send(log, tmp_path / "out", "simple")
    shown = [(v["preTableSchema"]["table"], v["tableSchema"]["table"]) for v in values(tmp_path / "out") if v["type"] == "RENAME"]
    assert shown == [("a", "t"), ("b", "a"), ("a", "b")]  # before it: as it was before the whole statement


def test_a_pair_goes_to_the_topic_of_the_rows_before_it(tmp_path: Path) -> None:
    """No topic is made for a name within the statement."""
    _, log = log_of(tmp_path, AS_WRITTEN["swap"])
    send(log, tmp_path / "out", toml="[[sink.dispatchers]]\nmatcher = ['*.*']\ntopic = '{schema}_{table}'\n")
    sent = [(topic, *pairs_in([body["q"]])) for topic, _, head, body in sent_into(tmp_path / "out") if head["t"] == 2]
    assert [message for message in sent if len(message) == 2] == [("app_a", "a TO t"), ("app_b", "b TO a"), ("app_a", "t TO b")]
    assert {topic for topic, *_ in sent} == {"app_a", "app_b", "app_c"}


def test_the_pairs_of_tables_that_the_rules_leave_out_are_left_out(tmp_path: Path) -> None:
    _, log = log_of(tmp_path, "c TO old, a TO t, b TO a, t TO b")
    send(log, tmp_path / "out", toml="[filter]\nrules = ['app.a', 'app.b']\n")
    assert pairs_in([body["q"] for _, _, head, body in sent_into(tmp_path / "out") if head["t"] == 2]) == ["a TO t", "b TO a", "t TO b"]
