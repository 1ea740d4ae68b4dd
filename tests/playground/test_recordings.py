"""The playground answers recorded scenarios as the recorded TiKV did: same rows, same order, same errors."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from tests.support.capture.replays import Replay


def play(name: str, kind: type[Replay] = Replay, **options: Any) -> Replay:
    async def run() -> Replay:
        return kind(name, **options).run()

    return asyncio.run(run())


SCENARIOS = [
    "scan_past", "live_2pc", "live_1pc", "live_async_commit", "live_rollback", "filter_loop", "extra_op", "truncate", "feed_v2",
    "region_split", "region_merge", "partitions", "resolved_cadence", "scan_with_lock",
]  # fmt: skip
LAGS = {"region_split": 0.05, "scan_with_lock": 0.05, "partitions": -0.02}


@pytest.mark.parametrize("name", SCENARIOS)
def test_rows_and_errors(name: str) -> None:
    replay = play(name, lag=LAGS.get(name, 0.0))
    assert not replay.refused
    check(replay, resolved=name != "partitions")


def check(replay: Replay, *, resolved: bool = True) -> None:
    for stream, feed in replay.feeds.items():
        if not feed.recorded:
            continue  # refused before the feed saw it
        recorded, played = replay.compare(stream)
        assert played.events == recorded.events
        if not resolved:  # the recorded regions became ready at other moments
            continue
        assert played.resolved.keys() == recorded.resolved.keys()
        for request, listed in played.resolved.items():
            # a real store's regions become ready one by one
            assert set(listed) <= set(recorded.resolved[request])
            assert listed[-1] == recorded.resolved[request][-1]


class BadRequests(Replay):
    """The region is not noted in this recording: it is the last one, at version 77."""

    def on_note(self, line: dict[str, Any]) -> None:
        if line["text"].startswith("case"):
            self.know_region(26, 77, 145)


def test_bad_requests() -> None:
    replay = play("bad_requests", BadRequests, lag=0.05)
    assert len(replay.feeds) == 24
    check(replay)


class NotLeader(Replay):
    """Three stores. The recording has the region and its leader."""

    STORES: ClassVar = {1: 1, 320: 2, 321: 3}

    def on_note(self, line: dict[str, Any]) -> None:
        if line["text"] == "region":
            self.know_region(403, 163, 316)
            self.cluster.transfer_leader(self.regions_of(316)[-1].id, 1)
        elif line["text"] == "PD operator transfer-leader":
            self.cluster.transfer_leader(self.regions_of(316)[-1].id, self.STORES[line["to"]])

    def store_of(self, line: dict[str, Any]) -> int:
        return {1: 3, 2: 1, 3: 2}[line["stream"]]


def test_not_leader() -> None:
    replay = play("not_leader", NotLeader, stores=3)
    check(replay)
    leaders = [e.error.not_leader.leader.store_id for f in replay.feeds.values() for m in f.played for e in m.events if e.HasField("error")]
    assert leaders == [1, 2]
