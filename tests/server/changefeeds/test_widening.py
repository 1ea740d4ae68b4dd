"""A changefeed at a given ts, for tables that no changefeed wanted so far: `cdc cli` always sends the ts that it asked for a moment ago."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.changelog.conftest import META
from tests.support.server.fake_world import NOW, START, World
from tidemill.capture.initial_load import answer, requests
from tidemill.capture.rule_changes import Numbered
from tidemill.capture.rules import settle
from tidemill.changelog.log_format import CaptureRules, LogIdentity
from tidemill.changelog.storage.open import LocalStorage
from tidemill.changelog.writer import LogWriter
from tidemill.errors import ClusterMismatch, SinkUnavailable
from tidemill.server import service as s
from tidemill.server.changefeeds import capture_control
from tidemill.server.errors import StartTsBeforeLog, StorageAway
from tidemill.tso import compose

SECOND = compose(1000)


class OneTable:
    """The schemas of a cluster that has b.x."""

    def __init__(self) -> None:
        self.tables = {1: SimpleNamespace(schema="b", table="x", info=SimpleNamespace(has_rows=True, has_usable_key=True, partition=None))}
        self.tables[1].table_id, self.tables[1].physical_ids = 1, (1,)

    def snapshot(self, ts: int) -> OneTable:
        return self


class WithLog:
    """A server whose log has the tables a.* so far, with a capture that takes others when it is told to."""

    def __init__(self, folder: Path, complete_to: int) -> None:
        """`complete_to`: how far the log is complete when the capture is told."""
        self.complete_to = complete_to
        rules = (CaptureRules(START - SECOND, ("a.*",)),)
        where = LocalStorage(str(folder / "log"), sync=False)
        self.writer = LogWriter.create(where, LogIdentity("7", START - SECOND, 1, capture_rules=rules), snapshot=META)
        self.world = World(folder)
        self.world.processes.take_rules = self._take  # type: ignore[method-assign]
        self.world.upstream.schemas = self._schemas  # type: ignore[method-assign]
        self.backfills: dict[str, object] = {}
        self.asked: list[int] = []
        self._answering = asyncio.ensure_future(self._answer())

    async def _answer(self) -> None:
        """As the capture, answer requests for what tables changed before it took them."""
        while True:
            for request in requests(self.writer.storage):
                self.asked.append(request.from_ts)
                answer(self.writer.storage, request, **self.backfills)
            await asyncio.sleep(0.01)

    async def _schemas(self, ts: int) -> OneTable:
        return OneTable()

    def _take(self, asked: Numbered) -> Numbered:
        settle(self.writer, asked.rules, self.complete_to)
        return Numbered(asked.number, self.writer.identity.capture_rules[-1])

    @property
    def rules(self) -> list[str]:
        assert self.world.processes.rules is not None
        return list(self.world.processes.rules.rules)

    async def create(self, name: str, rule: str, start_ts: int | None, sink: str = "blackhole://") -> s.ChangefeedInfo:
        wanted = s.NewChangefeed(sink, name, start_ts=start_ts, replica_config={"filter": {"rules": [rule]}})
        return (await self.world.manager.create(wanted)).info


def run(folder: Path, work: Callable[[WithLog], Awaitable[Any]], complete_to: int = NOW - SECOND) -> None:
    async def served() -> None:
        there = WithLog(folder, complete_to)
        async with there.world:
            await there.create("first", "a.*", START)
            await work(there)

    asyncio.run(served())


def test_the_capture_takes_the_tables_at_once_and_the_changefeed_begins_where_it_asked(tmp_path: Path) -> None:
    async def work(there: WithLog) -> None:
        info = await there.create("second", "b.*", NOW - SECOND)
        assert (info.start_ts, there.rules, there.world.processes.changes) == (NOW - SECOND, ["a.*", "b.*"], 1)

    run(tmp_path, work)


def test_the_capture_reads_what_the_log_has_passed(tmp_path: Path) -> None:
    async def work(there: WithLog) -> None:
        there.backfills = {"ts": NOW - 2 * SECOND}
        info = await there.create("second", "b.*", NOW - 2 * SECOND)
        assert (info.start_ts, there.rules, there.world.processes.changes) == (NOW - 2 * SECOND, ["a.*", "b.*"], 1)
        assert there.asked == [NOW - 2 * SECOND]

    run(tmp_path, work)


@pytest.mark.parametrize("answered", [{"ts": START}, {"error": "a store is down"}])
def test_a_changefeed_that_wants_more_when_it_goes_on(
    tmp_path: Path, answered: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    async def work(there: WithLog) -> None:
        there.backfills = answered
        manager = there.world.manager
        await manager.pause("first")
        there.world.says("ended", how="stopped", checkpoint_ts=START + 5)
        await manager.update("first", s.ChangefeedUpdate(replica_config={"filter": {"rules": ["a.*", "b.*"]}}))
        await manager.resume("first")
        assert (there.rules, there.world.processes.changes, there.asked) == (["a.*", "b.*"], 1, [START + 5])
        assert ("without all its tables: a store is down" in caplog.text) is ("error" in answered)
        there.world.processes.lost("killed", True)
        await manager.pause("first")

    run(tmp_path, work)


def test_one_that_cannot_be_read_is_refused_and_begins_when_it_is_created_later(tmp_path: Path) -> None:
    async def work(there: WithLog) -> None:
        there.backfills = {"error": "a store is down"}
        with pytest.raises(
            StartTsBeforeLog, match=rf"does not have b\.x from .*complete up to {NOW - SECOND} .*; a store is down"
        ) as refused:
            await there.create("second", "b.*", NOW - 2 * SECOND)
        assert str(NOW - SECOND) in refused.value.hint
        assert (await there.create("second", "b.*", NOW - SECOND)).start_ts == NOW - SECOND
        assert (there.rules, there.world.processes.changes) == (["a.*", "b.*"], 1), "the capture went on taking them"

    run(tmp_path, work)


def test_one_whose_sink_is_refused_finds_its_tables_in_the_log_the_second_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(there: WithLog) -> None:
        def refuses(sink: object) -> None:
            raise SinkUnavailable("no broker answers")

        monkeypatch.setattr(capture_control, "WIDE_S", -1.0)
        monkeypatch.setattr("tidemill.server.changefeeds.operations.check_sink_reachable", refuses)
        with pytest.raises(StorageAway, match=r"^no broker"):
            await there.create("second", "b.*", NOW - SECOND)
        assert there.rules == ["a.*", "b.*"]
        await there.world.manager.capture.narrow()
        assert (there.rules, there.world.processes.changes) == (["a.*"], 2)

    run(tmp_path, work)


def test_what_is_wanted_no_more_is_taken_no_more(tmp_path: Path) -> None:
    async def work(there: WithLog) -> None:
        await there.create("second", "b.*", NOW - SECOND)
        there.world.processes.lost("killed", True)
        await there.world.manager.remove("second")
        assert (there.rules, there.world.processes.changes) == (["a.*"], 2)

    run(tmp_path, work)


def test_a_ts_whose_history_is_collected_names_the_safe_point(tmp_path: Path) -> None:
    async def work(there: WithLog) -> None:
        safe_point = await there.world.upstream.pd.gc_safe_point()
        for rule in ("a.*", "b.*"):
            with pytest.raises(StartTsBeforeLog, match=f"GC safe point {safe_point} "):
                await there.create("second", rule, safe_point - 1)
        with pytest.raises(StartTsBeforeLog, match=f"GC safe point {safe_point} "):
            await there.world.manager.table_lists({}, 1)

    run(tmp_path, work)


def test_a_ts_before_the_cluster_is_refused_as_one_that_is_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that has never collected anything has no safe point."""

    async def work(there: WithLog) -> None:
        async def schemas(ts: int) -> OneTable:
            if ts < START:
                raise ClusterMismatch("cluster 7 has no schemas outside of keyspaces")
            return OneTable()

        async def none() -> int:
            return 0

        upstream = there.world.upstream
        monkeypatch.setattr(upstream, "schemas", schemas)
        monkeypatch.setattr(upstream.pd, "gc_safe_point", none)
        with pytest.raises(StartTsBeforeLog, match="the cluster had no tables"):
            await there.world.manager.table_lists({}, 1)

    run(tmp_path, work)


def test_one_without_a_ts_begins_when_the_log_has_its_tables(tmp_path: Path) -> None:
    async def work(there: WithLog) -> None:
        info = await there.create("second", "b.*", None)
        assert (info.start_ts, there.world.processes.changes) == (NOW + SECOND, 1)

    run(tmp_path, work, NOW + SECOND)
