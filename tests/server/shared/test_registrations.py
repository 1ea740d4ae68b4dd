"""What a server registers in the log, held against its list of changefeeds: whatever was under way when a server died is finished or undone
by the next one, and nothing that is removed comes back.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelog.logs import START
from tests.support.changelog.memory_storage import Bucket, MemoryStorage
from tests.support.delivery.feeds import World
from tidemill import tso
from tidemill.changefeed.states import State
from tidemill.changelog import feeds
from tidemill.changelog.reader import LogReader, read_feeds
from tidemill.changelog.storage import durable
from tidemill.changelog.storage.open import LocalStorage
from tidemill.errors import DiskLow, Fenced
from tidemill.server.changefeeds.feed_store import FeedStore
from tidemill.server.changefeeds.log_claims import register
from tidemill.server.errors import LogNotKept
from tidemill.server.feeds import FeedFiles
from tidemill.server.life import Trouble
from tidemill.server.settings import FeedSettings

AT = tso.SavedTs(START)


class Killed(BaseException):
    """The process dies."""


@pytest.fixture
def log(tmp_path: Path) -> str:
    return World.make(transactions=10).log(tmp_path / "log")


def settings(name: str) -> FeedSettings:
    return FeedSettings(name, "blackhole://", START, 1.0, "1.0", "7")


def served(log: str, data: Path, term: int) -> tuple[FeedFiles, list[str]]:
    files = FeedFiles(data, log)
    _, found = files.take(term, f"server {term}")
    return files, [one.id for one in found]


def creates(files: FeedFiles, log: str) -> None:
    """As the API does."""
    feed = files.begin(settings("f"))
    feeds.register(log, "f", files.saved(feed), of=feeds.SERVER)
    files.confirm(feed)


def steps(monkeypatch: pytest.MonkeyPatch, dies_at: int | None) -> list[str]:
    """Count every change of a file and every removal; die before one of them."""
    made: list[str] = []

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **given: Any) -> Any:
            if dies_at is not None and len(made) >= dies_at:
                raise Killed
            made.append(f"{name} {args[1] if name != 'put' else args[0]}")
            return call(*args, **given)

        return step

    monkeypatch.setattr(durable, "put", counted("put", durable.put))
    for name in ("draft", "delete", "delete_folder"):
        monkeypatch.setattr(LocalStorage, name, counted(name, getattr(LocalStorage, name)))
    monkeypatch.setattr(FeedFiles, "_clear", counted("clear", FeedFiles._clear))
    return made


@pytest.mark.parametrize("what", ["create", "remove"])
def test_killed_at_any_step_it_is_whole_or_gone(log: str, tmp_path: Path, what: str) -> None:
    number, last = 0, False
    while not last:
        files, _ = served(log, tmp_path / f"a{number}", 2 * number + 1)
        if what == "remove":
            creates(files, log)
        feed = files.made(settings("f"))
        with pytest.MonkeyPatch.context() as patch:
            steps(patch, number)
            try:
                creates(files, log) if what == "create" else files.remove(feed)
                last = True
            except Killed:
                pass
        after, names = served(log, tmp_path / f"b{number}", 2 * number + 2)
        assert sorted(LogReader(log).feeds()) == names, f"step {number}"
        if "f" in names:
            assert not after._records.known("f").others, "it is confirmed"  # type: ignore[union-attr]
            after.remove(after.made(settings("f")))
        assert LogReader(log).feeds() == {}
        assert LocalStorage(log).subfolders("server/changefeeds") == []
        number += 1
    assert number > 4


def test_an_error_that_is_answered_leaves_nothing_that_comes_alive(log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data directory cannot be used."""
    files, _ = served(log, tmp_path / "a", 1)

    def full(*args: object, **given: object) -> None:
        raise DiskLow("no room")

    with monkeypatch.context() as patch:
        patch.setattr(FeedFiles, "_prepare", full)
        with pytest.raises(DiskLow):
            files.begin(settings("f"))
    assert served(log, tmp_path / "b", 2)[1] == []
    assert LogReader(log).feeds() == {}


def test_a_host_of_an_earlier_term_registers_nothing_again(log: str, tmp_path: Path) -> None:
    """It was about to tell the log how far it is when the next server led, and its changefeed was removed."""
    files, _ = served(log, tmp_path / "a", 1)
    creates(files, log)
    late = feeds.registered(log, "f")
    after, names = served(log, tmp_path / "b", 2)
    assert names == ["f"]
    after.remove(after.made(settings("f")))
    late.update(tso.SavedTs(START + 5))
    assert LogReader(log).feeds() == {}
    creates(after, log)
    late.update(tso.SavedTs(START + 5))
    assert LogReader(log).feeds() == {"f": START}, "what was registered since is another one's"
    with pytest.raises(Fenced):
        files.folder("f").save_checkpoint(START + 5)


def overwrites(files: FeedFiles, log: str, ts: int) -> None:
    """As `resume --overwrite-checkpoint-ts` does."""
    feed = files.made(settings("f"))
    files.fence_off(feed)
    saved = files.saved(feed)
    if ts < saved:
        register(log, "f", tso.SavedTs(ts), files.epoch(feed))
    files.overwrite(feed, ts)
    if ts >= saved:
        register(log, "f", tso.SavedTs(ts), files.epoch(feed))


def delivered(files: FeedFiles, log: str, ts: int) -> feeds.Registration:
    """What a driver that has delivered up to a ts leaves."""
    feed, fence, folder = files.made(settings("f")), files._fence_of("f"), files.folder("f")
    registration = feeds.register(log, "f", files.saved(feed), of=feeds.SERVER, epoch=fence.look())
    epoch = fence.take()
    folder.claim(fence.driver, epoch)
    registration.update(files.saved(feed), epoch)
    folder.save_checkpoint(ts)
    registration.update(tso.SavedTs(ts), epoch)
    return registration


def test_a_checkpoint_that_was_moved_back_is_kept_whoever_registers_late(log: str, tmp_path: Path) -> None:
    files, _ = served(log, tmp_path / "a", 1)
    creates(files, log)
    driver = delivered(files, log, START + 8)
    seen, read = files.epoch(files.made(settings("f"))), files.saved(files.made(settings("f")))  # of a start that stands still
    overwrites(files, log, START + 3)
    driver.update(tso.SavedTs(START + 8))
    with pytest.raises(Fenced):
        feeds.register(log, "f", read, of=feeds.SERVER, epoch=seen)
    assert LogReader(log).feeds() == {"f": START + 3}
    between = feeds.epoch_of(LocalStorage(log), "f")  # of a start that read the checkpoint before it was overwritten
    feeds.register(log, "f", read, of=feeds.SERVER, epoch=between)
    assert LogReader(log).feeds() == {"f": START + 3}
    overwrites(files, log, START + 9)
    assert LogReader(log).feeds() == {"f": START + 9}


def test_a_start_of_an_earlier_term_that_dies_when_it_has_registered_late(log: str, tmp_path: Path) -> None:
    """The driver that delivers moves the feed all the same."""
    files, _ = served(log, tmp_path / "a", 1)
    creates(files, log)
    seen = files.epoch(files.made(settings("f")))
    driver = feeds.register(log, "f", AT, of=feeds.SERVER, epoch=seen)
    feeds.register(log, "f", AT, of=feeds.SERVER, epoch=seen)  # the same epoch: the other one has not taken the fence yet
    driver.update(tso.SavedTs(START + 4), seen + 1)
    assert LogReader(log).feeds() == {"f": START + 4}


def test_what_the_log_keeps_for_an_expired_changefeed_is_released_while_the_server_leads(log: str, tmp_path: Path) -> None:
    """A start that was frozen registered it again."""
    files, _ = served(log, tmp_path / "a", 1)
    creates(files, log)
    store = FeedStore(files)
    feed = files.made(settings("f"), State.FAILED, Trouble(LogNotKept.code, "gc-ttl is over", 1.0, 1.0))
    store.load([feed])
    assert feed.released
    asyncio.run(store.reconcile())
    assert LogReader(log).feeds() == {}
    feed.released = False  # it is being resumed
    register(log, "f", AT, files.epoch(feed))
    asyncio.run(store.reconcile())
    assert LogReader(log).feeds() == {"f": START}


def test_a_registration_that_woke_late_is_removed_and_others_stay(log: str, tmp_path: Path) -> None:
    files, _ = served(log, tmp_path / "a", 1)
    creates(files, log)
    feeds.register(log, "ghost", AT, of=feeds.SERVER)
    feeds.register(log, "nightly", AT)  # of `tidemill run`
    files.reconcile()
    assert sorted(LogReader(log).feeds()) == ["f", "nightly"]


def test_one_that_was_registered_again_meanwhile_stays(log: str) -> None:
    feeds.register(log, "f", AT, of=feeds.SERVER)

    def known() -> list[str]:
        feeds.register(log, "f", AT, of=feeds.SERVER)
        return []

    assert feeds.remove_of_servers(LocalStorage(log), known) == []
    assert LogReader(log).feeds() == {"f": START}


def test_a_removed_changefeed_leaves_no_folder(log: str, tmp_path: Path) -> None:
    files, _ = served(log, tmp_path / "a", 1)
    creates(files, log)
    folder = files.folder("f")
    files.remove(files.made(settings("f")))
    assert not folder.path.exists()
    durable.write_json(folder.delivery, {"state": "normal"})  # a thread of the host was late
    kept = files.folder("run")
    kept.settle(replace(kept_identity(), changefeed="run"), start_given=True)
    assert served(log, tmp_path / "a", 2)[1] == []
    assert not folder.path.exists()
    assert kept.path.exists(), "a changefeed of `tidemill run` in the same data directory"


def kept_identity() -> Any:
    from tidemill.changefeed.feed_folder import FeedIdentity

    return FeedIdentity("f", "7", "log", "blackhole:", {}, "UTC", START)


def test_on_an_object_store_what_is_removed_is_marked() -> None:
    storage = MemoryStorage(Bucket())
    for name in ("ghost", "f"):
        storage.replace(f"feeds/{name}.json", json.dumps({"checkpoint_ts": START, "by": name, "of": feeds.SERVER}).encode())
    assert feeds.remove_of_servers(storage, lambda: ["f"]) == ["ghost"]
    assert read_feeds(storage) == {"f": START}
    feeds.Registration(storage, "ghost", "ghost").update(AT)
    assert read_feeds(storage) == {"f": START}
    assert feeds.remove_of_servers(storage, lambda: ["f"]) == []
