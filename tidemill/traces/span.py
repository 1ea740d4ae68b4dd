"""A span: something that took a while, with what it consists of. Pure.

A tree of spans is made when its root has ended, so nothing has to be carried through the code that is measured, and ids are given only to
what is sent.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

Value = str | int | float | bool
"""Of an attribute."""


class Kind(enum.Enum):
    """What a span is to those on the other side of the network."""

    INTERNAL = "internal"
    SERVER = "server"
    """It answers a request."""


@dataclass(frozen=True, slots=True)
class Span:
    """`begun_ns` and `ended_ns`: Unix time in nanoseconds. `error`: the code of the error that ended it, with its message; empty: it went
    well. Attributes hold no secrets: whoever sends them hides what `redaction` knows, but numbers and names are safer than texts."""

    name: str
    begun_ns: int
    ended_ns: int
    attributes: Mapping[str, Value] = field(default_factory=dict)
    children: tuple[Span, ...] = ()
    error: str = ""
    message: str = ""
    kind: Kind = Kind.INTERNAL


@dataclass(frozen=True, slots=True)
class Parent:
    """The span of another program that caused one of ours: the headers of W3C's Trace Context."""

    traceparent: str
    tracestate: str = ""
