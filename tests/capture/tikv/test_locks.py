"""Locks of clients that are gone are resolved as their transactions ended; those of live clients are left alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.capture.captures import caught_up, compare, config, running, until
from tests.support.capture.eventfeeds import recording
from tests.support.capture.loops import run
from tests.support.capture.progress import playground_table
from tidemill import tso
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.locks import COMMITTING_MS, Found, LockResolver, Resolved
from tidemill.capture.tikv.model import Peer, Region
from tidemill.capture.tikv.regions.actions import Span
from tidemill.capture.tikv.regions.state import SubRange
from tidemill.capture.tikv.watchdog.act import Verdicts, Watchdog
from tidemill.playground.server import Playground
from tidemill.playground.store.cluster import Cluster, Pending
from tidemill.playground.store.mvcc import LockKind
from tidemill.tidb.keys import record_key
from tidemill.wire import kvrpcpb_pb2 as kvrpcpb

TABLE = 900


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regions are searched for locks when they are hardly behind; the status is renewed often."""
    monkeypatch.setattr("tidemill.capture.capture.STATUS_EVERY", 0.1)
    monkeypatch.setattr("tidemill.capture.tikv.watchdog.act.FENCE_MS", 500)


KEYS = [record_key(TABLE, handle) for handle in range(6)]


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[Playground, PdClient]]:
    """Six rows in three regions of two stores."""
    async with Playground(5, stores=2) as playground:
        playground.cluster.transact([(key, b"before") for key in KEYS])
        playground.cluster.split([KEYS[2], KEYS[4]])
        pd = await PdClient.connect(playground.pd_address)
        try:
            yield playground, pd
        finally:
            await pd.close()


async def resolve(
    playground: Playground,
    pd: PdClient,
    *,
    later_ms: int = 0,
    since: int | None = None,
    before: Mapping[int, int] | None = None,
    grace_s: float = 0.0,
) -> Found:
    """The resolver at a time that is later than now, or than the ts `since`."""
    now = (since or playground.cluster.oracle.next()) + (later_ms << tso.LOGICAL_BITS)
    start, end = record_key(TABLE, 0), record_key(TABLE, 100)
    return await LockResolver(pd, grace_s=grace_s).resolve(start, end, now, now, before)


def values(store: Cluster) -> list[bytes | None]:
    return [store.mvcc.get(key, store.oracle.next()) for key in KEYS]


def test_a_dead_client_is_rolled_back_and_a_living_one_left_alone() -> None:
    async def main() -> None:
        async with cluster() as (playground, pd):
            playground.cluster.prewrite([(key, b"after") for key in KEYS], ttl_ms=5000)
            found = await resolve(playground, pd)
            assert (len(found.left), found.committed, found.rolled_back) == (6, 0, 0)
            assert {lock.key for lock in found.left} == set(KEYS)
            assert {(lock.primary, lock.ttl_ms) for lock in found.left} == {(KEYS[0], 5000)}
            found = await resolve(playground, pd, later_ms=6000)
            assert found == Found((), 0, 6)
            assert values(playground.cluster) == [b"before"] * 6

    run(main())


def test_what_the_primary_says_is_done() -> None:
    """A client that died after it had committed its primary, in another region than the locks."""

    async def main() -> None:
        async with cluster() as (playground, pd):
            store = playground.cluster
            pending = store.prewrite([(key, b"after") for key in KEYS])
            commit_ts = store.commit(pending, keys=[KEYS[0]])
            found = await resolve(playground, pd)
            assert (len(found.left), found.committed, found.waiting) == (5, 0, {pending.start_ts: 5}), "its client may be about to"
            assert await resolve(playground, pd, later_ms=COMMITTING_MS) == Found((), 5, 0)
            assert values(store) == [b"after"] * 6
            assert {store.mvcc.committed_at(key, pending.start_ts) for key in KEYS} == {commit_ts}

    run(main())


def test_a_client_that_commits_its_secondaries_is_left_to_it() -> None:
    """However long that takes, while each look finds fewer of them."""

    async def main() -> None:
        async with cluster() as (playground, pd):
            store = playground.cluster
            pending = store.prewrite([(key, b"after") for key in KEYS])
            commit_ts = store.commit(pending, keys=[KEYS[0]])
            before: Mapping[int, int] = {}
            for n in (1, 2, 3):
                found = await resolve(playground, pd, since=commit_ts, later_ms=n * COMMITTING_MS - 1, before=before)
                assert (found.committed, len(found.left), found.waiting) == (0, 6 - n, {pending.start_ts: 6 - n})
                store.commit(pending, commit_ts, [KEYS[n]])
                before = found.waiting
            found = await resolve(playground, pd, later_ms=4 * COMMITTING_MS, before=before)
            assert found.waiting == {pending.start_ts: 2}
            found = await resolve(playground, pd, later_ms=5 * COMMITTING_MS, before=found.waiting)
            assert (found.left, found.committed, found.waiting) == ((), 2, {}), "it does nothing more"

    run(main())


def test_what_ended_locks_are_called(caplog: pytest.LogCaptureFixture) -> None:
    """A carried-out commit needs no attention from an operator; a dead client is worth a warning. Both name the table."""
    watchdog = Watchdog.__new__(Watchdog)
    watchdog.verdicts, watchdog._locks, watchdog._waiting = Verdicts(), {}, {}
    sub_range = SubRange(1, Span(1, b"a", b"b", 0, 10, "shop.orders (112)"), b"a", b"b", 10)
    with caplog.at_level(logging.INFO):
        watchdog._note(sub_range, 7, Found((), 131_872, 0))
        watchdog._note(sub_range, 7, Found((), 0, 3))
    told = [(record.levelname, record.message) for record in caplog.records]
    assert [level for level, _ in told] == ["INFO", "WARNING"]
    assert all("region 7 of shop.orders (112)" in text for _, text in told)
    assert "131872" in told[0][1]
    assert watchdog.verdicts.locks_resolved == 131_875


def test_each_transaction_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = Watchdog(SimpleNamespace(pd=None), SimpleNamespace(), lambda _: None, 1)  # type: ignore[arg-type]
    sub_range = SubRange(1, Span(1, b"a", b"b", 0, 10, "shop.orders (112)"), b"a", b"b", 10)
    gone, kept = Resolved(20, b"k", 0, 3), Resolved(30, b"k", 40, 2)
    with caplog.at_level(logging.INFO):
        watchdog._note(sub_range, 7, Found((), 0, 3, resolved=(gone,)))
        watchdog._note(sub_range, 8, Found((), 2, 1, resolved=(gone, kept)))
    told = [r.message for r in caplog.records if r.levelname == "INFO" and "is resolved, " in r.message]
    assert ["rolled back" in told[0], "committed at 40" in told[1]] == [True, True]
    assert len(told) == 2
    assert all("primary 6b" in text and "of shop.orders (112)" in text for text in told)
    assert (watchdog.verdicts.transactions_resolved, watchdog.verdicts.locks_resolved) == (2, 6)


def test_a_primary_that_was_never_written_is_rolled_back() -> None:
    async def main() -> None:
        async with cluster() as (playground, pd):
            store = playground.cluster
            pending = store.prewrite([(key, b"after") for key in KEYS])
            lock = store.mvcc.locks.pop(KEYS[0])
            assert lock.primary == KEYS[0]
            found = await resolve(playground, pd)
            assert (len(found.left), found.rolled_back) == (5, 0), "its client may be about to write it"
            assert (KEYS[0], pending.start_ts) not in store.mvcc.rolled_back
            assert await resolve(playground, pd, later_ms=lock.ttl_ms + 1) == Found((), 0, 5)
            assert (KEYS[0], pending.start_ts) in store.mvcc.rolled_back, "it cannot come later"
            assert values(store) == [b"before"] * 6

    run(main())


@pytest.mark.parametrize("case", ["all there", "one missing", "one committed", "alive"])
def test_async_commit_is_decided_by_the_secondaries(case: str) -> None:
    async def main() -> None:
        async with cluster() as (playground, pd):
            store = playground.cluster
            pending = store.prewrite([(key, b"after") for key in KEYS], async_commit=True, ttl_ms=3000)
            highest = max(lock.min_commit_ts for lock in store.mvcc.locks.values())
            if case == "one missing":
                del store.mvcc.locks[KEYS[3]]
            elif case == "one committed":
                store.commit(pending, highest, [KEYS[5]])
            found = await resolve(playground, pd, later_ms=0 if case == "alive" else 4000)
            if case == "alive":
                assert len(found.left) == 6
                assert all(lock.async_commit for lock in found.left)
            elif case == "one missing":
                assert (found.left, found.committed) == ((), 0)
                assert values(store) == [b"before"] * 6
            else:
                assert (found.left, found.rolled_back) == ((), 0)
                assert values(store) == [b"after"] * 6
                assert {store.mvcc.committed_at(key, pending.start_ts) for key in KEYS} == {highest}

    run(main())


class Recorded:
    """Region calls that a real TiKV answered; the requests are recorded."""

    def __init__(self, lock: kvrpcpb.LockInfo, status: kvrpcpb.CheckTxnStatusResponse) -> None:
        self.answers = {
            "KvScanLock": kvrpcpb.ScanLockResponse(locks=[lock]),
            "KvCheckTxnStatus": status,
            "KvResolveLock": kvrpcpb.ResolveLockResponse(),
        }
        self.asked: dict[str, list[Any]] = {}

    async def call(self, name: str, key: bytes, request: Any) -> tuple[Region, Any]:
        region = Region(26, b"", b"", 1, 75, Peer(27, 1))
        self.asked.setdefault(name, []).append(request(region))
        return region, self.answers[name]


def recorded_resolver(recorded: Recorded, grace_s: float) -> LockResolver:
    resolver = LockResolver(None, grace_s=grace_s)  # type: ignore[arg-type]
    resolver._calls = resolver._checks = recorded  # type: ignore[assignment]
    return resolver


@pytest.mark.parametrize("grace_s", [0, 120])
@pytest.mark.parametrize("past_ms", [-1, 0])
def test_a_live_lock_of_a_real_tikv_is_left_and_what_it_decided_is_carried_out(past_ms: int, grace_s: int) -> None:
    """Its CheckTxnStatus of a lock, and its ResolveLock, from the recording live_rollback."""
    lines = [line for line in recording("live_rollback") if line["kind"] in ("req", "resp")]
    (asked, answered) = [line for line in lines if line["rpc"] == "tikvpb.Tikv/KvCheckTxnStatus"]
    theirs = kvrpcpb.CheckTxnStatusRequest.FromString(asked["bytes"])
    status = kvrpcpb.CheckTxnStatusResponse.FromString(answered["bytes"])
    now = theirs.lock_ts + (3000 + 1000 * grace_s + past_ms << tso.LOGICAL_BITS)
    recorded = Recorded(status.lock_info, status)

    async def resolve() -> Found:
        return await recorded_resolver(recorded, grace_s).resolve(b"", b"", now, now)

    found = asyncio.run(resolve())
    assert [(lock.key, lock.start_ts, lock.primary, lock.ttl_ms, lock.async_commit) for lock in found.left] == [
        (theirs.primary_key, theirs.lock_ts, theirs.primary_key, 3000, False)
    ]
    look, *acts = recorded.asked["KvCheckTxnStatus"]
    assert (look.primary_key, look.lock_ts, look.current_ts) == (theirs.primary_key, theirs.lock_ts, 0), "at 0 no TTL is over"
    assert not look.rollback_if_not_exist
    assert len(acts) == (1 if past_ms == 0 else 0)
    for act in acts:
        assert tso.physical_ms(act.current_ts) == tso.physical_ms(now) - 1000 * grace_s, "TiKV decides again, a grace ago"
        assert act.rollback_if_not_exist
    assert {one.caller_start_ts for one in recorded.asked["KvCheckTxnStatus"]} == {0}, "we read nothing, so its commit is not pushed"

    request = next(line for line in lines if line["rpc"] == "tikvpb.Tikv/KvResolveLock" and line["kind"] == "req")
    resolved = kvrpcpb.ResolveLockRequest.FromString(request["bytes"])
    recorded.answers["KvCheckTxnStatus"] = kvrpcpb.CheckTxnStatusResponse(commit_version=resolved.commit_version)
    lock = recorded.answers["KvScanLock"].locks[0]
    lock.lock_version = resolved.start_version
    now = resolved.commit_version + (COMMITTING_MS << tso.LOGICAL_BITS)
    assert asyncio.run(resolve()) == Found((), 1, 0)
    (ours,) = recorded.asked["KvResolveLock"]
    assert (ours.start_version, ours.commit_version, list(ours.keys)) == (resolved.start_version, resolved.commit_version, [lock.key])
    assert not recorded.asked["KvScanLock"][0].HasField("context"), "the call itself adds it"


@pytest.mark.parametrize("case", ["primary there", "primary missing", "async commit"])
def test_within_the_grace_nothing_is_changed(case: str) -> None:
    """However often it is looked at: the TTL is over, but not for long enough."""

    async def main() -> None:
        async with cluster() as (playground, pd):
            store = playground.cluster
            pending = store.prewrite([(key, b"after") for key in KEYS], ttl_ms=1000, async_commit=case == "async commit")
            if case == "primary missing":
                del store.mvcc.locks[KEYS[0]]
            before = dict(store.mvcc.locks)
            for later_ms in (1001, 60_000, 120_900):
                found = await resolve(playground, pd, since=pending.start_ts, later_ms=later_ms, grace_s=120.0)
                assert (len(found.left), found.resolved) == (len(before), ())
                assert (store.mvcc.locks, store.mvcc.rolled_back) == (before, set())
            found = await resolve(playground, pd, since=pending.start_ts, later_ms=121_001, grace_s=120.0)
            (ended,) = found.resolved
            assert (found.left, ended.start_ts, ended.primary, bool(ended.commit_ts)) == (
                (),
                pending.start_ts,
                KEYS[0],
                case == "async commit",
            )
            assert not store.mvcc.locks

    run(main())


def test_a_heartbeat_between_the_look_and_the_roll_back_wins() -> None:
    async def main() -> None:
        async with cluster() as (playground, pd):
            store = playground.cluster
            pending = store.prewrite([(key, b"after") for key in KEYS], ttl_ms=1000)
            resolver = LockResolver(pd, grace_s=120.0)
            asked = resolver._checks.call

            async def call(name: str, key: bytes, request: Any) -> tuple[Region, Any]:
                answer = await asked(name, key, request)
                store.mvcc.locks[KEYS[0]].ttl_ms = 30_000
                return answer

            resolver._checks.call = call  # type: ignore[method-assign]
            now = pending.start_ts + (122_000 << tso.LOGICAL_BITS)
            found = await resolver.resolve(record_key(TABLE, 0), record_key(TABLE, 100), now, now)
            assert (len(found.left), found.rolled_back) == (6, 0)
            assert store.mvcc.rolled_back == set()

    run(main())


def test_a_store_that_answers_slowly_is_asked_once_at_a_time(tmp_path: Path) -> None:
    """Locks of one transaction in three regions; checking it takes longer than many rounds of the watchdog. Its client lives."""

    async def main() -> None:
        async with Playground(44, resolved_interval=0.05) as playground:
            playground.execute("create table t (id int primary key, v varchar(20)); insert into t values (1, 'a'), (50, 'b'), (99, 'c')")
            playground.execute("split table t by (30), (70)")
            kv = playground.kvs[1]
            kv.slow["KvCheckTxnStatus"] = 30.0
            async with running(config(playground, tmp_path / "log", lock_grace=0.5)) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
                store = playground.cluster
                rows = [
                    (key, store.mvcc.get(key, 1 << 62))
                    for key, _ in store.mvcc.items(b"t", b"u")
                    if key[1:9] == playground_table(playground)
                ]
                pending = store.prewrite(rows, ttl_ms=1)
                await until(lambda: kv.running["KvCheckTxnStatus"] == 1)
                watchdog = capture.pulling.watchdog
                await until(lambda: len(watchdog._searches) == 3)
                watchdog._searched.clear()  # as if the time for the next search had come
                await watchdog.look()
                assert (kv.calls["KvCheckTxnStatus"], kv.most_running["KvCheckTxnStatus"]) == (1, 1)
                assert capture.status.regions_renewed == 0
                store.commit(pending)
                await caught_up(capture, store.oracle.next())
            assert store.mvcc.rolled_back == set()
            compare(store, tmp_path / "log")

    run(main())


def test_pessimistic_locks_are_in_nobodys_way() -> None:
    async def main() -> None:
        async with cluster() as (playground, pd):
            playground.cluster.prewrite([(KEYS[1], None)], kind=LockKind.PESSIMISTIC, ttl_ms=1)
            assert await resolve(playground, pd, later_ms=5000) == Found()
            assert KEYS[1] in playground.cluster.mvcc.locks

    run(main())


def test_more_locks_than_a_page() -> None:
    async def main() -> None:
        async with cluster() as (playground, pd):
            keys = [record_key(TABLE, handle) for handle in range(10, 2600)]
            playground.cluster.split([keys[700], keys[1900]])
            playground.cluster.prewrite([(key, b"x") for key in keys], ttl_ms=1)
            now = playground.cluster.oracle.next() + (5000 << tso.LOGICAL_BITS)
            found = await LockResolver(pd, grace_s=0.0).resolve(record_key(TABLE, 0), record_key(TABLE, 10_000), now, now)
            assert found == Found((), 0, len(keys))
            assert not playground.cluster.mvcc.locks

    run(main())


def test_l1_an_orphan_lock_does_not_hold_a_capture(tmp_path: Path) -> None:
    """Anywhere in the region: the second lock is not in a captured table at all, but in the region of one."""

    async def main() -> None:
        async with Playground(6, stores=2, resolved_interval=0.1) as playground:
            playground.execute("create table t (id int primary key, v varchar(20)); insert into t values (1, 'a'), (2, 'b')")
            key = next(k for k, _ in playground.cluster.mvcc.items(b"t", b"u") if k[1:9] == playground_table(playground))
            for region in list(playground.cluster.regions)[1:]:
                playground.cluster.merge(region.id, next(iter(playground.cluster.regions)).id)
            async with running(config(playground, tmp_path / "log", stuck_after=5.0, lock_grace=0.0)) as capture:
                orphan = playground.cluster.prewrite([(key, b"\x80\0\0\0\0\0")], ttl_ms=1)
                other = playground.cluster.prewrite([(record_key(5_000_000, 1), b"x")], ttl_ms=1)
                ts = playground.cluster.oracle.next()
                await caught_up(capture, ts)
                assert {orphan.start_ts, other.start_ts}.isdisjoint(lock.start_ts for lock in playground.cluster.mvcc.locks.values())
                await until(lambda: capture.status.locks_resolved >= 2)
                assert capture.status.regions_renewed == 0, "they move again by themselves"
                await until(lambda: capture.status.transactions_resolved >= 2)
            compare(playground.cluster, tmp_path / "log")

    run(main())


def test_l2_a_living_transaction_holds_the_capture_and_is_named(tmp_path: Path) -> None:
    async def main() -> None:
        async with Playground(7, resolved_interval=0.1) as playground:
            playground.execute("create table t (id int primary key, v varchar(20)); insert into t values (1, 'a'), (2, 'b')")
            key = next(k for k, _ in playground.cluster.mvcc.items(b"t", b"u") if k[1:9] == playground_table(playground))
            async with running(config(playground, tmp_path / "log", stuck_after=1.0)) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
                pending: Pending = playground.cluster.prewrite([(key, playground.cluster.mvcc.get(key, 1 << 62))], ttl_ms=3_600_000)
                await until(lambda: "lock" in capture.status.holding)
                holding = capture.status.holding
                assert holding["lock"]["start_ts"] == pending.start_ts
                assert holding["lock"]["key"] == key.hex()
                assert holding["lock"]["table"].startswith("test.t ")
                assert holding["table"].startswith("test.t ")
                assert holding["resolved_ts"] == pending.start_ts
                region = playground.cluster.regions.at(key)
                assert (holding["region"], holding["store"]) == (region.id, region.leader.store_id)
                assert holding["store_address"] == playground.pd_address
                await until(lambda: capture.status.holding["seconds"] > 3 * capture.config.stuck_after)
                assert capture.status.regions_renewed == 0, "that would not help"
                assert [s["cause"] for s in capture.status.stuck][:1] == ["frozen"]
                playground.cluster.commit(pending)
                await caught_up(capture, playground.cluster.oracle.next())
            compare(playground.cluster, tmp_path / "log")

    run(main())
