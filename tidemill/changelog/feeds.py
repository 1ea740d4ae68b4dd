"""Changefeeds that need the log: feeds/<changefeed>.json with the checkpoint. Retention keeps everything above the smallest checkpoint.

A feed belongs to its changefeed, not to the log's writer. A registration may race with retention. The feed writes its file, then reads
log.json's start. Retention writes log.json, then reads the feeds again, and takes its step back if a feed has appeared.
"""

from __future__ import annotations

from pathlib import Path

from tidemill.changelog import log_format
from tidemill.changelog.reader import read_feeds, read_identity
from tidemill.changelog.storage.open import Storage, open_storage
from tidemill.errors import StartTsOutOfLog, redact
from tidemill.tso import describe


def _file(feed: str) -> str:
    return f"{log_format.FEEDS}/{log_format.feed_name(feed)}"


def register(location: str | Path | Storage, feed: str, checkpoint_ts: int) -> None:
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


def update(location: str | Path | Storage, feed: str, checkpoint_ts: int) -> None:
    """Move a changefeed's checkpoint: it needs nothing at or below `checkpoint_ts` any more."""
    # Not synced: a crash of the machine can only bring back an older checkpoint, which keeps more.
    open_storage(location).replace(_file(feed), log_format.format_ts_file("checkpoint_ts", checkpoint_ts), durable=False)


def remove(location: str | Path | Storage, feed: str) -> None:
    """Remove a changefeed: it does not need the log any more."""
    open_storage(location).delete(_file(feed))


def slowest(storage: Storage) -> tuple[str, int] | None:
    """Return the changefeed with the smallest checkpoint, and that checkpoint; None without changefeeds."""
    found = read_feeds(storage)
    if not found:
        return None
    name = min(found, key=lambda feed: (found[feed], feed))
    return name, found[name]
