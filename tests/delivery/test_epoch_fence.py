"""The fence: epochs that only grow, whoever writes them, on a disk, on an object store, and on a store that has neither lock nor swap."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem

from tests.support.delivery.saved import plan
from tests.support.faults.away import Mount
from tests.support.servers.s3 import make_bucket, s3_server
from tidemill.changelog.storage.open import LocalStorage, RemoteStorage, Storage, open_storage
from tidemill.delivery import epoch_fence as fences
from tidemill.delivery.epoch_fence import BrokenFence, Fence, FenceCheck
from tidemill.errors import FeedBroken, Fenced, LogUnavailable

__all__ = ["s3_server"]


@pytest.fixture(params=["disk", "S3", "neither"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "disk":
        return LocalStorage(tmp_path)
    if request.param == "neither":
        return RemoteStorage(LocalFileSystem(), str(tmp_path))
    endpoint = request.getfixturevalue("s3_server")
    bucket = f"fence-{tmp_path.name[-20:].replace('_', '-').lower()}".rstrip("-")
    make_bucket(endpoint, bucket)
    host = endpoint.partition("://")[2]
    return open_storage(f"s3://test:test@{bucket}/log?endpoint_override={host}&scheme=http&region=us-east-1")


def test_epochs_grow_over_restarts(storage: Storage) -> None:
    first = Fence(storage, "fences/f.json")
    assert [first.advance(plan(5, 7)), first.advance(plan(5, 7))] == [1, 2]
    first.check(now=True)
    second = Fence(storage, "fences/f.json")
    assert second.take() == 3
    assert second.planned == (5, 7), "the interval of the attempt that was under way"
    assert second.advance(plan(7, 9)) == 4
    assert Fence(storage, "fences/f.json", floor=100).advance(plan(9, 10)) == 101


def test_a_driver_that_was_taken_over_writes_nothing(storage: Storage) -> None:
    """It may wake up at any time. Neither its old epoch nor a new one that it takes is in force."""
    old, new = Fence(storage, "e"), Fence(storage, "e")
    old.advance(plan(1, 2))
    new.take()
    with pytest.raises(Fenced, match="epoch 2 of the driver"):
        old.advance(plan(1, 2))
    with pytest.raises(Fenced):
        old.check(now=True)
    with pytest.raises(Fenced, match=new.driver):
        old.advance(plan(2, 3))
    assert new.advance(plan(1, 2)) == 3
    new.check(now=True)


def test_drivers_that_come_at_the_same_time(storage: Storage) -> None:
    """Every epoch is one driver's."""
    if not (storage.local or storage.can_swap):
        pytest.skip("such a store keeps nobody out who comes at the very same time")
    drivers = [Fence(storage, "e") for _ in range(4)]
    taken: list[int] = []
    threads = [threading.Thread(target=lambda d=d: taken.append(d.take())) for d in drivers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(taken)) == len(drivers)
    newest = [d for d in drivers if d.epoch == max(taken)]
    assert newest[0].advance(plan(1, 2)) == max(taken) + 1


def test_tasks_see_the_epoch_that_is_in_force(tmp_path: Path) -> None:
    fence = Fence.at(tmp_path)
    look = FenceCheck(fence.place, fence.advance(plan(1, 2)))
    look()
    fence.advance(plan(1, 2))
    with pytest.raises(Fenced, match="epoch 1 is over: 2 has begun"):
        look()


def test_a_remote_fence_is_not_read_at_each_look(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_bucket(s3_server, "looks")
    storage = open_storage(f"s3://test:test@looks/log?endpoint_override={s3_server.partition('://')[2]}&scheme=http&region=us-east-1")
    fence = Fence(storage, "fences/f.json")
    look = FenceCheck(fence.place, fence.advance(plan(1, 2)))
    reads: list[int] = []
    read = look._read
    monkeypatch.setattr(look, "_read", lambda: (reads.append(1), read())[1])
    monkeypatch.setattr(fences.time, "monotonic", lambda: 50.0)
    for _ in range(10):
        look()
    assert len(reads) == 1
    look(now=True)
    assert len(reads) == 2
    fence.advance(plan(1, 2))
    look()
    monkeypatch.setattr(fences.time, "monotonic", lambda: 51.1)
    with pytest.raises(Fenced):
        look()


def test_a_machine_that_does_not_see_the_log_says_so(tmp_path: Path) -> None:
    with pytest.raises(BrokenFence, match="is not there for") as caught:
        FenceCheck(str(tmp_path / "fences/f.json"), 1)()
    assert "Executors have to reach the change log" in caught.value.hint


@pytest.mark.parametrize("text", ["x", "[1]", '{"epoch": "many"}', '{"epoch": null}'])
def test_a_broken_fence_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "epoch").write_text(text)
    fence = Fence.at(tmp_path)
    for ask in (fence.take, FenceCheck(fence.place, 1)):
        with pytest.raises(FeedBroken, match="/epoch"):
            ask()


def test_a_storage_that_is_away_can_be_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fence = Fence.at(tmp_path)
    mount = Mount(tmp_path, monkeypatch)
    asks: list[Callable[[], object]] = [fence.take, FenceCheck(fence.place, 1)]
    for ask in asks:
        mount.number = errno.EIO
        with pytest.raises(LogUnavailable, match="Input/output error"):
            ask()
        mount.number = None
        ask()


def test_what_stands_in_it(tmp_path: Path) -> None:
    fence = Fence.at(tmp_path)
    fence.advance(plan(3, 4))
    assert json.loads((tmp_path / "epoch").read_text()) == {"from_ts": 3, "to_ts": 4, "epoch": 1, "driver": fence.driver}
