"""Typed reading of messages whose value is one JSON object. Shared by the decoders of Canal-JSON and simple.

No input makes the reader loop, recurse without end, or use more memory than a small multiple of the message (of `budget`, where it is
compressed). Unknown members are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from tidemill.budget import MESSAGE, Budget, OverBudget
from tidemill.errors import MalformedMessage
from tidemill.protocols.common.compression import expand
from tidemill.protocols.common.jsontext import HALF, INT64, half_pair
from tidemill.protocols.open.decode import Fault

_MAX_DIGITS = 21


class JsonMessageError(MalformedMessage):
    """A message that cannot be decoded: `offset` in its (expanded) value, `field`, why, and whose fault it is."""

    def __init__(self, offset: int, field: str, problem: str, fault: Fault = Fault.SENDER) -> None:
        self.offset, self.field, self.fault = offset, field, fault
        place = f"message value, byte {offset}" + (f", {field}" if field else "")
        super().__init__(f"{place}: {problem}", hint=f"the fault is {fault.value}")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a member twice")
    return found


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_integer, parse_constant=_no_constant)


class JsonMessage:
    """The members of a message's object, read by name and type. All methods raise JsonMessageError."""

    __slots__ = ("data", "members")

    def __init__(self, value: bytes, budget: Budget | None = None) -> None:
        budget = budget or Budget(MESSAGE)
        try:
            self.data = expand(value, budget)
        except ValueError as error:
            raise JsonMessageError(0, "", str(error)) from None
        try:
            found = budget.json(self.data, _DECODER.decode)
        except UnicodeDecodeError as error:
            raise JsonMessageError(error.start, "", "it is not UTF-8") from None
        except json.JSONDecodeError as error:
            before = error.doc[: error.pos].encode()
            raise JsonMessageError(len(before), "", f"it is not JSON: {error.msg}") from None
        except OverBudget as error:
            raise JsonMessageError(0, "", error.message) from None
        except (ValueError, RecursionError) as error:
            problem = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
            raise JsonMessageError(0, "", f"it is not JSON: {problem}") from None
        if not isinstance(found, dict):
            raise JsonMessageError(0, "", "it is not a JSON object")
        self.members: Mapping[str, Any] = found
        if (path := half_pair(self.data, found)) is not None:
            self.fail(path, HALF)

    def fail(self, field: str, problem: str, fault: Fault = Fault.SENDER) -> NoReturn:
        """Raise JsonMessageError about a member, named by its path (parts joined by dots)."""
        raise JsonMessageError(self._offset(field), field, problem, fault)

    def _offset(self, field: str) -> int:
        """Return the offset of the last part of a path that can be found."""
        at = 0
        for part in field.split("."):
            found = self.data.find(json.dumps(part, ensure_ascii=False).encode(), at)
            at = found if found >= 0 else at
        return at

    def text(self, name: str, members: Mapping[str, Any] | None = None, *, default: str | None = None, path: str = "") -> str:
        """Return a member that is a string."""
        value = (self.members if members is None else members).get(name, default)
        if not isinstance(value, str):
            self.fail(path + name, "it is missing" if value is None else f"expected a string, found {shown(value)}")
        return value

    def integer(self, name: str, members: Mapping[str, Any] | None = None, *, default: int | None = None, path: str = "") -> int:
        """Return a member that is a signed integer of 64 bits, which events and Arrow can hold."""
        value = (self.members if members is None else members).get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not INT64[0] <= value <= INT64[1]:
            self.fail(path + name, "it is missing" if value is None else f"expected an integer of 64 bits, found {shown(value)}")
        return value

    def flag(self, name: str, members: Mapping[str, Any] | None = None, *, path: str = "") -> bool:
        """Return a member that is true or false. A missing one is false."""
        value = (self.members if members is None else members).get(name, False)
        if not isinstance(value, bool):
            self.fail(path + name, f"expected true or false, found {shown(value)}")
        return value

    def mapping(self, name: str, members: Mapping[str, Any] | None = None, *, path: str = "") -> Mapping[str, Any]:
        """Return a member that is an object. null and a missing one are empty objects."""
        value = (self.members if members is None else members).get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.fail(path + name, f"expected an object, found {shown(value)}")
        return value


def shown(value: object) -> str:
    """Return a value for an error message, cut if it is long."""
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"
