"""`capture --capture-config`: tables that no rule selects are not in the log, and a changefeed that wants them is told."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from tests.support.capture.captures import caught_up, config, log_changes, running, until
from tests.support.schema.schemas import begun_with_a_table as begun
from tidemill.capture import rules
from tidemill.capture.initial_load import answered, ask
from tidemill.changelog.history import load_history
from tidemill.changelog.log_format import CaptureRules, LogIdentity
from tidemill.changelog.reader import LogReader
from tidemill.changelog.verify import verify
from tidemill.cli.main import main as cli
from tidemill.delivery.inputs.coverage import CoverageCheck
from tidemill.errors import NotCaptured
from tidemill.playground.server import Playground


def only(*patterns: str) -> CaptureRules:
    return CaptureRules(0, patterns)


def counts(log: Path) -> Counter[str]:
    """Rows of each table by the name that it had then."""
    history = load_history(LogReader(log))
    rows = [row for partition in log_changes(log).values() for row in partition]
    return Counter(history.snapshot(row.commit_ts - 1).by_physical[row.table_id].table for row in rows)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit, match="1"):
        cli(list(arguments))
    return capsys.readouterr().err


def test_entries_follow_each_other() -> None:
    identity = LogIdentity("1", 5, 2).with_rules(CaptureRules(10, ("a.*",))).with_rules(CaptureRules(20, ("b.*",), case_sensitive=True))
    assert LogIdentity.from_json(identity.to_json()) == identity
    assert [e and e.rules for e in identity.rules_above(5)] == [None, ("a.*",), ("b.*",)]
    assert [e and e.rules for e in identity.rules_above(10)] == [("a.*",), ("b.*",)]
    assert [e and e.rules for e in identity.rules_above(30)] == [("b.*",)]
    first, second = identity.capture_rules
    earlier = identity.with_earlier_rules(first, 7)
    assert [(e.from_ts, e.rules) for e in earlier.capture_rules] == [(7, ("a.*",)), (20, ("b.*",))], "rules that came since are kept"
    assert [(e.from_ts, e.rules) for e in identity.with_earlier_rules(second, 8).capture_rules] == [(8, ("b.*",))]
    assert rules.same(None, only("*.*"))
    assert not rules.same(only("b.*"), identity.capture_rules[-1])


def test_tables_that_no_rule_wants_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"

    async def main() -> None:
        async with Playground(3, resolved_interval=0.1) as playground:
            playground.execute("create database d; create table d.a (id int primary key); create table d.b (id int primary key)")

            def fill(i: int) -> None:
                for table in ("a", "b"):
                    playground.execute(f"insert into d.{table} values ({i})")

            async with running(config(playground, log, rules=only("d.a*"))) as capture:
                fill(1)
                playground.execute("create table d.a2 (id int primary key); insert into d.a2 values (1)")
                playground.execute("create table d.c (id int primary key); insert into d.c values (1)")
                playground.execute("rename table d.c to d.a3; insert into d.a3 values (2)")
                playground.execute("rename table d.a2 to d.z; insert into d.z values (2)")
                await caught_up(capture, playground.cluster.oracle.next())
                assert len(capture.spans) == 2
            fill(2)  # while no capture runs
            async with running(config(playground, log, rules=only("d.b"))) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
                assert len(capture.spans) == 1
                fill(3)
                await caught_up(capture, playground.cluster.oracle.next())
            async with running(config(playground, log)) as capture:  # without rules: as the log has them
                fill(4)
                await caught_up(capture, playground.cluster.oracle.next())
                ask(capture.writer.storage, "again", "d.a")  # `tidemill resync`
                await until(lambda: (log / "snapshot/requests/again.json.done").exists())
                told = answered(capture.writer.storage, "again")
                assert told == {"error": "the rules of the capture leave out d.a: its changes are not in the log"}

    asyncio.run(main())
    found = counts(log)
    assert (found["a2"], found["a3"], found["c"]) == (1, 1, 0)
    assert found["z"] <= 1, "a row that comes before the span has ended may be there"
    assert 1 <= found["a"] <= 2
    assert found["b"] == 3, "the new rules hold from where the log ended before"
    assert [e["rules"] for e in json.loads((log / "log.json").read_text())["capture_rules"]] == [["d.a*"], ["d.b"]]
    assert verify(str(log)).is_whole

    sink = f"messages://{tmp_path}/out.jsonl?protocol=open-protocol"
    told = refused(capsys, "replay", "--log", str(log), "--sink-uri", sink)
    assert "Error TM:ErrNotCaptured" in told
    assert "wants d.b from" in told
    (tmp_path / "a.toml").write_text('[filter]\nrules = ["d.a"]\n')
    told = refused(capsys, "replay", "--log", str(log), "--sink-uri", sink, "--config", str(tmp_path / "a.toml"))
    assert "wants d.a from" in told, "up to the second rules it is all there, then no more"
    (tmp_path / "b.toml").write_text('[filter]\nrules = ["d.b"]\n')
    second = LogReader(log).identity.capture_rules[1].from_ts
    with pytest.raises(SystemExit, match="0"):
        cli(["replay", "--log", str(log), "--sink-uri", sink, "--config", str(tmp_path / "b.toml"), "--start-ts", str(second)])
    assert "3 rows" in capsys.readouterr().out


def test_a_feed_that_begins_with_the_tables_is_refused_before_it_delivers_them() -> None:
    """Rows as of the log's start come just before it: the rules of the start apply to them."""
    history = begun(0)
    identity = LogIdentity("1", 100, 1).with_rules(CaptureRules(100, ("d.other",)))
    with pytest.raises(NotCaptured, match=r"wants d\.t from 100 "):
        CoverageCheck(lambda: identity, lambda version: True).check(history, 99, 100)


@pytest.mark.parametrize(
    ("patterns", "sensitive", "wanted"),
    [
        (("D.T",), False, True),
        (("D.T",), True, False),
        (("d.t",), True, True),
        (("*.*", "!d.*"), False, False),
        (("*.*", "!D.*"), True, True),
        (("/^d$/.t",), False, True),
        (("/^D$/.t",), True, False),
    ],
)
def test_names_are_compared_as_a_changefeed_compares_them(patterns: tuple[str, ...], sensitive: bool, wanted: bool) -> None:
    (version,) = begun(0).snapshot(100).tables.values()
    entry = CaptureRules(0, patterns, sensitive)
    assert rules.wants_of(entry)(version) == wanted
    identity = LogIdentity("1", 100, 1).with_rules(CaptureRules(100, patterns, sensitive))
    check = CoverageCheck(lambda: identity, lambda version: True)
    if wanted:
        check.check(begun(0), 100, 101)
    else:
        with pytest.raises(NotCaptured, match=r"wants d\.t from 100 .*only tables of the rules"):
            check.check(begun(0), 100, 101)


def test_what_a_changefeed_misses_is_told_where_it_begins_to_miss_it() -> None:
    """Rules change at a ts: up to it all rows are there, from it on the changefeed is refused, with both ts in the message."""
    identity = LogIdentity("1", 100, 1).with_rules(CaptureRules(150, ("d.other",)))
    history = begun(0)
    history.advance([], 300)
    check = CoverageCheck(lambda: identity, lambda version: version.table == "t")
    check.check(history, 100, 150)
    with pytest.raises(NotCaptured, match=r"wants d\.t from 150 .*rules d\.other from 150 "):
        check.check(history, 150, 160)
    with pytest.raises(NotCaptured):
        check.check(history, 100, 151)


def test_rules_that_come_while_a_changefeed_runs_are_seen_by_its_next_batch() -> None:
    identities = [LogIdentity("1", 100, 1)]
    history = begun(0)
    history.advance([], 300)
    check = CoverageCheck(lambda: identities[-1], lambda version: True)
    check.check(history, 100, 110)
    identities.append(identities[0].with_rules(CaptureRules(120, ("d.other",))))
    check.check(history, 110, 120)
    with pytest.raises(NotCaptured, match="from 120 "):
        check.check(history, 120, 121)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[filter]\nrules = ["d.["]\n', "d.["),
        ('[filter]\nrules = "d.*"\n', "filter.rules"),
        ("[filter]\nrulez = []\n", "filter.rulez"),
        ("nothing = \n", "rules.toml"),
        (None, "rules.toml"),
    ],
)
def test_rules_that_cannot_be_read_end_the_start(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, said: str) -> None:
    """Before PD is asked anything; nothing is written."""
    file = tmp_path / "rules.toml"
    if text is not None:
        file.write_text(text)
    told = refused(capsys, "capture", "--pd", "127.0.0.1:1", "--log", str(tmp_path / "log"), "--config", str(file))
    assert "Error TM:ErrConfig" in told
    assert said in told
    assert not (tmp_path / "log").exists()


def test_tables_of_tidb_itself_are_never_captured(tmp_path: Path) -> None:
    """Whatever the rules say; and a table that is renamed out of the rules and back is there before, between only its DDLs, and after."""
    log = tmp_path / "log"

    async def main() -> None:
        async with Playground(3, resolved_interval=0.1) as playground:
            playground.execute("create database d; create table d.a (id int primary key); insert into d.a values (1)")
            start = playground.cluster.oracle.next()
            async with running(config(playground, log, start_ts=str(start), rules=only("*.*", "mysql.*", "!d.hidden"))) as capture:
                assert len(capture.spans) == 1
                playground.execute("insert into d.a values (2)")
                playground.execute("rename table d.a to d.hidden")
                await caught_up(capture, playground.cluster.oracle.next())
                assert len(capture.spans) == 0
                playground.execute("insert into d.hidden values (3)")
                playground.execute("rename table d.hidden to d.a")
                playground.execute("insert into d.a values (4)")
                await caught_up(capture, playground.cluster.oracle.next())
                assert len(capture.spans) == 1

    asyncio.run(main())
    found = counts(log)
    assert found["a"] == 2
    assert found["hidden"] <= 1
    assert set(found) <= {"a", "hidden"}
    assert verify(str(log)).is_whole
