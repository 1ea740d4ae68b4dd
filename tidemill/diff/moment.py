"""Which ts of the upstream a downstream is compared with."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from tidemill.diff.database import Database
from tidemill.diff.files import SqliteFile
from tidemill.diff.job import Place
from tidemill.errors import ConfigError
from tidemill.tso import describe, parse

log = logging.getLogger(__name__)

CHECKPOINT, SYNC_POINT = "checkpoint", "syncpoint"


def choose(place: Place, text: str | None, feed: str | None) -> tuple[Place, Callable[[int], int]]:
    """Return the downstream as it is to be read, and the function that takes the ts from the upstream's newest one.

    `text`: what --ts says. Raises ConfigError, and what the downstream raises.
    """
    with closing(place.open()) as downstream:
        if isinstance(downstream, SqliteFile):
            return place, _of_file(downstream, text)
        if text == SYNC_POINT:
            ts, there = downstream.sync_point()
            return replace(place, snapshot=place.snapshot or _of_tidb(downstream, there)), lambda newest: ts
        if text is None or text == CHECKPOINT:
            found = _checkpoint(downstream, feed, must=text is not None or feed is not None)
            if found is not None:
                return place, lambda newest: found
            text = None
    return place, _parsed(text)


def _parsed(text: str | None) -> Callable[[int], int]:
    return lambda newest: newest if text is None else parse(text, newest)


def _of_tidb(downstream: Database, ts: str) -> str:
    return ts if downstream.is_tidb else ""


def _of_file(downstream: SqliteFile, text: str | None) -> Callable[[int], int]:
    if text == SYNC_POINT:
        raise ConfigError("--ts syncpoint: an SQLite file has no sync points")
    flushed = downstream.flushed_ts()
    return _parsed(text) if text not in (None, CHECKPOINT) or not flushed else lambda newest: flushed


def _checkpoint(downstream: Database, feed: str | None, *, must: bool) -> int | None:
    feeds = downstream.feeds()
    if feed is None and len(feeds) > 1:
        raise ConfigError(f"{downstream.where} has the changefeeds {', '.join(sorted(feeds))}", hint="Say which one by --changefeed-id.")
    name = feed or next(iter(feeds), "")
    found = feeds.get(name)
    if found is None or not found.checkpoint_ts:
        if must:
            raise ConfigError(
                f"{downstream.where} has no checkpoint of {f'changefeed {name}' if name else 'any changefeed'}",
                hint="Say with --ts which state of the upstream it should have.",
            )
        return None
    if not found.is_whole:
        log.warning(
            "changefeed %s has begun to write what is above its checkpoint %s: rows of it may be named as different",
            *(name, describe(found.checkpoint_ts)),
        )
    return found.checkpoint_ts


def has_gone_on(place: Place, feed: str | None, ts: int) -> bool:
    """Return whether a changefeed has begun to write what is above a ts: then rows may differ because they changed meanwhile."""
    with closing(place.open()) as downstream:
        if isinstance(downstream, SqliteFile):
            return downstream.flushed_ts() > ts
        if place.snapshot:
            return False
        return any(state.to_ts > ts for name, state in downstream.feeds().items() if feed in (None, name))
