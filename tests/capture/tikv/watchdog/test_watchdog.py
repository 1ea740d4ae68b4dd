"""Regions that are silent or frozen are found, named, and subscribed again alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.capture.captures import caught_up, compare, config, running, until
from tests.support.capture.fleet import Fleet
from tests.support.capture.loops import run
from tidemill.capture.tikv.feed.base import Transport
from tidemill.capture.tikv.locks import Found
from tidemill.capture.tikv.model import Region
from tidemill.capture.tikv.regions.actions import Span
from tidemill.capture.tikv.regions.state import SubRange
from tidemill.capture.tikv.watchdog.act import Watchdog
from tidemill.capture.tikv.watchdog.causes import Cause
from tidemill.capture.tikv.watchdog.detect import Survey
from tidemill.cli.changefeeds import status as status_verb
from tidemill.kernels.receive.layout import DEAD
from tidemill.playground.server import Playground
from tidemill.playground.store.feed import region_not_found


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status is renewed often."""
    monkeypatch.setattr("tidemill.capture.capture.STATUS_EVERY", 0.1)


def test_silent_and_frozen_are_told_apart() -> None:
    fleet = Fleet(6)
    fleet.pass_time(11, quiet=(0,), still=(1, 2))
    assert fleet.stuck() == {1: Cause.SILENT}
    fleet.pass_time(15, quiet=(0,), still=(1, 2))
    assert fleet.stuck() == {1: Cause.SILENT, 2: Cause.FROZEN, 3: Cause.FROZEN}
    (first, *_) = fleet.watch.holders(fleet.now)
    assert (first.partition, first.sub_range, first.resolved) == (0, 1, 100)
    assert first.seconds >= 24
    assert {p for p, _ in fleet.watch.lagging(120, fleet.now, 4)} == {1, 2, 3}
    fleet.pass_time(1)
    assert fleet.stuck() == {}


def test_scans_and_placeholders_have_their_own_patience() -> None:
    fleet = Fleet(3)
    fleet.subs["initialized"][0] = 0
    fleet.subs["state"][1] = DEAD
    fleet.pass_time(50, quiet=(0, 1))
    assert fleet.stuck() == {}
    fleet.pass_time(60, quiet=(0, 1))
    assert fleet.stuck() == {1: Cause.SCANNING}
    assert {h.sub_range for h in fleet.watch.holders(fleet.now)} == {1, 2}, "a gap holds the watermark as well"


def test_a_new_subscription_of_an_old_place_begins_anew() -> None:
    fleet = Fleet(2)
    fleet.pass_time(19, still=(0,))
    fleet.subs["sub_range"][0] = 77
    fleet.pass_time(5, still=(0,))
    assert fleet.stuck() == {}


def test_time_goes_on_through_new_subscriptions() -> None:
    """A sub-range that is subscribed again every second without success holds the resolved ts since the first time."""
    fleet = Fleet(4)
    fleet.pass_time(3)
    for sub_range in range(100, 130):
        fleet.subs["sub_range"][0] = sub_range
        fleet.pass_time(1, quiet=(0,))
        (first, *_) = fleet.watch.holders(fleet.now)
        assert first.sub_range == sub_range
    assert first.seconds >= 29
    fleet.pass_time(1)
    (first, *_) = fleet.watch.holders(fleet.now)
    assert first.seconds <= 1


def test_our_own_sleep_is_nobodys_fault() -> None:
    fleet = Fleet(4)
    fleet.pass_time(3)
    fleet.now += 500  # the machine was suspended
    fleet.watch.look(Survey(fleet.subs.copy(), int(fleet.now * 1000)), fleet.now)
    assert fleet.stuck() == {}
    fleet.pass_time(12, quiet=(0,))
    assert fleet.stuck() == {1: Cause.SILENT}


@pytest.mark.parametrize("transport", Transport)
def test_a_silent_region_is_subscribed_again_alone(tmp_path: Path, transport: Transport) -> None:
    """A store forgets one subscription: no row is lost, and no other region is subscribed again."""

    async def main() -> None:
        async with Playground(8, stores=2, resolved_interval=0.1) as playground:
            playground.execute("create table t (id int primary key, v varchar(20)); create table u (id int primary key)")
            playground.execute("insert into t values (1, 'a'); insert into u values (1)")
            settings = config(playground, tmp_path / "log", stuck_after=1.5, transport=transport, status_addr="127.0.0.1:0")
            async with running(settings) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
                feeds = playground.cluster.feeds
                (table,) = [t for t in playground.database.catalog.tables.values() if t.name == "t"]
                region = playground.cluster.regions.at(b"t" + (table.model.id + (1 << 63)).to_bytes(8, "big") + b"_r")
                others = {s for stream in feeds.streams for s in stream.subscriptions.values() if s.region_id != region.id}
                feeds.mute(region.id)
                playground.execute("insert into t values (2, 'b'); insert into u values (2)")
                ts = playground.cluster.oracle.next()
                await until(lambda: bool(capture.status.stuck) or capture.status.regions_renewed > 0)
                await caught_up(capture, ts)
                assert capture.status.regions_renewed >= 1
                assert capture.pulling.machine.errors == {"frozen": capture.status.regions_renewed}
                assert all(s.alive for s in others), "they went on undisturbed"
            compare(playground.cluster, tmp_path / "log")

    run(main())


def test_a_stream_of_which_nothing_is_heard_is_opened_anew(tmp_path: Path) -> None:
    async def main() -> None:
        async with Playground(9, stores=1, resolved_interval=0.1) as playground:
            playground.execute("create table t (id int primary key); create table u (id int primary key)")
            async with running(config(playground, tmp_path / "log", stuck_after=1.5)) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
                feeds = playground.cluster.feeds
                before = set(feeds.streams)
                for region in playground.cluster.regions:
                    feeds.mute(region.id)
                playground.execute("insert into t values (1); insert into u values (1)")
                await caught_up(capture, playground.cluster.oracle.next())
                assert not before & feeds.streams
                assert capture.pulling.machine.errors.keys() == {"stream"}
            compare(playground.cluster, tmp_path / "log")

    run(main())


def test_a_region_that_no_store_takes_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store answers region_not_found forever: the status says so, for which range, and since when; then it recovers."""
    monkeypatch.setattr("tidemill.capture.tikv.regions.state.RECOVERED", 1.0)

    async def main() -> None:
        async with Playground(10, resolved_interval=0.1) as playground:
            playground.execute("create table t (id int primary key); insert into t values (1)")
            async with running(config(playground, tmp_path / "log", stuck_after=1.5)) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
                (table,) = [t for t in playground.database.catalog.tables.values() if t.name == "t"]
                region = playground.cluster.regions.at(b"t" + (table.model.id + (1 << 63)).to_bytes(8, "big") + b"_r")
                feeds = playground.cluster.feeds
                check = feeds._check
                with monkeypatch.context() as gone:
                    gone.setattr(feeds, "_check", lambda s, r: region_not_found(r.region_id) if r.region_id == region.id else check(s, r))
                    feeds.fail_region(region.id, region_not_found(region.id))
                    playground.execute("insert into t values (2)")
                    await until(lambda: any(s["cause"] == "not subscribed" for s in capture.status.stuck))
                    holding = capture.status.holding
                    assert holding["last_error"] == "region_not_found"
                    assert holding["table"].startswith("test.t ")
                    assert holding["seconds"] >= 1.5
                    assert "has had no subscription for" in caplog.text
                    assert "not subscribed: region_not_found" in "\n".join(status_verb.summary(capture.status.as_dict()))
                await caught_up(capture, playground.cluster.oracle.next())
                await until(lambda: not capture.status.stuck)
            compare(playground.cluster, tmp_path / "log")

    run(main())


def test_the_status_verb_names_what_holds_the_watermark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = {
        "table": "test.t (104)", "phase": "live", "region": 7, "store": 2, "store_address": "10.0.0.2:20160", "resolved_ts": 5,
        "resolved_time": "5 (then)", "since": "2026-11-21T12:00:00+00:00", "seconds": 61.0, "start_key": "74", "end_key": "75",
        "lock": {"start_ts": 6, "key": "7480", "table": "test.t (104)", "primary": "7481", "ttl_ms": 1, "async_commit": False},
    }  # fmt: skip
    told = {"state": "running", "pid": 1, "holding": where, "stuck": [{"cause": "frozen", **where}], "regions": {"live": 3}}
    (tmp_path / "status.json").write_text(json.dumps(told))
    status_verb.command(log=None, data_dir=tmp_path, status_addr=None, as_json=False)
    text = capsys.readouterr().out
    for part in ("region 7 at store 2 10.0.0.2:20160", "test.t (104)", "locked by the transaction 6", "7480", "since 2026-11-21T12:00:00"):
        assert part in text
    status_verb.command(log=None, data_dir=tmp_path, status_addr=None, as_json=True)
    assert json.loads(capsys.readouterr().out) == told


def test_a_region_that_is_lost_while_others_are_searched_for_locks() -> None:
    """The search uses the region as it was: a sub-range without a region when its turn comes ends nothing."""
    sub_ranges = {i: SubRange(i, Span(i, b"", b"", 0, 0, "t"), b"", b"", 0, region=Region(i, b"", b"", 1, 1, None)) for i in range(1, 20)}
    puller: Any = SimpleNamespace(pd=None, machine=SimpleNamespace(sub_range=sub_ranges.get))
    dog = Watchdog(puller, SimpleNamespace(), lambda _: None, 1)  # type: ignore[arg-type]
    searched = []

    async def resolve(*_: object) -> Found:
        searched.append(len(searched))
        for sub_range in sub_ranges.values():
            sub_range.region = None  # their stream is broken
        await asyncio.sleep(0)
        return Found()

    dog.watch = SimpleNamespace(lagging=lambda *_: [(i, 1) for i in sub_ranges])  # type: ignore[assignment]
    dog._resolver = SimpleNamespace(resolve=resolve)  # type: ignore[assignment]
    run(dog._search_locks(1 << 60, 1e6))
    assert len(searched) == len(sub_ranges)
