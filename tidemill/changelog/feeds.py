"""Who still needs the log: feeds/<changefeed>.json with its checkpoint. Retention keeps what lies behind the smallest one.

A feed belongs to its changefeed, not to the log's writer. Registering and retention may meet: the feed writes its file and then
reads log.json's start; retention writes log.json and then reads the feeds again, and takes its step back if one has come.
"""

from __future__ import annotations

from pathlib import Path

from tidemill.changelog import layout
from tidemill.changelog.reader import read_feeds, read_identity
from tidemill.changelog.storage.open import Storage, open_storage
from tidemill.errors import StartTsOutOfLog, redact
from tidemill.tso import describe


def _file(feed: str) -> str:
    return f"{layout.FEEDS}/{layout.feed_name(feed)}"


def register(location: str | Path | Storage, feed: str, checkpoint_ts: int) -> None:
    """Let the log keep everything above `checkpoint_ts` for this changefeed, from now on.

    Raises StartTsOutOfLog if some of it is gone already; then the feed is not registered.
    """
    storage = open_storage(location)
    before = storage.read(_file(feed))
    storage.replace(_file(feed), layout.format_ts_file("checkpoint_ts", checkpoint_ts))
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
    """The changefeed is past `checkpoint_ts` and needs nothing at or below it any more."""
    # Unsynced: what a crash brings back is an older checkpoint, which keeps more.
    open_storage(location).replace(_file(feed), layout.format_ts_file("checkpoint_ts", checkpoint_ts), durable=False)


def remove(location: str | Path | Storage, feed: str) -> None:
    """The changefeed needs the log no more."""
    open_storage(location).delete(_file(feed))


def slowest(storage: Storage) -> tuple[str, int] | None:
    """The changefeed with the smallest checkpoint, and that; None without feeds."""
    found = read_feeds(storage)
    if not found:
        return None
    name = min(found, key=lambda feed: (found[feed], feed))
    return name, found[name]
