"""The GC barrier at PD when things go wrong: G-4 and G-6."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest

from tests.support.capture.captures import caught_up, compare, config, running, until
from tests.support.servers.s3 import make_bucket, s3_server  # noqa: F401
from tidemill import tso
from tidemill.capture.capture import Capture
from tidemill.capture.tikv import gc
from tidemill.capture.tikv.watchdog.gc_patience import GcPatience
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import LocalStorage
from tidemill.changelog.verify import verify
from tidemill.errors import DiskLow, GcTtlExceeded, LogError, LogLocked, SchemaError, StartTsBeforeGc
from tidemill.playground.server import Playground
from tidemill.tidb.schema.tracking.history import SchemaHistory

IN_GROUPS_TOO = pytest.mark.thorough("groups with one kind of head.json, and one process with each, are in `make test`")


def test_g4_a_pd_that_is_away_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PD refuses the barrier for a while: the capture continues, and the barrier follows the log again when PD is back."""
    monkeypatch.setattr(gc, "PERIOD", 0.2)

    async def main() -> None:
        async with Playground(31, resolved_interval=0.1) as playground:
            playground.execute("create table t (id int primary key)")
            async with asyncio.timeout(600), running(config(playground, tmp_path / "log")) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
                capture.pd.retry_s = 0.2
                real, refused = capture.pd.update_service_safe_point, asyncio.Event()

                async def refuse(*_: object) -> tuple[str, int]:
                    refused.set()
                    raise gc.UpstreamError("PD has no leader")

                monkeypatch.setattr(capture.pd, "update_service_safe_point", refuse)
                monkeypatch.setattr(capture.pd, "set_gc_barrier", refuse)
                held = capture.safe_point.safe_point
                await refused.wait()
                playground.execute("insert into t values (1)")
                ts = playground.cluster.oracle.next()
                await caught_up(capture, ts)
                assert capture.safe_point.safe_point == held
                monkeypatch.setattr(capture.pd, "update_service_safe_point", real)
                await until(lambda: capture.safe_point.safe_point >= ts - 1)

    asyncio.run(main())


@pytest.mark.parametrize("barriers", [False, True], ids=["safe points", "barriers"])
def test_a_capture_that_was_away_for_too_long_says_what_is_lost(tmp_path: Path, barriers: bool) -> None:
    """The barrier has expired and TiDB has collected: the log is not continued as if nothing had happened, and stays as it was."""

    async def main() -> None:
        async with Playground(33, resolved_interval=0.1, gc_barriers=barriers) as playground:
            points = playground.cluster.safe_points
            playground.execute("create table t (id int primary key)")
            settings = config(playground, tmp_path / "log")
            async with running(settings) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
                service = capture.safe_point.service_id.encode()
            end = LogReader(tmp_path / "log").resolved_ts()
            playground.execute("insert into t values (1)")
            now = playground.cluster.oracle.next()
            assert points.advance_gc(now) < end, "it is held for a capture that is down"
            async with running(settings) as capture:  # back in time
                await caught_up(capture, now)
            end = LogReader(tmp_path / "log").resolved_ts()
            points.update(service, 0, 0)  # as when its TTL is over
            collected = points.advance_gc(playground.cluster.oracle.next())
            with pytest.raises(StartTsBeforeGc) as caught:
                await Capture(settings).run()
            text = str(caught.value)
            assert f"the log ends at {tso.describe(end)}" in text
            assert f"everything below {tso.describe(collected)} may be gone" in text
            assert "--gc-ttl" in text
            assert "tidemill capture --snapshot" in text
            assert LogReader(tmp_path / "log").resolved_ts() == end
            assert service not in [s.service_id for s in points.services()], "nothing is held for a log that does not go on"

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize(
    "barriers",
    [
        pytest.param(
            False, id="safe points", marks=pytest.mark.thorough("the same with PD's older calls, which other tests here make too")
        ),
        pytest.param(True, id="barriers"),
    ],
)
def test_a_capture_that_lives_but_is_stuck_lets_garbage_collection_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, barriers: bool
) -> None:
    """A long transaction holds a table: it is named in a warning in time, and after gc-ttl the barrier is removed."""
    monkeypatch.setattr(gc, "PERIOD", 0.2)
    monkeypatch.setattr(gc, "GcPatience", lambda ttl: GcPatience(12))

    async def main() -> None:
        async with Playground(35, resolved_interval=0.1, gc_barriers=barriers) as playground:
            points = playground.cluster.safe_points
            playground.execute("create table t (id int primary key)")
            playground.execute("insert into t values (1)")
            settings = config(playground, tmp_path / "log")
            capture = Capture(settings)
            task = asyncio.ensure_future(capture.run())
            await until(lambda: capture.status.state == "running")
            await caught_up(capture, playground.cluster.oracle.next())
            service = capture.safe_point.service_id.encode()
            key = next(key for key, _ in playground.cluster.mvcc.items(b"t", b"u"))
            with caplog.at_level(logging.WARNING):
                pending = playground.cluster.prewrite([(key, b"x")], ttl_ms=10**9)
                with pytest.raises(GcTtlExceeded) as caught:
                    await asyncio.wait_for(task, 600)
            for text in (str(caught.value), *(r.getMessage() for r in caplog.records if "not caught up" in r.getMessage())):
                assert f"locked by the transaction {pending.start_ts}" in text
                assert "test.t " in text
            assert sum("not caught up" in r.getMessage() for r in caplog.records) == 2
            assert service not in [s.service_id for s in points.services()]
            playground.cluster.rollback(pending)
            async with running(settings) as capture:  # TiDB has collected nothing yet: the log goes on
                await caught_up(capture, playground.cluster.oracle.next())

    asyncio.run(main())


def test_a_second_capture_leaves_the_status_of_the_first_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with Playground(36, resolved_interval=0.1) as playground:
            settings = config(playground, tmp_path / "log")
            async with running(settings) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
                await until((settings.folder / "status.json").exists)
                before = json.loads((settings.folder / "status.json").read_text())
                with pytest.raises(LogLocked):
                    await Capture(settings).run()
                after = json.loads((settings.folder / "status.json").read_text())
                assert (after["state"], after["resolved_ts"] >= before["resolved_ts"] > 0) == ("running", True)

    asyncio.run(main())


def test_a_capture_that_does_not_get_to_its_log_leaves_told_how_far_it_was(tmp_path: Path) -> None:
    async def main() -> None:
        async with Playground(37, resolved_interval=0.1) as playground:
            settings = config(playground, tmp_path / "log")
            async with running(settings) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
            end = capture.status.resolved_ts
            with pytest.raises(LogError):
                await Capture(config(playground, tmp_path / "log", partitions=9)).run()
            told = json.loads((settings.folder / "status.json").read_text())
            assert (told["state"], told["resolved_ts"], bool(told["error"])) == ("failed", end, True)

    asyncio.run(main())


def test_a_capture_without_pd_can_be_stopped(tmp_path: Path) -> None:
    """A wait for PD does not keep the capture from ending: what is resolved is sealed first."""

    async def main() -> None:
        async with Playground(34, resolved_interval=0.1, pds=1) as playground:
            playground.execute("create table t (id int primary key)")
            async with running(config(playground, tmp_path / "log")) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
                await playground.stop_pd(1)
                playground.execute("insert into t values (1)")
                ts = playground.cluster.oracle.next()
                await caught_up(capture, ts)  # live streams do not need PD
                waiting = asyncio.ensure_future(capture.pd.tso())
                await asyncio.sleep(0.2)
                capture.stop()
                async with asyncio.timeout(capture.pd.retry_s / 2):
                    await until(lambda: capture.status.state == "stopped")
                waiting.cancel()
            assert LogReader(tmp_path / "log").resolved_ts() >= ts

    asyncio.run(main())


def test_g6_a_log_that_cannot_be_made_leaves_no_wish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> SchemaHistory:
        raise SchemaError("cannot be read")

    monkeypatch.setattr(SchemaHistory, "bootstrap", fail)

    async def main() -> None:
        async with Playground(32) as playground:
            with pytest.raises(SchemaError):
                await Capture(config(playground, tmp_path / "log")).run()
            names = [s.service_id.decode() for s in playground.cluster.safe_points.services()]
            assert not [n for n in names if n.startswith("tidemill")]
            assert not (tmp_path / "log" / "log.json").exists()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("workers", "left"),
    [
        pytest.param(None, b"", id="one process-empty"),
        pytest.param(None, None, id="one process-gone"),
        pytest.param(None, "as it was at the start", id="one process-old"),
        pytest.param(2, "as it was at the start", id="groups-old", marks=pytest.mark.slow),
        pytest.param(2, b"", id="groups-empty", marks=IN_GROUPS_TOO),
        pytest.param(2, None, id="groups-gone", marks=IN_GROUPS_TOO),
    ],
)
def test_after_a_power_loss_the_log_still_has_what_pd_lets_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: bytes | str | None, workers: int | None
) -> None:
    """No head.json is synced: after a crash it is empty, missing, or an older one. TiDB has collected as far as the barrier allowed."""
    monkeypatch.setattr(gc, "PERIOD", 0.2)

    async def main() -> None:
        async with Playground(35, resolved_interval=0.1, gc_barriers=True) as playground:
            points, now = playground.cluster.safe_points, playground.cluster.oracle.next
            playground.execute("create table t (id int primary key)")
            settings = config(playground, tmp_path / "log", workers=workers)
            log = tmp_path / "log"
            async with running(settings) as capture:
                await until(lambda: capture.resolved_ts > now() - (60_000 << 18) and len(list(log.glob("**/head.json"))) == 5)
                heads = {path: path.read_bytes() for path in log.glob("**/head.json")}
                begun = capture.resolved_ts
                playground.execute("insert into t values (1)")
                at = now()
                await until(lambda: capture.safe_point.safe_point > at)
                collected = points.advance_gc(now())
                assert begun < collected <= capture.safe_point.safe_point
            for path, before in heads.items():
                if left is None:
                    path.unlink()
                else:
                    path.write_bytes(before if isinstance(left, str) else left)
            async with running(settings) as capture:
                playground.execute("insert into t values (2)")
                at = now()
                await until(lambda: capture.resolved_ts >= at)
            assert compare(playground.cluster, log)[0] == 2
            assert verify(log).problems == []

    asyncio.run(main())


def test_the_barrier_stands_still_while_heads_cannot_be_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk accepts heads, but not their sync."""
    monkeypatch.setattr(gc, "PERIOD", 0.1)
    full = True

    async def main() -> None:
        nonlocal full
        async with Playground(36, resolved_interval=0.1) as playground:
            playground.execute("create table t (id int primary key)")
            real = LocalStorage.replace

            def replaced(storage: LocalStorage, name: str, data: bytes, *, durable: bool = True) -> None:
                if full and name.endswith("synced.json"):
                    raise DiskLow("no room")
                real(storage, name, data, durable=durable)

            monkeypatch.setattr(LocalStorage, "replace", replaced)
            async with running(config(playground, tmp_path / "log")) as capture:
                held = capture.safe_point.safe_point
                looks = 0
                for _ in range(5):
                    at = playground.cluster.oracle.next()
                    await caught_up(capture, at)
                    looks += 1
                assert (looks, capture.safe_point.safe_point) == (5, held)
                full = False
                await until(lambda: capture.safe_point.safe_point > held)

    asyncio.run(main())


def test_a_start_that_pd_refuses_leaves_a_running_capture_alone(
    tmp_path: Path,
    s3_server: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On S3 only owner.json tells writers apart: a writer that raises its epoch ends the one before."""

    async def main() -> None:
        async with Playground(38, resolved_interval=0.1) as playground:
            playground.execute("create table t (id int primary key)")
            make_bucket(s3_server, "guarded")
            log = f"s3://test:test@guarded/log?endpoint_override={s3_server.partition('://')[2]}&scheme=http&region=us-east-1"
            async with running(config(playground, log, data_dir=tmp_path / "one")) as capture:
                await caught_up(capture, playground.cluster.oracle.next())

                async def refused(guard: gc.GcGuard, resolved_ts: int, ttl: int | None = None) -> None:
                    raise StartTsBeforeGc("PD has let go of it")

                with monkeypatch.context() as patch:
                    patch.setattr(gc.GcGuard, "protect", refused)
                    with pytest.raises(StartTsBeforeGc):
                        await Capture(config(playground, log, data_dir=tmp_path / "other")).run()
                playground.execute("insert into t values (1)")
                await caught_up(capture, playground.cluster.oracle.next())
                assert capture.status.state == "running"

    asyncio.run(main())
