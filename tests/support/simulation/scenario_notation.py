"""How scenario files write what a store sends and what PD knows; see scenarios.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

from tests.support.capture.eventfeeds import Row
from tidemill.capture.tikv.model import Peer, Region
from tidemill.kernels.receive.layout import COMMIT, COMMITTED, DELETE, INITIALIZED, PREWRITE, PUT, ROLLBACK

UNKNOWN_TYPE = 77
_EVENT = re.compile(r"([A-Z]d?)(?:\(([^)]*)\))?")
_REGION = re.compile(r"(\d+):\[([^,]*),([^)]*)\)v(\d+)(?:c(\d+))?(?:@(\d+))?")


def parse_events(text: str, random: Random) -> Iterator[Row | int]:
    """Rows, and resolved ts as plain numbers."""
    for group in re.findall(r"\{[^}]*\}|[A-Z]d?(?:\([^)]*\))?", text):
        events = [_event(m[1], m[2] or "") for m in _EVENT.finditer(group)]
        if group.startswith("{"):
            random.shuffle(events)
        yield from events


def _event(kind: str, inner: str) -> Row | int:
    fields = [f.strip() for f in inner.split(",")] if inner else []
    generation = next((int(f[4:]) for f in fields if f.startswith("gen=")), 0)
    values = [f for f in fields if not f.startswith("gen=")]
    if kind == "T":
        return int(values[0])
    if kind == "I":
        return Row(type=INITIALIZED)
    if kind in ("U", "N") and not fields:
        return Row(type=UNKNOWN_TYPE if kind == "N" else 0)  # type: ignore[arg-type]
    key = values[0].encode()
    start = int(values[1])
    data = [b"" if v == "-" else v.encode() for v in values[2:]]
    if kind == "R":
        return Row(type=ROLLBACK, key=key, start_ts=start)
    op = DELETE if kind.endswith("d") else PUT
    if kind[0] == "P":
        value, old = ("", data[0]) if op == DELETE else (data[0], data[1] if len(data) > 1 else b"")
        return Row(type=PREWRITE, op_type=op, key=key, start_ts=start, value=value or b"", old_value=old, generation=generation)
    if kind == "U":
        return Row(type=UNKNOWN_TYPE, op_type=PUT, key=key, start_ts=start, commit_ts=int(values[2]), value=b"?")  # type: ignore[arg-type]
    if kind[0] == "C":
        return Row(type=COMMIT, op_type=op, key=key, start_ts=start, commit_ts=int(values[2]), value=data[1] if len(data) > 1 else b"")
    value, old = (b"", data[1]) if op == DELETE else (data[1], data[2] if len(data) > 2 else b"")
    return Row(type=COMMITTED, op_type=op, key=key, start_ts=start, commit_ts=int(values[2]), value=value, old_value=old)


def parse_region(text: str) -> Region:
    """`1:[a,m)v2@3`: id, range (- is open), version, leader's store; `c5` is the conf_ver, no @ no leader."""
    found = _REGION.fullmatch(text)
    assert found, text
    start, end = (b"" if key == "-" else key.encode() for key in (found[2], found[3]))
    leader = Peer(int(found[1]) * 10 + int(found[6]), int(found[6])) if found[6] else None
    return Region(int(found[1]), start, end, int(found[5] or 1), int(found[4]), leader)
