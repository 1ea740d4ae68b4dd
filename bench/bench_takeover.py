"""How long it takes until another server delivers: `python -m bench.bench_takeover [--rounds 3] [--seconds 60]`.

Two servers of one log, and a playground with bank transfers. The leader is killed; counted are the seconds until the other one leads, and
until its changefeed has got further than it was then, and the CPU seconds of the new leader until then. First with --no-standby,
then with processes that stand by, in turn, so that both see the same load. While a server stands by, its CPU and PSS are measured.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.bench_start import MIB
from bench.report.figures import Figure, note
from bench.usage import TreeUsage
from tests.support.delivery.runs import await_that
from tests.support.server.servers import Server
from tidemill.demo.session import Upstream

STAGE = "Takeover by another server"
QUIET = 0.05
"""Cores that a server may use and count as loaded."""
LOOK_S = 2.0
LOADS_S = 15.0
"""A server that follows has this long to begin to load."""


def settled(server: Server) -> None:
    """Wait until a server that follows has loaded what it will use."""
    assert server.process is not None
    time.sleep(LOADS_S)
    with TreeUsage(server.process.pid) as usage:
        before = usage.cpu().total
        while True:
            time.sleep(LOOK_S)
            now = usage.cpu().total
            if now - before < QUIET * LOOK_S:
                return
            before = now


def idle(server: Server, seconds: float) -> str:
    """What it takes while it follows."""
    assert server.process is not None
    with TreeUsage(server.process.pid) as usage:
        time.sleep(LOOK_S)
        before, at = usage.cpu(), time.monotonic()
        time.sleep(seconds)
        spent, passed = usage.cpu().minus(before), time.monotonic() - at
    parts = ", ".join(f"{kind} {100 * cpu / passed:.2f} %" for kind, cpu in sorted(spent.by_kind.items()))
    held = sum(process.memory_full_info().pss for process in server.whole()) / MIB
    return f"{100 * spent.total / passed:.2f} % of a core ({parts}), {held:.0f} MiB (PSS)"


def takeover(kind: str, old: Server, new: Server) -> str:
    """Kill the leader, and say how the other one takes over."""
    assert new.process is not None
    with TreeUsage(new.process.pid) as usage:
        time.sleep(LOOK_S)
        spent, began = usage.cpu().total, time.monotonic()
        old.kill()
        await_that(lambda: new.leads, "the other one leads")
        led, at = time.monotonic() - began, new.checkpoint("f")
        await_that(lambda: new.checkpoint("f") > at, "it delivers")
        took, cpu = time.monotonic() - began, usage.cpu().total - spent
    note(Figure(STAGE, f"{kind}: the other one leads", led, "s"))
    note(Figure(STAGE, f"{kind}: it delivers", took, "s", aim=15))
    return f"led after {led:.1f} s, delivered after {took:.1f} s, {cpu:.1f} CPU s; load {os.getloadavg()[0]:.1f}"


def pair(folder: Path, upstream: Upstream, feed: str, *options: str) -> tuple[Server, Server]:
    folder.mkdir()
    one, two = (Server(folder, upstream.pd, "--trigger-ms", "200", *options, name=name) for name in ("1", "2"))
    one.start()
    two.start()
    one.create(feed, f"messages://{folder}/out.jsonl?protocol=open-protocol", start_ts=upstream.began_ts)
    return one, two


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long a server that follows is watched")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        options = ("--resolved-interval", "0.3", "--workload", "bank")
        upstream = stack.enter_context(Upstream(folder, seed=1, rate=20, options=options))
        for number in range(args.rounds):
            for kind, flags in (("cold", ("--no-standby",)), ("stands by", ())):
                one, two = pair(folder / f"{kind}{number}", upstream, "f", *flags)
                try:
                    await_that(lambda one=one: one.checkpoint("f") > upstream.began_ts, "f is delivered")
                    settled(two)
                    if not number:
                        print(f"{kind}: a server that follows: {idle(two, args.seconds)}; load {os.getloadavg()[0]:.1f}", flush=True)
                    print(f"{kind}: {takeover(kind, one, two)}", flush=True)
                finally:
                    one.kill()
                    two.stop()


if __name__ == "__main__":
    main()
