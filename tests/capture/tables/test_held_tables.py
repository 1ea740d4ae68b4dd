"""Held tables are reported: by what, since when, how far. Tables that advance are not."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.capture.captures import caught_up, compare, config, running, until
from tests.support.capture.fleet import Fleet
from tests.support.capture.loops import run
from tests.support.capture.progress import key_of, playground_table, tables_apart
from tidemill.capture import status as capture_status
from tidemill.capture.capture import Capture
from tidemill.capture.status import CaptureStatus, LogHold, Section
from tidemill.capture.tikv.watchdog.held import TOLD, HeldTables, Lagging
from tidemill.cli.changefeeds import status as status_verb
from tidemill.playground.server import Playground
from tidemill.playground.store.feed import region_not_found


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status is renewed often."""
    monkeypatch.setattr("tidemill.capture.capture.STATUS_EVERY", 0.1)


def named(capture: Capture) -> set[str]:
    return {one["table"].split(" ")[0] for one in capture.status.held_tables}


def test_a_table_is_told_by_its_slowest_range_and_its_time_goes_on_through_new_subscriptions() -> None:
    tables = HeldTables(after=10)
    assert tables.look([Lagging(1, 11, 100, 0.0), Lagging(1, 12, 90, 0.0), Lagging(2, 21, 95, 0.0)], 0.0) == []
    again = [Lagging(1, 13, 90, 0.0), Lagging(1, 11, 100, 5.0), Lagging(2, 21, 99, 0.0)]
    (held,) = tables.look(again, 10.0)
    assert (held.span, held.sub_range, held.resolved, held.seconds, held.ranges) == (1, 13, 90, 10.0, 2)
    assert tables.look([Lagging(1, 13, 91, 0.0)], 11.0) == [], "it moves"
    (held,) = tables.look([Lagging(1, 13, 91, 1.0), Lagging(3, 31, 40, 25.0)], 12.0)
    assert (held.span, held.seconds) == (3, 25.0), "it stood still before anybody looked"


def test_of_tables_at_one_ts_the_ones_with_a_cause_come_first() -> None:
    """A store sends the minimum of a group of regions: the table with the lock is listed before those that it holds."""
    tables = HeldTables(after=1)
    together = [Lagging(span, span, 50, 5.0, span == 70) for span in range(1, 2 * TOLD)]
    held = tables.look(together, 5.0)
    assert len(held) == TOLD
    assert held[0].span == 70


def test_the_slowest_ranges_are_found_among_many() -> None:
    fleet = Fleet(5000)
    fleet.pass_time(20, still=(7, 4000))
    fleet.subs["resolved"][9] = 3
    fleet.pass_time(1, still=(7, 4000))
    behind, slowest = fleet.watch.behind(119, fleet.now, 2)
    assert behind == 3
    assert {sub_range for sub_range, _, _ in slowest} <= {8, 4001, 10}
    behind, slowest = fleet.watch.behind(119, fleet.now, 1000)
    assert {(sub_range, resolved) for sub_range, resolved, _ in slowest} == {(8, 100), (4001, 100), (10, 4)}
    assert fleet.watch.newest() == 121


def test_a_stuck_region_names_its_table_and_no_other(tmp_path: Path) -> None:
    """The region of one table falls silent. That table is reported. A table in another partition of the log, and one beside it, are not,
    and the partition of the other advances."""

    async def main() -> None:
        async with Playground(41, stores=2, resolved_interval=0.1) as playground:
            held, beside, other = tables_apart(playground, ("a", 0), ("b", 0), ("c", 1))
            settings = config(playground, tmp_path / "log", partitions=2, stuck_after=600.0)
            async with running(settings) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
                capture.pulling.watchdog._held.after = 1.0
                region = playground.cluster.regions.at(key_of(held))
                playground.cluster.feeds.mute(region.id)
                playground.execute("insert into a values (1)")
                await until(lambda: "test.a" in named(capture))
                assert named(capture) == {"test.a"}
                (one,) = capture.status.held_tables
                assert (one["partition"], one["region"], one["phase"], one["ranges"]) == (0, region.id, "live", 1)
                assert one["resolved_ts"] <= capture.status.heads[0] + 1
                assert one["behind_s"] >= 1
                ts = playground.cluster.oracle.next()
                playground.execute("insert into c values (1)")
                await until(lambda: capture.status.heads[1] >= ts)
                assert capture.status.heads[0] < ts
                samples = [s for s in capture._samples() if s.name == "tidemill_capture_table_held_seconds"]
                assert [s.labels["table"].split(" ")[0] for s in samples] == ["test.a"]
                page = "\n".join(status_verb.summary(capture.status.as_dict()))
                assert "held up    partition 0: test.a (" in page
                playground.feeds[region.leader.store_id].break_streams()  # it is subscribed again, and heard again
                await caught_up(capture, ts)
                await until(lambda: not capture.status.held_tables)
            assert beside != other
            compare(playground.cluster, tmp_path / "log")

    run(main())


@pytest.mark.slow
def test_a_lock_and_a_range_without_a_subscription_are_causes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.capture.tikv.watchdog.act.FENCE_MS", 500)

    async def main() -> None:
        async with Playground(42, resolved_interval=0.1) as playground:
            locked, gone = tables_apart(playground, ("t", 0), ("u", 1))
            playground.execute("insert into t values (1)")
            key = next(k for k, _ in playground.cluster.mvcc.items(b"t", b"u") if k[1:9] == playground_table(playground))
            async with running(config(playground, tmp_path / "log", partitions=2, stuck_after=1.5)) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
                pending = playground.cluster.prewrite([(key, playground.cluster.mvcc.get(key, 1 << 62))], ttl_ms=3_600_000)
                region = playground.cluster.regions.at(key_of(gone))
                feeds, check = playground.cluster.feeds, playground.cluster.feeds._check
                with monkeypatch.context() as away:
                    away.setattr(feeds, "_check", lambda s, r: region_not_found(r.region_id) if r.region_id == region.id else check(s, r))
                    feeds.fail_region(region.id, region_not_found(region.id))
                    found: dict[str, dict[str, object]] = {}

                    def both() -> bool:
                        found.update({one["table"].split(" ")[0]: one for one in capture.status.held_tables})
                        return found.get("test.t", {}).get("cause") == "lock" and "test.u" in found

                    await until(both)
                assert found["test.t"]["resolved_ts"] == pending.start_ts
                assert (found["test.u"]["cause"], found["test.u"]["last_error"]) == ("not subscribed", "region_not_found")
                assert locked != gone
                playground.cluster.commit(pending)
                await caught_up(capture, playground.cluster.oracle.next())
            compare(playground.cluster, tmp_path / "log")

    run(main())


def test_the_held_tables_of_groups_come_together() -> None:
    status = CaptureStatus()
    one = {"table": "test.a (1)", "partition": 0, "cause": "lock", "seconds": 12.0, "resolved_ts": 7, "group": 0, "host": "h"}
    sections = [Section(held_tables=[one], ranges_behind=2), Section(held_tables=[one | {"resolved_ts": 5, "group": 1}], ranges_behind=1)]
    status.take(sections)
    assert [held["group"] for held in status.held_tables] == [1, 0]
    assert status.ranges_behind == 3
    assert Section.from_dict({"held_tables": [one]}).held_tables == [one]


@pytest.mark.parametrize(
    ("said", "held_at", "cause", "line"),
    [
        (
            {"storage": {"message": "m", "seconds": 9.0}, "paused": "storage is away"},
            None,
            "storage away",
            "the log: its storage is away; at 100 ",
        ),
        ({"paused": "disk low"}, None, "paused", "the log: the capture pauses; at 100 "),
        ({}, 100, "layout change", "the log: its layout is about to change; at 100 "),
        ({}, 101, "sealing", "the log: rows are sealed more slowly than they come; at 100 "),
    ],
)
def test_what_holds_the_whole_log_is_a_cause(said: dict[str, Any], held_at: int | None, cause: str, line: str) -> None:
    """All regions are further than the log, and the log does not move."""
    region = {"table": "test.a (1)", "phase": "live", "resolved_ts": 120, "seconds": 0.3}
    status = CaptureStatus(**said)
    status.refresh(100)
    status.resolved_time = "100 (then)"
    status.take([Section(slowest=[region])])
    status.paused = said.get("paused", "")
    hold = LogHold()
    assert hold.look(status, held_at, 0.0) == region, "it moved just now"
    found = hold.look(status, held_at, 12.0)
    assert (found["cause"], found["resolved_ts"], found["seconds"]) == (cause, 100, 12.0)
    status.holding = found
    (told,) = [one for one in status_verb.summary(status.as_dict()) if one.startswith("held by")]
    assert told.startswith(f"held by    {line}")
    status.holding = region | {"resolved_ts": 100}
    assert hold.look(status, held_at, 13.0) == status.holding, "a region holds it"


def test_a_layout_that_is_about_to_change_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All partitions of a running capture wait at one ts: no region is the cause."""
    monkeypatch.setattr(capture_status, "LOG_HELD_S", 0.5)

    async def main() -> None:
        async with Playground(43, resolved_interval=0.1) as playground:
            playground.execute("create table test.a (id int primary key)")
            async with running(config(playground, tmp_path / "log", partitions=2)) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
                held_at = playground.cluster.oracle.next() + (1000 << 18)
                capture.pulling.freeze_at(held_at)
                await until(lambda: capture.status.holding.get("cause") == "layout change")
                assert capture.status.holding["resolved_ts"] == held_at
                assert "table" not in capture.status.holding
                capture.pulling.freeze_at(None)
                await caught_up(capture, playground.cluster.oracle.next())
                await until(lambda: capture.status.holding.get("cause") != "layout change")

    run(main())


def test_counts_say_since_when() -> None:
    """A capture that begins again with another layout of the log counts from 0 again."""
    status = CaptureStatus(state="running")
    status.take([Section(rows=5, segments=1, counted_since=2000.0), Section(rows=2, segments=1, counted_since=1000.0)])
    (line,) = [one for one in status_verb.summary(status.as_dict()) if one.startswith("rows")]
    since = datetime.fromtimestamp(1000.0).astimezone().isoformat(" ", "seconds")
    assert line == f"rows       7 in 2 segments since the capture started at {since}"


def test_many_held_tables_are_not_all_shown() -> None:
    one = {"table": "test.a (1)", "partition": 0, "cause": "scanning", "ranges": 1}
    lines = status_verb.held_lines([one] * 15)
    assert len(lines) == 11
    assert "and 5 tables more" in lines[-1]


def test_partitions_that_are_apart_are_told() -> None:
    second = 1000 << 18
    heads = [1000 * second, 1100 * second]
    held = [{"table": "test.a (1)", "partition": 0}]
    lines = status_verb.partition_lines({"heads": heads, "held_tables": held})
    assert "100.0 s behind" in lines[0]
    assert "1 table is held up" in lines[0]
    assert "behind" not in lines[1]
    assert status_verb.partition_lines({"heads": [heads[1], heads[1] - second]}) == []
