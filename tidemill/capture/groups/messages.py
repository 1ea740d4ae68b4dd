"""The messages between coordinator and groups: one JSON object per line. Pure.

    coordinator                       group
    Challenge(nonce)          ──▶
                              ◀──     Hello(group, attempt, …, nonce, proof)
    Assignment(…, proof)      ──▶              (or Refused)
    Head(ts, last_to)         ──▶              each time the schema stream gets further
                              ◀──     Report(section)         each second
    Stop()                    ──▶
                              ◀──     Ended(code, …)          the last word

Both ends prove that they know the capture's token by an HMAC over both nonces; the token itself is never sent.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any

from tidemill.errors import MalformedMessage

LONGEST = 16 << 20
"""Bytes of a line at most: a report lists partitions and stuck regions."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """The coordinator's first message."""

    nonce: str


@dataclass(frozen=True, slots=True)
class Hello:
    """A group introduces itself. `attempt` grows with each start of a group. `task`: Spark's id of the task attempt, -1 for a process."""

    group: int
    attempt: int
    pid: int
    host: str
    task: int
    nonce: str
    proof: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The group's work: its partitions, the capture's settings, and how far the schema stream is (see Head)."""

    partitions: tuple[int, ...]
    cluster_id: str
    settings: Mapping[str, Any]
    head: int
    last_to: int
    proof: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Refused:
    """Another attempt has the group's partitions; this one must end."""

    reason: str


@dataclass(frozen=True, slots=True)
class Head:
    """The schema stream is complete up to `ts`, and its last segment in the log ends at `last_to`."""

    ts: int
    last_to: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Seal what is resolved, then end."""


@dataclass(frozen=True, slots=True)
class Report:
    """A status.Section as JSON."""

    section: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ended:
    """How the group ended; `code` is empty if it was told to end."""

    code: str = ""
    message: str = ""
    retryable: bool = False


Message = Challenge | Hello | Assignment | Refused | Head | Stop | Report | Ended

_KINDS: dict[str, type[Message]] = {
    kind.__name__.lower(): kind for kind in (Challenge, Hello, Assignment, Refused, Head, Stop, Report, Ended)
}
_TYPES: dict[str, type | tuple[type, ...]] = {
    "int": int,
    "str": str,
    "bool": bool,
    "tuple[int, ...]": list,
    "Mapping[str, Any]": dict,
}


def encode(message: Message) -> bytes:
    """Return a message as a line."""
    return json.dumps({"is": type(message).__name__.lower(), **asdict(message)}, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Return the message of a line. Unknown fields, of another version, are ignored. Raises MalformedMessage, which names the wrong
    field."""
    try:
        found = json.loads(line)
        kind = _KINDS[found.pop("is")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise MalformedMessage(f"a line of {len(line)} bytes is not a message between the parts of a capture") from None
    values: dict[str, Any] = {}
    for one in fields(kind):
        if one.name not in found and one.default is not MISSING:
            continue
        value = found.get(one.name)
        wanted = _TYPES[str(one.type)]
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is int):
            raise MalformedMessage(f"{kind.__name__}.{one.name} of a message between the parts of a capture is not of type {one.type}")
        values[one.name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


def proof(token: str, role: str, *parts: str | int) -> str:
    """Return the HMAC that only someone with the token can compute for this role and these parts."""
    text = json.dumps([role, *parts]).encode()
    return hmac.new(token.encode(), text, "sha256").hexdigest()


def is_proof(shown: str, token: str, role: str, *parts: str | int) -> bool:
    """Return whether a proof is right. The comparison takes constant time."""
    return hmac.compare_digest(shown.encode(), proof(token, role, *parts).encode())
