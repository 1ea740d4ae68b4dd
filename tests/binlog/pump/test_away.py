"""PD or TiKV is away for a while: Pump goes on, decides nothing that only they know, and its status says since when and why."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.support.binlog.binlogs import commit, prewrite, until
from tests.support.binlog.pumps import running_pump
from tidemill.binlog.messages import read_binlog
from tidemill.binlog.nodes import NodeState
from tidemill.binlog.pump import resolving
from tidemill.binlog.pump.problems import Work
from tidemill.playground.server import Playground

_WHEN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.binlog.pump.server.RETRY_S", 0.2)
    monkeypatch.setattr("tidemill.binlog.pump.server.RESOLVE_EVERY_S", 0.02)
    monkeypatch.setattr(resolving, "ASK_AFTER_S", 0.0)
    monkeypatch.setattr(resolving, "GIVE_UP_MS", 0)


def test_without_pd_binlogs_are_taken_and_given_and_fake_ones_wait_for_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with Playground(pds=1) as playground, running_pump(tmp_path, playground) as running:
            oracle, pump = playground.cluster.oracle, running.pump
            await running.pull(2)  # fake ones
            await playground.stop_pd(1)
            await until(lambda: Work.FAKE_BINLOGS in pump.problems and Work.REGISTRY in pump.problems)
            start_ts = oracle.next()
            await running.write(prewrite(start_ts))
            commit_ts = oracle.next()
            await running.write(commit(start_ts, commit_ts))
            assert [one.meta.commitTs for one in await running.pull(1, start_ts)] == [commit_ts]
            written, failures = pump.store.counts.binlogs, pump._entry.failures
            await until(lambda: pump._entry.failures > failures + 2)
            assert pump.store.counts.binlogs == written
            status = (await running.http("GET", "/status"))[1]
            assert set(status["Problems"]) == {"registry", "fake binlogs"}
            for problem in status["Problems"].values():
                assert _WHEN.fullmatch(problem["Since"])
                assert playground.pd_address in problem["Why"]
                assert problem["Why"] in status["ErrMsg"]
            assert (list(status["status"]), status["CommitTS"]) == (["pump1"], commit_ts)

            await playground.start_pd(1)
            await until(lambda: Work.FAKE_BINLOGS not in pump.problems and Work.REGISTRY not in pump.problems)
            (fake,) = await running.pull(1, commit_ts)
            assert read_binlog(fake.payload).is_fake
            assert (await running.http("GET", "/status"))[1]["ErrMsg"] == ""
            assert running.states() == [NodeState.PAUSED, NodeState.ONLINE]

    asyncio.run(run())


@pytest.mark.parametrize("away", ["TiKV", "PD"])
def test_without_tikv_a_prewrite_is_left_open_and_named(away: str, tmp_path: Path) -> None:
    """Its lock is over and so is the time that a Prewrite is waited for: only TiKV's word is missing, which is that it was committed."""

    async def run() -> None:
        async with Playground(pds=1) as playground, running_pump(tmp_path, playground, fake_binlog_interval=60.0) as running:
            cluster, key, pump = playground.cluster, b"mDB:1 some key", running.pump
            await (playground.stop_store(1) if away == "TiKV" else playground.stop_pd(1))
            pending = cluster.prewrite([(key, b"value")], ttl_ms=0)
            await running.write(prewrite(pending.start_ts, key=key))
            await until(lambda: Work.TIKV in pump.problems)
            commit_ts = cluster.commit(pending)
            asked = pump.resolver.asked
            await until(lambda: pump.resolver.asked > asked + 1)
            assert list(pump.store.order.open) == [pending.start_ts]
            status = (await running.http("GET", "/status"))[1]
            assert status["HeldBy"]["StartTS"] == pending.start_ts
            assert _WHEN.fullmatch(status["HeldBy"]["Since"])
            address = cluster.stores[1].address if away == "TiKV" else playground.pd_address
            assert "does not tell" in status["HeldBy"]["TiKV"]
            assert address in status["HeldBy"]["TiKV"]
            assert address in status["Problems"]["tikv"]["Why"]

            await (playground.restart_store(1) if away == "TiKV" else playground.start_pd(1))
            (found,) = await running.pull(1)
            assert (found.meta.startTs, found.meta.commitTs) == (pending.start_ts, commit_ts)
            await until(lambda: Work.TIKV not in pump.problems)
            assert (await running.http("GET", "/status"))[1]["HeldBy"] is None

    asyncio.run(run())
