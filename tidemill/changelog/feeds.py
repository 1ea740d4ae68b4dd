"""Changefeeds that need the log: feeds/<changefeed>.json with the checkpoint. Retention keeps everything above the smallest checkpoint.

A feed belongs to its changefeed, not to the log's writer. A registration may race with retention. The feed writes its file, then reads
log.json's start. Retention writes log.json, then reads the feeds again, and takes its step back if a feed has appeared.

A replay is a feed as long as it runs, under a name that no changefeed can have. It writes its file again and again: retention removes one
that has been silent for an hour, because its process was killed.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemill.changelog import log_format
from tidemill.changelog.reader import read_feeds, read_identity
from tidemill.changelog.storage.open import Storage, open_storage
from tidemill.errors import DiskLow, LogRefused, LogUnavailable, StartTsOutOfLog, redact
from tidemill.tso import SavedTs, describe

REPLAY = "replay."
"""How names of replays begin. An id of a changefeed has no dot."""
SILENT_S = 3600.0
"""Seconds without a word after which a replay counts as dead."""
TELL_EVERY_S = 5.0
"""How often a replay says how far it is, at most."""

log = logging.getLogger(__name__)


def _file(feed: str) -> str:
    return f"{log_format.FEEDS}/{log_format.feed_name(feed)}"


def register(location: str | Path | Storage, feed: str, checkpoint_ts: SavedTs) -> None:
    """Register a changefeed: the log keeps everything above `checkpoint_ts` for it from now on.

    Raises StartTsOutOfLog, without registering the feed, if some of it is gone already.
    """
    storage = open_storage(location)
    before = storage.read(_file(feed))
    storage.replace(_file(feed), log_format.format_ts_file("checkpoint_ts", checkpoint_ts))
    start_ts = read_identity(storage).start_ts
    if checkpoint_ts < start_ts:
        if before is None:
            storage.delete(_file(feed))
        else:
            storage.replace(_file(feed), before)
        raise StartTsOutOfLog(
            f"changefeed {feed} needs changes from {describe(checkpoint_ts)} on, {redact(storage.location)} begins at {describe(start_ts)}",
            hint="Start the changefeed again at a later ts.",
        )


def update(location: str | Path | Storage, feed: str, checkpoint_ts: SavedTs) -> None:
    """Move a changefeed's checkpoint: it needs nothing at or below `checkpoint_ts` any more."""
    # Not synced: a crash of the machine can only bring back an older checkpoint, which keeps more.
    open_storage(location).replace(_file(feed), log_format.format_ts_file("checkpoint_ts", checkpoint_ts), durable=False)


def remove(location: str | Path | Storage, feed: str) -> None:
    """Remove a changefeed: it does not need the log any more."""
    open_storage(location).delete(_file(feed))


def is_replay(feed: str) -> bool:
    """Return whether a feed is a replay that runs, or was killed; else it is a changefeed or a view."""
    return feed.startswith(REPLAY)


@contextmanager
def replaying(storage: Storage, from_ts: int) -> Iterator[Callable[[int], None]]:
    """Let the log keep everything above `from_ts` while a replay runs. Yields what takes the ts up to which it is done. Nobody goes on with
    a replay that ends: what it has done in memory it never needs again.

    Raises StartTsOutOfLog if some of it is gone already. Where the log cannot be written the replay goes on without: if retention passes
    it, it ends with StartTsOutOfLog.
    """
    name = f"{REPLAY}{uuid.uuid4().hex}"
    try:
        register(storage, name, SavedTs(from_ts))
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
            update(storage, name, SavedTs(ts))
        except _NOT_WRITTEN as error:  # the log keeps more than it has to
            log.debug("%s: %s", name, error.message)

    try:
        yield tell
    finally:
        try:
            remove(storage, name)
        except _NOT_WRITTEN as error:
            log.warning("%s holds the log for an hour, or until `tidemill log forget`: %s", name, error.message)


_NOT_WRITTEN = DiskLow, LogRefused, LogUnavailable


def forget_silent(storage: Storage, now: float) -> None:
    """Remove replays that were killed: those without a word for an hour. `now`: Unix seconds."""
    if not any(map(is_replay, storage.names(log_format.FEEDS))):
        return
    for entry in storage.entries(log_format.FEEDS):
        name = entry.name.removesuffix(".json")
        if is_replay(name) and name != entry.name and now - entry.modified > SILENT_S:
            log.warning("the log does not wait any more for %s, which has said nothing for an hour", name)
            remove(storage, name)


def slowest(storage: Storage) -> tuple[str, int] | None:
    """Return the changefeed with the smallest checkpoint, and that checkpoint; None without changefeeds."""
    found = read_feeds(storage)
    if not found:
        return None
    name = min(found, key=lambda feed: (found[feed], feed))
    return name, found[name]
