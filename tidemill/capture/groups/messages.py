"""What coordinator and groups tell each other over their connection: a JSON object a line. Pure.

    coordinator                       group
    Challenge(nonce)          ──▶
                              ◀──     Hello(group, attempt, …, nonce, proof)
    Assignment(…, proof)      ──▶              (or Refused)
    Head(ts, last_to)         ──▶              each time the schema stream gets further
                              ◀──     Report(section)         each second
    Stop()                    ──▶
                              ◀──     Ended(code, …)          the last word

Both ends show that they know the capture's token by a proof over both nonces; the token itself is never sent.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any

from tidemill.errors import MalformedMessage

LONGEST = 16 << 20
"""Bytes of a line: a report lists partitions and stuck regions."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """The coordinator's first word."""

    nonce: str


@dataclass(frozen=True, slots=True)
class Hello:
    """Who came. `attempt` grows with each start of a group; `task`: Spark's id of the task's attempt, -1 for a process."""

    group: int
    attempt: int
    pid: int
    host: str
    task: int
    nonce: str
    proof: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Assignment:
    """What to do: the partitions, the capture's settings, and how far the schema stream is (see Head)."""

    partitions: tuple[int, ...]
    cluster_id: str
    settings: Mapping[str, Any]
    head: int
    last_to: int
    proof: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Refused:
    """Another attempt has the group's partitions; this one has to end."""

    reason: str


@dataclass(frozen=True, slots=True)
class Head:
    """The schema stream is complete up to `ts`, and its last segment in the log ends at `last_to`."""

    ts: int
    last_to: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Seal what is resolved and end."""


@dataclass(frozen=True, slots=True)
class Report:
    """A status.Section as JSON has it."""

    section: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ended:
    """How the group ended; `code` is empty for an end that was asked for."""

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
    """A line."""
    return json.dumps({"is": type(message).__name__.lower(), **asdict(message)}, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """A message of its line. Fields that another version has besides do not matter. Raises MalformedMessage, naming the field, for what is
    not a message."""
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
    """What only someone who knows the token can say in this role about these parts."""
    text = json.dumps([role, *parts]).encode()
    return hmac.new(token.encode(), text, "sha256").hexdigest()


def is_proof(shown: str, token: str, role: str, *parts: str | int) -> bool:
    """Compared in constant time."""
    return hmac.compare_digest(shown.encode(), proof(token, role, *parts).encode())
