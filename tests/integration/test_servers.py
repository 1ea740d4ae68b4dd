"""Several servers of one log: the leader is killed, and frozen. Another one takes over, and nothing is lost or moved by the old one.

One of them stands by with a Spark, the other one starts it when it leads.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.delivery.runs import assert_equal, audited, await_that
from tests.support.server.servers import Server
from tidemill.demo.delivered import from_jsonl
from tidemill.demo.session import Upstream, tables_of

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def other_leads(old: Server, new: Server, feed: str) -> float:
    """Wait until another server leads and delivers. Return how long that took, in seconds."""
    began = time.monotonic()
    await_that(lambda: new.leads, f"{new.said} leads")
    led = time.monotonic() - began
    at = new.checkpoint(feed)
    await_that(lambda: new.checkpoint(feed) > at, f"{feed} gets further")
    print(f"another server led after {led:.1f} s and delivered after {time.monotonic() - began:.1f} s")
    return led


def test_the_leader_dies_and_freezes(tmp_path: Path) -> None:
    options = ("--resolved-interval", "0.3", "--workload", "bank")
    out = tmp_path / "out.jsonl"
    with Upstream(tmp_path, seed=5, rate=15, options=options) as upstream:
        one = Server(tmp_path, upstream.pd, "--trigger-ms", "200", "--no-standby", "--capture-session-ttl", "3", name="1")
        two = Server(tmp_path, upstream.pd, "--trigger-ms", "200", "--capture-session-ttl", "3", name="2")
        with one, two:
            assert two.create("f", f"messages://{out}?protocol=open-protocol&partition-num=2", start_ts=upstream.began_ts).get("id") == "f"
            at = one.checkpoint("f")
            await_that(lambda: one.checkpoint("f") > at, "f is delivered")
            assert (one.leads, two.leads) == (True, False)
            assert {c["address"]: c["is_owner"] for c in two.call("GET", "captures")["items"]} == {one.address: True, two.address: False}

            one.kill()
            other_leads(one, two, "f")
            one.start()
            two.freeze()
            other_leads(two, one, "f")
            one.call("POST", "changefeeds/f/pause")
            await_that(lambda: one.state("f") == "stopped", "it is paused")
            two.wake()
            await_that(lambda: not two.leads and two.follows, "the server that woke follows")
            assert (two.state("f"), two.checkpoint("f")) == ("stopped", one.checkpoint("f")), "what it answers comes from the leader"
            two.call("POST", "changefeeds/f/resume", {})
            end_ts = upstream.rest()
            await_that(lambda: one.checkpoint("f") >= end_ts, "f has everything")
            truth = tables_of(upstream, end_ts)
            one.call("POST", "owner/resign")
            await_that(lambda: two.leads, "the other one leads")
            assert two.state("f") == "normal"
        assert_equal(audited(from_jsonl(out)), one.log, truth, end_ts)
