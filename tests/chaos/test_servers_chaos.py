"""Servers of one log whose leaders die, freeze and resign at random, under bank transfers: nothing is lost, nothing comes out of order.

ROUNDS (0) faults from SEED (1), in the environment: `make chaos-ha ROUNDS=100 SEED=$RANDOM`. tests/integration/test_servers.py is the
short one.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.support.delivery.runs import assert_equal, audited, await_that
from tests.support.server.servers import Server
from tidemill.demo.delivered import from_jsonl
from tidemill.demo.session import Upstream, tables_of

ROUNDS = int(os.environ.get("ROUNDS", "0"))
SEED = int(os.environ.get("SEED", "1"))
FAULTS = ("kill", "freeze", "freeze alone", "resign")

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(300 + 240 * ROUNDS),
    pytest.mark.skipif(ROUNDS == 0, reason="make chaos-ha"),
]


def leader_of(servers: tuple[Server, ...]) -> Server:
    await_that(lambda: any(server.leads for server in servers), "one of them leads")
    return next(server for server in servers if server.leads)


def strike(kind: str, rng: random.Random, old: Server, new: Server) -> None:
    """Let the leader fail, wait until the other one delivers, and bring the old one back."""
    began = time.monotonic()
    if kind == "kill":
        old.kill()
    elif kind == "resign":
        old.call("POST", "owner/resign")
    else:
        old.freeze(alone=kind == "freeze alone")
    await_that(lambda: new.leads, "the other one leads")
    led, at = time.monotonic() - began, new.checkpoint("f")
    if rng.random() < 0.5 and kind.startswith("freeze"):
        old.wake()  # in the middle of the takeover
    await_that(lambda: new.checkpoint("f") > at, "the other one delivers")
    print(f"{kind}: led after {led:.1f} s, delivered after {time.monotonic() - began:.1f} s")
    if kind == "kill":
        old.start()
    elif kind != "resign":
        old.wake()
    await_that(lambda: not old.leads and not old.children("host.process"), "the old one follows")


def test_a_storm_of_leaders(tmp_path: Path) -> None:
    print(f"SEED={SEED}")
    rng = random.Random(SEED)
    out = tmp_path / "out.jsonl"
    options = ("--resolved-interval", "0.3", "--workload", "bank", "--region-every", "80")
    with Upstream(tmp_path, seed=SEED, rate=25, options=options) as upstream:
        one, two = (Server(tmp_path, upstream.pd, "--trigger-ms", "100", name=name) for name in ("1", "2"))
        with one, two:
            one.create("f", f"messages://{out}?protocol=open-protocol&partition-num=3", start_ts=upstream.began_ts)
            for _ in range(ROUNDS):
                old = leader_of((one, two))
                at = old.checkpoint("f")
                await_that(lambda old=old, at=at: old.checkpoint("f") > at, "it goes on")
                time.sleep(rng.random() * 1.5)  # the random moment
                strike(rng.choice(FAULTS), rng, old, two if old is one else one)
            end_ts = upstream.rest()
            await_that(lambda: one.checkpoint("f") >= end_ts, "f has everything")
            truth = tables_of(upstream, end_ts)
        assert_equal(audited(from_jsonl(out)), one.log, truth, end_ts)
