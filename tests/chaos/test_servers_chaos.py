"""Servers of one log whose leaders die, freeze and resign at random, under bank transfers: nothing is lost, nothing comes out of order.

ROUNDS (0) faults from SEED (1), in the environment: `make chaos-ha ROUNDS=100 SEED=$RANDOM`. PLACE: what the servers share, `folder`
(a folder has it all), `etcd` (the lease is in an etcd) or `s3` (all is on an object store). Each server reaches etcd and S3 by a proxy of
its own, which may be cut. Their clocks jump. tests/integration/test_servers.py is the short one.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.delivery.runs import assert_equal, audited, await_that
from tests.support.faults.proxy import Proxy
from tests.support.server.servers import Server
from tests.support.servers.etcds import Etcd
from tests.support.servers.s3 import make_bucket, s3_server
from tidemill.changelog.storage import durable
from tidemill.demo.delivered import from_jsonl
from tidemill.demo.session import Upstream, tables_of

ROUNDS = int(os.environ.get("ROUNDS", "0"))
SEED = int(os.environ.get("SEED", "1"))
PLACE = os.environ.get("PLACE", "folder")
FAULTS = ("kill", "freeze", "freeze alone", "resign", *(("cut", "cut") if PLACE != "folder" else ()))
JUMPY = Path(__file__).parents[1] / "support/faults/jumpy"

__all__ = ["s3_server"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(300 + 240 * ROUNDS),
    pytest.mark.skipif(ROUNDS == 0, reason="make chaos-ha"),
]


def leader_of(servers: tuple[Server, ...]) -> Server:
    await_that(lambda: any(server.leads for server in servers), "one of them leads")
    return next(server for server in servers if server.leads)


class Pair:
    """Two servers, and the proxies and clocks that they have."""

    def __init__(self, folder: Path, pd: str, stack: ExitStack, endpoint: str) -> None:
        self.proxies = [Proxy(), Proxy()]
        self.clocks = [folder / f"clock{number}" for number in (1, 2)]
        self.etcd = Etcd(folder) if PLACE == "etcd" else None
        target = 0
        if self.etcd is not None:
            self.etcd.start()
            stack.callback(self.etcd.kill)
            target = int(self.etcd.address.rpartition(":")[2])
        elif PLACE == "s3":
            make_bucket(endpoint, "logs")
            target = int(endpoint.rpartition(":")[2])
        servers = []
        for number, (proxy, clock) in enumerate(zip(self.proxies, self.clocks, strict=True), 1):
            proxy.start(target)
            stack.callback(proxy.close)
            clock.write_text("0")
            more = ("--etcd", f"127.0.0.1:{proxy.port}") if self.etcd is not None else ()
            log = url(f"127.0.0.1:{proxy.port}") if PLACE == "s3" else ""
            servers.append(Server(folder, pd, "--trigger-ms", "100", *more, name=str(number), log=log))
        self.one, self.two = servers
        self.log = url(endpoint.partition("://")[2]) if PLACE == "s3" else str(self.one.log)

    def start(self, server: Server) -> None:
        """Start it under a clock that may jump."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(JUMPY))
            patch.setenv("JUMPY_CLOCK", str(self.clocks[server is self.two]))
            server.start()

    def jump(self, server: Server, seconds: int) -> None:
        """Set its clock so far from the true one."""
        durable.write(self.clocks[server is self.two], str(seconds).encode(), sync=False)

    def cut(self, server: Server, rng: random.Random) -> None:
        proxy = self.proxies[server is self.two]
        if rng.random() < 0.5:
            proxy.hang()
        else:
            proxy.refuse()

    def mend(self, server: Server) -> None:
        self.proxies[server is self.two].forward()


def url(host: str) -> str:
    return f"s3://test:test@logs/log?endpoint_override={host}&scheme=http&region=us-east-1"


def strike(kind: str, rng: random.Random, pair: Pair, old: Server) -> None:
    """Let the leader fail, wait until the other one delivers, and bring the old one back."""
    new = pair.two if old is pair.one else pair.one
    began = time.monotonic()
    if rng.random() < 0.3:
        seconds = rng.choice((-7200, -30, 0, 30, 7200))
        pair.jump(rng.choice((old, new)), seconds)
        print(f"a clock is {seconds} s from the true one")
    if kind == "kill":
        old.kill()
    elif kind == "cut":
        pair.cut(old, rng)
    elif kind == "resign":
        old.call("POST", "owner/resign")
    else:
        old.freeze(alone=kind == "freeze alone")
    await_that(lambda: new.leads, "the other one leads")
    led, at = time.monotonic() - began, new.checkpoint("f")
    if rng.random() < 0.5 and kind.startswith("freeze"):
        old.wake()  # in the middle of the takeover
    await_that(lambda: new.checkpoint("f") > at, "the other one delivers")
    load = os.getloadavg()[0]
    print(f"{kind}: led after {led:.1f} s, delivered after {time.monotonic() - began:.1f} s (load {load:.1f})", flush=True)
    if kind == "kill":
        pair.start(old)
    elif kind == "cut":
        pair.mend(old)
    elif kind != "resign":
        old.wake()
    await_that(lambda: not old.leads and old.follows, "the old one follows")


def test_a_storm_of_leaders(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    print(f"SEED={SEED} PLACE={PLACE}")
    rng = random.Random(SEED)
    out = tmp_path / "out.jsonl"
    endpoint = request.getfixturevalue("s3_server") if PLACE == "s3" else ""
    options = ("--resolved-interval", "0.3", "--workload", "bank", "--region-every", "80")
    with Upstream(tmp_path, seed=SEED, rate=25, options=options) as upstream, ExitStack() as stack:
        pair = Pair(tmp_path, upstream.pd, stack, endpoint)
        for server in (pair.one, pair.two):
            pair.start(server)
            stack.push(server.__exit__)
        made = pair.one.create("f", f"messages://{out}?protocol=open-protocol&partition-num=3", start_ts=upstream.began_ts)
        assert made.get("id") == "f", made
        for _ in range(ROUNDS):
            old = leader_of((pair.one, pair.two))
            at = old.checkpoint("f")
            await_that(lambda old=old, at=at: old.checkpoint("f") > at, "it goes on")
            time.sleep(rng.random() * 1.5)  # the random moment
            strike(rng.choice(FAULTS), rng, pair, old)
        end_ts = upstream.rest()
        await_that(lambda: pair.one.checkpoint("f") >= end_ts, "f has everything")
        truth = tables_of(upstream, end_ts)
        assert_equal(audited(from_jsonl(out)), pair.log, truth, end_ts)
