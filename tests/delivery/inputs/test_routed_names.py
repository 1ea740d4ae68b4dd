"""Table routing in a replay: what messages, DDLs and files show; topics and partitions stay those of the upstream's names."""

from __future__ import annotations

import json
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelog.logs import START, golden_log, golden_span
from tests.support.delivery.feeds import World
from tests.support.delivery.messages import Sent, sent_into
from tests.support.golden import ticdc
from tidemill.changefeed.replay import replay
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.routed_names import routed_ddl
from tidemill.delivery.inputs.table_router import Settings
from tidemill.rules.table_routes import TableRouteConflict, TableRoutingFailed
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.events import DdlEvent

PLAIN = "[[sink.dispatchers]]\nmatcher = ['*.*']\ntopic = '{schema}.{table}'\npartition = 'index-value'\n"
ROUTED = PLAIN + "target-schema = '{schema}_x'\ntarget-table = '{table}_y'\n"


def deliver(log: Path, out: Path, toml: str) -> list[Sent]:
    config = parse_config(toml)
    sink = config.sink_uri(f"messages://{out}?protocol=open-protocol&partition-num=2&topic=rest")
    start, end = golden_span("ddl_table", "ddl_schema_misc")
    replay(str(log), Settings("test", sink, config, UTC), start_ts=start, target_ts=end)
    return sent_into(out)


@pytest.mark.slow
def test_a_log_of_ticdcs_cases_under_other_names(tmp_path: Path) -> None:
    log = golden_log(tmp_path / "log")
    plain, routed = deliver(log, tmp_path / "plain", PLAIN), deliver(log, tmp_path / "routed", ROUTED)
    assert len(plain) == len(routed) > 300
    ddls = 0
    for (topic, partition, head, body), (topic_r, partition_r, head_r, body_r) in zip(plain, routed, strict=True):
        assert (topic, partition) == (topic_r, partition_r)
        if head["t"] == 3:
            assert head == head_r
            continue
        if head["t"] == 1 or head.get("tbl"):
            assert (head_r["scm"], head_r["tbl"]) == (f"{head['scm']}_x", f"{head['tbl']}_y")
        else:
            assert head_r["scm"] == f"{head['scm']}_x"
        if head["t"] == 1:
            assert body == body_r
        else:
            ddls += 1
            assert f"`{head['scm']}`" not in body_r["q"]
            assert f"`{head_r['scm']}`" in body_r["q"]
            assert head_r.get("tbl", "") in body_r["q"]
    assert ddls > 50


def test_files_lie_under_the_names_of_the_targets(tmp_path: Path) -> None:
    log = World.make(transactions=5).log(tmp_path / "log")
    config = parse_config(
        "[sink]\nprotocol = 'csv'\n[[sink.dispatchers]]\nmatcher = ['app.*']\ntarget-schema = 'b'\ntarget-table = '{schema}_{table}'"
    )
    replay(log, Settings("test", config.sink_uri(f"file://{tmp_path / 'out'}"), config, UTC))
    tables = {p.relative_to(tmp_path / "out").parts[:2] for p in (tmp_path / "out").rglob("*.csv")}
    assert tables == {("b", f"app_t{i}") for i in (1, 2, 3)}
    described = [json.loads(p.read_text()) for p in (tmp_path / "out").rglob("schema_*.json")]
    assert {(d["Schema"], d["Table"]) for d in described if d["Table"]} == tables
    rows = [line for p in (tmp_path / "out").rglob("*.csv") for line in p.read_text().splitlines()]
    assert rows
    assert all(line.split(",")[1:3] == [f'"{name}"', '"b"'] for p in (tmp_path / "out").rglob("*.csv")
               for name in [p.relative_to(tmp_path / "out").parts[1]] for line in p.read_text().splitlines())  # fmt: skip


def test_two_tables_of_one_target_are_refused_with_both_names(tmp_path: Path) -> None:
    log = World.make(transactions=3).log(tmp_path / "log")
    config = parse_config("[[sink.dispatchers]]\nmatcher = ['*.*']\ntarget-table = 'one'")
    sink = config.sink_uri(f"messages://{tmp_path / 'out'}?protocol=open-protocol")
    with pytest.raises(TableRouteConflict, match=r"gives app.t\d and app.t\d the same target app.one"):
        replay(log, Settings("test", sink, config, UTC), start_ts=START)
    assert not (tmp_path / "out").exists() or not (tmp_path / "out").read_text()


def event(query: str, **more: Any) -> DdlEvent:
    given = {"type": Action.CREATE_TABLE, "schema": "s", "table": "t", "pre_schema": "", "pre_table": ""} | more
    return DdlEvent(ts=5, done_ts=5, job_id=1, schema_version=1, seq=0, table_id=7, query=query, raw_query=query, reprinted=True, **given)


ROUTES = parse_config("[[sink.dispatchers]]\nmatcher = ['s.*']\ntarget-schema = 'x'\ntarget-table = '{table}_r'").table_routes()


def test_a_ddl_that_names_a_routed_table_only_in_passing() -> None:
    made = routed_ddl(event("CREATE VIEW `o`.`v` AS SELECT * FROM `s`.`t`", type=Action.CREATE_VIEW, schema="o", table="v"), ROUTES)
    assert made.query.endswith("VIEW `o`.`v` AS SELECT * FROM `x`.`t_r`")
    assert (made.schema, made.table) == ("o", "v")


def test_a_ddl_of_other_tables_stays_as_it_is() -> None:
    other = event("CREATE TABLE `t` (`a` INT)", schema="o")
    assert routed_ddl(other, ROUTES) is other


def test_a_rename_goes_by_the_names_of_the_job() -> None:
    """The old table was in the session's database, which a rename into another one does not tell."""
    renamed = event("RENAME TABLE `t` TO `o`.`u`", type=Action.RENAME_TABLE, schema="o", table="u", pre_schema="s", pre_table="t")
    made = routed_ddl(renamed, ROUTES)
    assert made.query == "RENAME TABLE `x`.`t_r` TO `o`.`u`"
    assert (made.schema, made.table, made.pre_schema, made.pre_table) == ("o", "u", "x", "t_r")
    altered = event("ALTER TABLE `t` RENAME AS `o`.`u`", type=Action.RENAME_TABLE, schema="o", table="u", pre_schema="s", pre_table="t")
    assert routed_ddl(altered, ROUTES).query == "ALTER TABLE `x`.`t_r` RENAME AS `o`.`u`"


def test_a_text_that_cannot_be_parsed_is_not_sent() -> None:
    with pytest.raises(TableRoutingFailed, match="cannot be written with the names of table routing") as caught:
        routed_ddl(event("CREATE TABLE t (a NEWTYPE)"), ROUTES)
    assert "ignore-sql" in caught.value.hint


def test_a_schema_without_a_single_target_fails() -> None:
    two = "[[sink.dispatchers]]\nmatcher = ['s.{}']\ntarget-schema = '{}'\n"
    routes = parse_config(two.format("a", "x") + two.format("b", "y")).table_routes()
    with pytest.raises(TableRoutingFailed, match="schema s has no single target"):
        routed_ddl(event("CREATE DATABASE `s`", type=Action.CREATE_SCHEMA, table=""), routes)


def test_golden_statements_can_all_be_routed_and_keep_their_tables() -> None:
    """Routed to itself nothing changes, whatever the statement."""
    same = parse_config("[[sink.dispatchers]]\nmatcher = ['*.*']\ntarget-schema = '{schema}'").table_routes()
    sent = [e for line in ticdc.lines("ddl") for e in line["result"].get("events", ())]
    assert len(sent) > 50
    for one in sent:
        made = event(one["sent_query"], schema=one["schema"], table=one["table"])
        assert routed_ddl(made, same) is made
