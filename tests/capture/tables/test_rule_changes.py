"""A capture takes other tables while it runs: those that stay go on, those that come are whole from the ts that it reports, and nothing is
started again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.capture.captures import caught_up, config, log_changes, running, stored_changes, until
from tidemill.capture.capture import Capture
from tidemill.capture.rule_changes import Again, Numbered, Parts, RuleChanges, Wanted, command, report, rules_in
from tidemill.changelog.history import load_history
from tidemill.changelog.log_format import CaptureRules, LogIdentity
from tidemill.changelog.reader import LogReader
from tidemill.changelog.verify import verify
from tidemill.errors import MalformedMessage
from tidemill.playground.server import Playground


def only(*patterns: str) -> CaptureRules:
    return CaptureRules(0, patterns)


class Said:
    """The reports of a capture."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reports: list[Numbered] = []
        init = Capture.__init__

        def noted(capture: Capture, *args: Any) -> None:
            init(capture, *args, say=self.heard)

        monkeypatch.setattr(Capture, "__init__", noted)

    def heard(self, line: bytes) -> None:
        found = rules_in(line)
        assert found is not None
        self.reports.append(found)

    async def taken(self, number: int) -> int:
        """Wait for a report: the ts from which on the rules hold."""
        await until(lambda: bool(self.reports) and self.reports[-1].number >= number)
        return self.reports[-1].rules.from_ts


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_tables_come_and_go_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    log, said = tmp_path / "log", Said(monkeypatch)

    async def main() -> tuple[list[int], list[Any]]:
        async with Playground(3, resolved_interval=0.1, stores=2) as playground:
            playground.execute("create database d")
            for name in ("a", "b", "c"):
                playground.execute(f"create table d.{name} (id int primary key)")
            number = 0

            async def fill(rows: int = 5) -> None:
                nonlocal number
                for _ in range(rows):
                    number += 1
                    for name in ("a", "b", "c"):
                        playground.execute(f"insert into d.{name} (id) values ({number})")
                    await asyncio.sleep(0.02)

            settings = config(playground, log, rules=only("d.a", "d.c"), workers=workers, data_dir=tmp_path / "data")
            async with running(settings) as capture:
                await fill()
                filling = asyncio.ensure_future(fill(60))
                first = capture.pulling
                capture.wanted.ask(Numbered(1, only("d.a", "d.b")))
                since = await said.taken(1)
                playground.execute("create table d.b2 (id int primary key); insert into d.b2 values (1)")
                playground.execute("alter table d.b add column x int")
                capture.wanted.ask(Numbered(2, only("d.a", "d.b*")))
                later = await said.taken(2)
                await filling
                assert (capture.pulling is first) == (workers == 1), "groups are started again"
                capture.wanted.ask(Numbered(3, only("d.a", "d.b*")))
                assert await said.taken(3) == later, "nothing is new"
                await caught_up(capture, playground.cluster.oracle.next())
                await until(lambda: capture.resolved_ts > later)
                assert len(capture.spans) == (3 if workers == 1 else 0), "d.a, d.b and d.b2; groups have theirs"
            end = playground.cluster.oracle.next()
            return [since, later, end], stored_changes(playground.cluster, 0, end)

    (since, later, _), stored = asyncio.run(main())
    reader = LogReader(log)
    history, end = load_history(reader), reader.resolved_ts()
    assert [(entry.rules, entry.from_ts) for entry in reader.identity.capture_rules[1:]] == [
        (("d.a", "d.b"), since),
        (("d.a", "d.b*"), later),
    ]
    ids = {version.table: version.table_id for version in history.snapshot(end).tables.values()}
    wanted = {ids["a"]: reader.start_ts, ids["b"]: since, ids["b2"]: later}
    kept = {
        table: sorted((row.commit_ts, row.key) for rows in log_changes(log).values() for row in rows if row.table_id == table)
        for table in ids.values()
    }
    for table, begin in wanted.items():
        whole = sorted((row.commit_ts, row.key) for row in stored if row.table_id == table and begin < row.commit_ts <= end)
        assert [row for row in kept[table] if row[0] > begin] == whole
    assert len(kept[ids["b"]]) > 0
    assert not [row for row in kept[ids["b"]] if row[0] <= reader.start_ts]
    assert verify(str(log)).is_whole


class Stream:
    """A schema stream that may be late to stop."""

    def __init__(self, late: int) -> None:
        self.late, self.ts, self.frozen = late, 100 << 18, list[int | None]()
        self.moved, self.identity = asyncio.Event(), LogIdentity("1", 5, 2)
        self.taken: list[tuple[str, int]] = []

    def parts(self, *, groups: bool = False) -> Parts:
        async def now() -> int:
            return self.ts

        async def write(entry: CaptureRules) -> None:
            self.taken.append(("written", entry.from_ts))
            self.identity = self.identity.with_rules(entry)

        def take(entry: CaptureRules) -> None:
            self.taken.append(("taken", entry.from_ts))

        return Parts(lambda: self.identity, lambda: self.ts, self.freeze, self.moved, now, write, None if groups else take)

    def freeze(self, ts: int | None) -> None:
        self.frozen.append(ts)
        if ts is not None:
            asyncio.get_running_loop().call_soon(self._arrive, ts)

    def _arrive(self, ts: int) -> None:
        self.ts, self.late = ts + min(self.late, 1), self.late - 1
        self.moved.set()


def changed(stream: Stream, **more: bool) -> list[Numbered]:
    """What is reported of one change."""
    reports: list[Numbered] = []

    async def main() -> None:
        wanted = Wanted(None, 0, lambda line: reports.append(rules_in(line) or Numbered(0, only())))
        wanted.ask(Numbered(7, only("a.*")))
        changes = asyncio.ensure_future(RuleChanges(wanted, stream.parts(**more), asyncio.Lock()).run())
        await until(lambda: bool(reports) or changes.done())
        changes.cancel()
        await asyncio.gather(changes, return_exceptions=True)
        if not changes.cancelled() and changes.exception() is not None:
            raise changes.exception() or Again

    asyncio.run(main())
    return reports


def test_rules_hold_from_where_the_schema_has_stopped() -> None:
    stream = Stream(late=0)
    (said,) = changed(stream)
    at = stream.ts
    assert (said.number, said.rules) == (7, CaptureRules(at, ("a.*",)))
    assert (stream.taken, stream.frozen) == ([("written", at), ("taken", at)], [at, None])


def test_a_stream_that_had_passed_the_ts_is_stopped_later() -> None:
    stream = Stream(late=2)
    (said,) = changed(stream)
    assert said.rules.from_ts == stream.ts
    assert len(stream.taken) == 2
    first, gone, second, again, third, end = stream.frozen
    assert (gone, again, end) == (None, None, None)
    assert (first or 0) < (second or 0) < (third or 0) == stream.ts


def test_groups_begin_again() -> None:
    stream = Stream(late=0)
    with pytest.raises(Again):
        changed(stream, groups=True)
    assert stream.frozen == []


def test_lines_are_read_as_they_were_written() -> None:
    said = Numbered(3, CaptureRules(9, ("a.*", "!a.x"), case_sensitive=True))
    assert rules_in(command(said)) == rules_in(report(said)) == said
    assert rules_in(b'{"do":"log","level":"debug"}') is None
    for line in (b"nonsense", b"[]", b'{"do":"rules"}', json.dumps({"is": "rules", "number": "x", "rules": {}}).encode()):
        with pytest.raises(MalformedMessage):
            rules_in(line)
