"""The capture under a seeded simulator: rows, DDLs, splits, merges and moves of leaders, orphan prewrites, stale PDs, holes, broken
streams, busy and congested stores, silent regions, killed captures, in any order. Run other seeds with SEED=… ROUNDS=… and --thorough.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.schema.schema_checks import check_schemas
from tests.support.simulation.simulator import Simulator
from tests.support.simulation.trace import first_difference
from tests.support.simulation.virtual_gc import finish
from tests.support.simulation.world import begin, trace_of
from tests.support.thorough import few_of
from tidemill.tidb.keys import record_key

SEED, ROUNDS = int(os.environ.get("SEED", "100")), int(os.environ.get("ROUNDS", "24"))
STEPS = int(os.environ.get("STEPS", "400"))
FAST = 8
"""So many seeds are in `make test`."""


SEEDS = few_of(range(SEED, SEED + ROUNDS), FAST)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_whatever_happens(tmp_path: Path, seed: int) -> None:
    world, random = begin(tmp_path, seed)
    sim = world.sim
    before = sim.resolved
    for _ in range(STEPS):
        world.act()
        sim.check()
        assert sim.resolved >= before, "the resolved ts went back"
        before = sim.resolved
    in_trouble = sim.requests
    world.heal()
    sim.catch_up()
    sim.check()
    assert sim.verified > 0
    if not sim.faults.gc:
        assert sim.check_log() == sim.verified
        check_schemas(sim.cluster, sim.folder / "log", random)
    assert in_trouble < 40 * STEPS, "no busy loops"
    sim.kill()
    finish(sim.guard.remove())
    assert [s.service_id for s in sim.cluster.safe_points.services()] == [b"gc_worker"]


def test_d17_rows_wait_for_the_schema(tmp_path: Path) -> None:
    """The schema's regions lag behind: no row is sealed whose table might have a different schema by then."""
    sim = Simulator(tmp_path, 1)
    sim.session.execute("create table t (id int primary key)")
    sim.begin()
    sim.catch_up()
    jobs = (sim.history.job_table_ids or (0,))[0]
    sim.frozen = {r.id for r in sim.cluster.regions if r.holds(b"mDB") or r.holds(record_key(jobs, 0))}
    sim.settle()
    sim.seal()
    before = sim.resolved
    sim.session.execute("alter table t add column v int; insert into t values (1, 2)")
    for _ in range(5):
        sim.settle()
        sim.cluster.tick()
        sim.settle()
        sim.seal()
        sim.pass_time(1.0)
    assert sim.resolved == before
    assert all(head <= sim.writer.schema.head for head in sim.heads)
    sim.frozen = set()
    sim.catch_up()
    assert sim.check_log() == 1
    sim.kill()


def slowly(function: Callable[..., Any], random: Random) -> Callable[..., Any]:
    """A disk whose calls take a random time."""

    def call(*args: Any, **kwargs: Any) -> Any:
        time.sleep(random.random() * 0.004)
        return function(*args, **kwargs)

    return call


ASK = """
import json, sys
from pathlib import Path
from tests.support.simulation.world import trace_of
print(json.dumps(trace_of(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", few_of([102, 100, 101, 107], 1))
def test_a_seed_gives_the_same_run_on_a_slow_disk_and_on_a_fast_one(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Step by step, and every byte of the log: in this process with a slow disk, and in another one with other hash seeds."""
    folders = [tmp_path / name for name in ("fast", "slow")]
    for folder in folders:
        folder.mkdir()
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    command = [sys.executable, "-c", ASK, str(folders[0]), str(seed), "150"]
    fast, spills = json.loads(subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout)
    for name in ("pwrite", "write", "fsync", "replace"):
        monkeypatch.setattr(os, name, slowly(getattr(os, name), Random(seed)))
    slow, _ = trace_of(folders[1], seed, 150)
    assert first_difference(fast, slow) == ""
    assert spills > 0, "a seed that spills is asked for"
