"""Harmless changes to a store's messages: the same events in more or fewer messages, rows of one write in any order, repeated prewrites,
and the empty prewrites of old stores."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tidemill.kernels.receive.layout import PREWRITE, PUT
from tidemill.wire import cdcpb_pb2 as cdcpb


def cut(message: bytes, random: Random) -> Iterator[bytes]:
    """The same events in more messages: each Event's rows in several Events, each in a message of its own, or some together."""
    whole = cdcpb.ChangeDataEvent.FromString(message)
    if whole.HasField("resolved_ts"):
        regions = list(whole.resolved_ts.regions)
        at = random.randrange(len(regions) + 1)
        for part in filter(None, (regions[:at], regions[at:])):
            resolved = cdcpb.ResolvedTs(regions=part, ts=whole.resolved_ts.ts, request_id=whole.resolved_ts.request_id)
            yield cdcpb.ChangeDataEvent(resolved_ts=resolved).SerializeToString()
        return
    waiting = cdcpb.ChangeDataEvent()
    for event in whole.events:
        for piece in _parts(_shuffled(event, random), random):
            waiting.events.append(piece)
            if random.random() < 0.5:
                yield waiting.SerializeToString()
                waiting = cdcpb.ChangeDataEvent()
    if waiting.events:
        yield waiting.SerializeToString()


def without_regions(message: bytes, silent: set[int]) -> bytes | None:
    """The message without the resolved ts of these regions; None when nothing is left of it."""
    event = cdcpb.ChangeDataEvent.FromString(message)
    if not event.HasField("resolved_ts"):
        return message
    kept = [r for r in event.resolved_ts.regions if r not in silent]
    del event.resolved_ts.regions[:]
    event.resolved_ts.regions.extend(kept)
    return event.SerializeToString() if kept else None


def _shuffled(event: cdcpb.Event, random: Random) -> cdcpb.Event:
    """A store's order of one write's rows is a hash map's; here and there a prewrite twice, or once more without its value."""
    rows = list(event.entries.entries)
    if event.WhichOneof("event") != "entries" or not rows[-1].key:  # INITIALIZED stays last
        return event
    if len({row.key for row in rows}) == len(rows):
        random.shuffle(rows)
    told = []
    for row in rows:
        told.append(row)
        if row.type == PREWRITE and random.random() < 0.1:
            again = cdcpb.Event.Row.FromString(row.SerializeToString())
            if row.op_type == PUT and random.random() < 0.7:
                again.value = b""
            told.append(again)
    changed = cdcpb.Event(region_id=event.region_id, index=event.index, request_id=event.request_id)
    changed.entries.entries.extend(told)
    return changed


def _parts(event: cdcpb.Event, random: Random) -> Iterator[cdcpb.Event]:
    rows = list(event.entries.entries)
    if event.WhichOneof("event") != "entries" or len(rows) < 2:
        yield event
        return
    while rows:
        n = random.randint(1, len(rows))
        piece = cdcpb.Event(region_id=event.region_id, index=event.index, request_id=event.request_id)
        piece.entries.entries.extend(rows[:n])
        yield piece
        rows = rows[n:]
