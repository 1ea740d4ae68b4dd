"""The state files of servers and of a changefeed, in a bucket, under two to four servers that freeze, die and lose answers at any request:
lease, records, fence, checkpoint, registration."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelog.logs import build_log
from tests.support.changelog.memory_storage import Bucket
from tests.support.simulate.actors import Actor
from tests.support.simulate.gated_storage import GatedStorage
from tests.support.simulate.trials import Schedules, seeds
from tidemill.changelog import feeds
from tidemill.delivery.epoch_fence import Fence
from tidemill.delivery.guarded import GuardedFile
from tidemill.errors import Fenced
from tidemill.server.errors import NotOwner
from tidemill.server.shared.file import SharedFile
from tidemill.server.shared.lease import Leases
from tidemill.server.shared.records import Record, Records
from tidemill.tso import SavedTs

BEGIN, GOAL = 1, 5
FEED = "f"
CHECKPOINT = f"server/changefeeds/{FEED}/checkpoint.json"
BUCKETS: dict[Path, Bucket] = defaultdict(Bucket)


def lead(storage: GatedStorage, server: str) -> None:
    """Lead, and deliver from the checkpoint to the goal, as a server and its runner do. Each position is saved, written into the record as
    a change by a person is, and then told to the log."""
    leases = Leases(SharedFile(storage, "lease.json"), server, "", 10.0)
    lease = leases.take(leases.look())
    if lease is None:
        raise Fenced("another server has taken the lease")
    records = Records(storage)
    term, _ = records.take(lease.term, server)
    fence = Fence(storage, f"fences/{FEED}.json", term=term)
    checkpoint = GuardedFile(storage, CHECKPOINT, fence.driver, term=term)
    seen = fence.look()
    registration = feeds.register(storage, FEED, SavedTs(_position(checkpoint)), epoch=seen)
    epoch = fence.take()
    checkpoint.change(lambda found: found or {"checkpoint_ts": BEGIN}, epoch)
    at = _position(checkpoint)
    registration.update(SavedTs(at), epoch)
    while at < GOAL:
        epoch = fence.advance(None)
        fence.check(now=True)
        at += 1
        checkpoint.write({"checkpoint_ts": at}, epoch)
        records.put(FEED, Record({"saved": at}, "normal"))
        registration.update(SavedTs(at), epoch)
        lease = leases.renew(lease)
        if lease is None:
            raise Fenced("another server has taken the lease")
    records.put(FEED, Record({"saved": at}, "finished"))


def _position(checkpoint: GuardedFile) -> int:
    return int((checkpoint.read() or {}).get("checkpoint_ts", BEGIN))


class StateReader:
    """No term, epoch or position goes back, and the log is told of saved positions only; at the end of the last one, also where a start
    that was frozen registers the changefeed late."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._known: dict[str, int] = {}

    def seen(self) -> dict[str, object]:
        record = self._read("server/state.json").get("feeds", {}).get(FEED)
        return {"record": record, "checkpoint": self._read(CHECKPOINT).get("checkpoint_ts"), "the log is told": self._told()}

    def check(self) -> None:
        state, checkpoint = self._read("server/state.json"), self._read(CHECKPOINT)
        now = {
            "the lease's term": self._read("server/lease.json").get("term", 0),
            "the records' term": state.get("term", 0),
            "the record": state.get("feeds", {}).get(FEED, {}).get("settings", {}).get("saved", 0),
            "the epoch of the fence": self._read(f"fences/{FEED}.json").get("epoch", 0),
            "the epoch of the checkpoint": checkpoint.get("epoch", 0),
            "the checkpoint": checkpoint.get("checkpoint_ts", 0),
            "the epoch of the registration": self._read(f"feeds/{FEED}.json").get("epoch", 0),
        }
        for name, number in now.items():
            assert number >= self._known.get(name, 0), f"{name} went back from {self._known[name]} to {number}"
        self._known = now
        assert self._told() <= max(BEGIN, now["the checkpoint"]), "the log was told of a position that is not saved"

    def _told(self) -> int:
        return int(self._read(f"feeds/{FEED}.json").get("checkpoint_ts", 0))

    def _read(self, name: str) -> dict[str, Any]:
        data = self._bucket.content.get(name)
        return json.loads(data) if data is not None else {}


@pytest.fixture(scope="module")
def schedules(tmp_path_factory: pytest.TempPathFactory) -> Schedules[dict[str, object]]:
    log = build_log(tmp_path_factory.mktemp("log"), [], start_ts=BEGIN, ends=[GOAL])

    def body(folder: Path) -> Callable[[Actor], None]:
        numbers = itertools.count()
        BUCKETS[folder].put("log.json", (Path(log) / "log.json").read_bytes())

        def server(_: Actor) -> None:
            try:
                lead(GatedStorage(BUCKETS[folder]), f"server {next(numbers)}")
            except NotOwner as error:
                raise Fenced(error.message) from error

        return server

    return Schedules(tmp_path_factory.mktemp("runs"), body, lambda folder, _: StateReader(BUCKETS[folder]))


@pytest.mark.parametrize("seed", seeds(30, 60))
def test_a_schedule(seed: int, schedules: Schedules[dict[str, object]]) -> None:
    schedules.run(seed)
