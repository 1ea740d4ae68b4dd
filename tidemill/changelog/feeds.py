"""Changefeeds that need the log: feeds/<changefeed>.json with the checkpoint. Retention keeps everything above the smallest checkpoint.

A feed belongs to its changefeed, not to the log's writer. Each registration has a mark of its own, and the epoch of the changefeed's
fence as its process knew it before it read the checkpoint. A later epoch replaces an earlier one and moves it; an earlier one changes
nothing, so a start that was frozen cannot bring back the checkpoint that it had read. Within one epoch the one that registered last moves
the feed, from the lower checkpoint on. A process whose changefeed was removed moves nothing any more.

A registration may race with retention. The feed writes its file, then reads log.json's start. Retention writes log.json, then reads the
feeds again, and takes its step back if a feed has appeared.

A replay is a feed as long as it runs, under a name that no changefeed can have. It writes its file again and again: retention removes one
that has been silent for an hour, because its process was killed. A streaming query of Spark is one too. Nobody says when it is over, so its
file names the time without a word after which it is.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tidemill import statefile
from tidemill.changelog import log_format
from tidemill.changelog.reader import read_feeds, read_identity
from tidemill.changelog.storage.flock import FolderLock
from tidemill.changelog.storage.open import Storage, open_storage
from tidemill.changelog.storage.state_file import StateFile
from tidemill.errors import DiskLow, Fenced, LogCorrupt, LogRefused, LogUnavailable, StartTsOutOfLog, redact
from tidemill.tso import SavedTs, describe

REPLAY = "replay."
"""How names of replays begin. An id of a changefeed has no dot."""
QUERY = "query."
"""How names of streaming queries begin."""
SILENT_S = 3600.0
"""Seconds without a word after which a replay counts as dead."""
TELL_EVERY_S = 5.0
"""How often a replay or a query says how far it is, at most."""
REGISTER_EVERY_S = 60.0

_FEED_FILE = statefile.Kind(LogCorrupt, "`tidemill log forget` removes it.", may_be_lost=True)
"""One that is cut holds all of the log, see `read_feeds`."""

log = logging.getLogger(__name__)


def _file(feed: str) -> str:
    return f"{log_format.FEEDS}/{log_format.feed_name(feed)}"


SERVER = "server"
"""What registered a feed: a server, which keeps the list of its changefeeds in LOG/server/state.json."""


class Registration:
    """A feed as one process registered it. Once another one has registered it in the same epoch or a later one, or it is removed, `update`
    changes nothing."""

    def __init__(self, storage: Storage, feed: str, by: str, of: str = "", epoch: int = 0, silent_s: float = 0.0) -> None:
        """`by`: the registration's own mark. `of`: what registered it, SERVER or nothing. `epoch`, `silent_s`: see `register`."""
        self._file, self._by, self._of = _state_file(storage, feed, durable=False), by, of
        self._epoch, self._silent_s = epoch, silent_s

    def update(self, checkpoint_ts: SavedTs, epoch: int = 0) -> None:
        """Move the checkpoint: the feed needs nothing at or below `checkpoint_ts` any more. `epoch`: in which the process delivers by now.
        Raises LogUnavailable, LogRefused, DiskLow."""
        self._epoch = max(self._epoch, epoch)
        # Not synced: a crash of the machine can only bring back an older checkpoint, which keeps more.
        self._file.change(lambda found: self._moved(found, checkpoint_ts))

    def _moved(self, found: bytes | None, checkpoint_ts: SavedTs) -> bytes | None:
        if found is None or found == log_format.REMOVED_FEED:
            return None
        known = _known(found)
        if known is not None and (known.epoch > self._epoch or (known.epoch == self._epoch and known.by != self._by)):
            return None
        return _content(checkpoint_ts, self._by, self._of, self._epoch, self._silent_s)


@dataclass(frozen=True, slots=True)
class _Known:
    """What a feed's file says. One of an earlier version has no mark and no epoch."""

    checkpoint_ts: int
    by: str = ""
    of: str = ""
    epoch: int = 0


def _state_file(storage: Storage, feed: str, *, durable: bool = True) -> StateFile:
    lock = FolderLock(storage.path(_lock(feed))) if storage.local else None
    return StateFile(storage, _file(feed), lock=lock, durable=durable)


def _lock(feed: str) -> str:
    """A feed's lock, without its suffix: a name that no feed can have."""
    return f"{log_format.FEEDS}/.{feed}"


def _content(checkpoint_ts: int, by: str, of: str, epoch: int, silent_s: float = 0.0) -> bytes:
    more = {name: value for name, value in (("of", of), ("epoch", epoch), ("silent_s", silent_s)) if value}
    return (json.dumps({"checkpoint_ts": checkpoint_ts, "by": by} | more) + "\n").encode()


def _known(found: bytes | None) -> _Known | None:
    """None: there is no feed, or its file is cut."""
    fields = statefile.whole(found, "a feed", _FEED_FILE)
    usable = statefile.fitting(_Known, fields.others()) if fields is not None else {}
    return _Known(**usable) if "checkpoint_ts" in usable else None


def epoch_of(storage: Storage, feed: str) -> int:
    """The epoch in which a feed was registered or moved last; 0 without one. Raises LogUnavailable."""
    known = _known(storage.read(_file(feed)))
    return known.epoch if known is not None else 0


def register(
    location: str | Path | Storage, feed: str, checkpoint_ts: SavedTs, *, of: str = "", epoch: int = 0, silent_s: float = 0.0
) -> Registration:
    """Register a changefeed: the log keeps everything above `checkpoint_ts` for it from now on. What registered it before moves it no more,
    unless it is of a later epoch. `of`: see `Registration`. `epoch`: of the changefeed's fence, before the checkpoint was read. `silent_s`:
    seconds without a word after which a query counts as over.

    Raises StartTsOutOfLog, without registering the feed, if some of it is gone already; Fenced if it is registered in a later epoch.
    """
    storage = open_storage(location)
    file, by = _state_file(storage, feed), uuid.uuid4().hex
    before: bytes | None = None

    def registered(found: bytes | None) -> bytes:
        nonlocal before
        before, known = found, _known(found)
        if known is not None and known.epoch > epoch:
            raise Fenced(
                f"{redact(file.place)} is of epoch {known.epoch}; this start read the checkpoint of changefeed {feed} in epoch {epoch}",
                hint="Another driver has taken the changefeed over; this one stops.",
            )
        # What a person has moved back meanwhile stays.
        kept = known.checkpoint_ts if known is not None and known.epoch == epoch else checkpoint_ts
        return _content(min(checkpoint_ts, kept), by, of, epoch, silent_s)

    file.change(registered)
    start_ts = read_identity(storage).start_ts
    if checkpoint_ts < start_ts:
        if before is None:
            storage.delete(_file(feed))
        else:
            file.change(lambda found: before if (known := _known(found)) is not None and known.by == by else None)
        raise StartTsOutOfLog(
            f"changefeed {feed} needs changes from {describe(checkpoint_ts)} on, {redact(storage.location)} begins at {describe(start_ts)}",
            hint="Start the changefeed again at a later ts.",
        )
    return Registration(storage, feed, by, of, epoch, silent_s)


def registered(location: str | Path | Storage, feed: str) -> Registration:
    """Return a registration that was made before, by another process of the same owner, as it stands now."""
    storage = open_storage(location)
    known = _known(storage.read(_file(feed)))
    return Registration(storage, feed, known.by, known.of, known.epoch) if known is not None else Registration(storage, feed, "")


def remove(location: str | Path | Storage, feed: str) -> None:
    """Remove a changefeed: it does not need the log any more."""
    storage = open_storage(location)
    storage.delete(_file(feed))
    if is_passing(feed):  # only one process ever used its lock
        storage.delete(f"{_lock(feed)}.lock")


def remove_of_servers(storage: Storage, known: Callable[[], Iterable[str]]) -> list[str]:
    """Remove what a server registered and no server needs any more. Return their names. `known`: gives the changefeeds that need the log.
    It is asked after the feeds are listed, because a server writes a changefeed down before it registers it.

    One that was registered again meanwhile stays: it is removed only as it was listed.
    """
    listed = {}
    for name in read_feeds(storage):
        data = storage.read(_file(name))
        feed = _known(data)
        if data is not None and feed is not None and feed.of == SERVER:
            listed[name] = data
    gone = listed.keys() - set(known()) if listed else set()
    return sorted(name for name in gone if _remove_as(storage, name, listed[name]))


def _remove_as(storage: Storage, feed: str, content: bytes) -> bool:
    """Remove a feed if its file is still so. An object store cannot do that in one step: it is first marked as removed."""
    if not storage.can_swap:
        with FolderLock(storage.path(_lock(feed))) if storage.local else nullcontext():
            if storage.read(_file(feed)) != content:
                return False
            storage.delete(_file(feed))
            return True
    return _state_file(storage, feed).change(lambda found: log_format.REMOVED_FEED if found == content else None) is not None


def is_passing(feed: str) -> bool:
    """Return whether a feed is a replay or a query, which runs or is over; else it is a changefeed or a view."""
    return feed.startswith((REPLAY, QUERY))


@contextmanager
def replaying(storage: Storage, from_ts: int) -> Iterator[Callable[[int], None]]:
    """Let the log keep everything above `from_ts` while a replay runs. Yields what takes the ts up to which it is done. Nobody goes on with
    a replay that ends: what it has done in memory it never needs again.

    Raises StartTsOutOfLog if some of it is gone already. Where the log cannot be written the replay goes on without: if retention passes
    it, it ends with StartTsOutOfLog.
    """
    name = f"{REPLAY}{uuid.uuid4().hex}"
    try:
        registration = register(storage, name, SavedTs(from_ts))
    except _NOT_WRITTEN as error:
        log.warning("the log does not wait for this replay, because %s cannot be written: %s", redact(storage.location), error.message)
        yield lambda ts: None
        return
    told_at = time.monotonic()

    def tell(ts: int) -> None:
        nonlocal told_at
        if time.monotonic() - told_at < TELL_EVERY_S:
            return
        told_at = time.monotonic()
        try:
            registration.update(SavedTs(ts))
        except _NOT_WRITTEN as error:  # the log keeps more than it has to
            log.debug("%s: %s", name, error.message)

    try:
        yield tell
    finally:
        try:
            remove(storage, name)
        except _NOT_WRITTEN as error:
            log.warning("%s holds the log for an hour, or until `tidemill log forget`: %s", name, error.message)


class Lease:
    """Lets the log keep what a query has still to read, until it has said nothing for a while. Not safe for threads."""

    def __init__(self, storage: Storage, query: str, silent_s: float) -> None:
        """`query`: which query it is, also after a restart. `silent_s`: how long the log waits without a word."""
        self._storage, self._name, self._silent_s = storage, f"{QUERY}{query}", silent_s
        self._registration: Registration | None = None
        self._told_at = self._registered_at = float("-inf")
        self._ts = 0

    def hold(self, ts: int, *, now: bool = False) -> None:
        """Say that the query is there, and has all up to `ts`. A ts below an earlier one changes nothing. `now`: however short a while ago
        it said so before. Raises StartTsOutOfLog if some of what it needs is gone already."""
        self._ts = max(self._ts, ts)
        said = time.monotonic()
        if said - self._told_at < TELL_EVERY_S and not now:
            return
        self._told_at = said
        try:
            if self._registration is None or said - self._registered_at > REGISTER_EVERY_S:  # it may have been forgotten
                self._registration = register(self._storage, self._name, SavedTs(self._ts), silent_s=self._silent_s)
                self._registered_at = said
            else:
                self._registration.update(SavedTs(self._ts))
        except _NOT_WRITTEN as error:
            level = logging.DEBUG if self._registration is not None else logging.WARNING
            log.log(level, "the log does not wait for %s, because it cannot be written: %s", self._name, error.message)


_NOT_WRITTEN = DiskLow, LogRefused, LogUnavailable


def forget_silent(storage: Storage, now: float) -> None:
    """Remove replays that were killed, those without a word for an hour, and queries that are over. `now`: Unix seconds."""
    if not any(map(is_passing, storage.names(log_format.FEEDS))):
        return
    for entry in storage.entries(log_format.FEEDS):
        name = entry.name.removesuffix(".json")
        silent_s = now - entry.modified
        if is_passing(name) and name != entry.name and silent_s > _patience(storage, name):
            log.warning("the log does not wait any more for %s, which has said nothing for %.0f minutes", name, silent_s / 60)
            remove(storage, name)


def _patience(storage: Storage, feed: str) -> float:
    """Seconds without a word after which a replay or a query is over."""
    fields = statefile.whole(storage.read(_file(feed)), feed, _FEED_FILE)
    return SILENT_S if fields is None else fields.number("silent_s", default=SILENT_S)


def slowest(storage: Storage) -> tuple[str, int] | None:
    """Return the changefeed with the smallest checkpoint, and that checkpoint; None without changefeeds."""
    found = read_feeds(storage)
    if not found:
        return None
    name = min(found, key=lambda feed: (found[feed], feed))
    return name, found[name]
