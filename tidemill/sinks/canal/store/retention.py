"""Removes what no client needs any more from the begin of an entry store.

What all known clients have acknowledged may go, and what is past the limits of age and size, whoever needs it. First the store's begin
moves, then files go: so a client that is behind is told, and never finds a hole.
"""

from __future__ import annotations

import re

from tidemill import statefile
from tidemill.changelog.storage.base import Storage
from tidemill.sinks.canal.store import names
from tidemill.sinks.canal.store.names import CLIENTS, ENTRIES, IntervalName, SegmentName
from tidemill.sinks.canal.store.publish import StorePublisher
from tidemill.tso import LOGICAL_BITS

_CLIENT = re.compile(r"[^/]+/[^/.][^/]*\.json")


def acknowledged(storage: Storage) -> int | None:
    """The commit_ts up to which all known clients have acknowledged everything; None: no client is known.

    Of the commit_ts at which a client is, it may not have acknowledged all entries: that ts does not count.
    """
    found: list[int] = []
    for name in storage.below(CLIENTS):
        if _CLIENT.fullmatch(name):
            data = storage.read(f"{CLIENTS}/{name}")
            if data is not None:  # else it was forgotten meanwhile
                found.append(_position(data, storage.path(f"{CLIENTS}/{name}")))
    return min(found) - 1 if found else None


def _position(data: bytes, name: str) -> int:
    return statefile.read(data, name).integer("commit_ts")


def removable(head: int, acked: int | None, segments: list[tuple[SegmentName, int]], age_ms: int | None, size: int | None) -> int:
    """What lies at or below this commit_ts may go. `segments`: all of them, with their bytes. Pure."""
    limit = acked or 0
    if age_ms is not None:
        limit = max(limit, head - (age_ms << LOGICAL_BITS))
    if size is not None:
        kept = 0
        for name, taken in sorted(segments, reverse=True):
            kept += taken
            if kept > size:
                limit = max(limit, name.to_ts)
                break
    return min(limit, head)


def retain(storage: Storage, publisher: StorePublisher, age_ms: int | None, size: int | None) -> int:
    """Remove what may go; returns where the store begins then. The publisher owns the store."""
    hours = sorted(hour for hour in storage.subfolders(ENTRIES) if names.is_hour(hour))
    sizes = _sizes(storage, hours) if size is not None else []
    limit = removable(publisher.head, acknowledged(storage), sizes, age_ms, size)
    if limit <= publisher.begins:
        return publisher.begins
    publisher.begin_at(limit)
    _remove(storage, hours, limit)
    return publisher.begins


def _sizes(storage: Storage, hours: list[str]) -> list[tuple[SegmentName, int]]:
    files = [file for hour in hours for file in storage.entries(f"{ENTRIES}/{hour}")]
    return [(one, file.size) for file in files if (one := names.parse_segment(file.name)) is not None]


def _remove(storage: Storage, hours: list[str], limit: int) -> None:
    """Remove intervals that end at or below `limit`, and the segments before the first interval that stays."""
    last = names.hour_of(limit)
    intervals: list[IntervalName] = []
    segments: list[SegmentName] = []
    for hour in hours:
        files = storage.names(f"{ENTRIES}/{hour}")
        intervals += [one for name in files if (one := names.parse_interval(name)) is not None]
        segments += [segment for name in files if (segment := names.parse_segment(name)) is not None]
        if hour > last and any(one.to_ts > limit for one in intervals):
            break
    begin = min((one.from_ts for one in intervals if one.to_ts > limit), default=limit)
    begin = min(begin, limit)
    for one in intervals:
        if one.to_ts <= limit:
            storage.delete(f"{ENTRIES}/{one}")
    for segment in segments:
        if segment.to_ts <= begin:
            storage.delete(f"{ENTRIES}/{segment}")
    for hour in hours:
        if hour < names.hour_of(begin):
            storage.delete_folder(f"{ENTRIES}/{hour}")
