"""Reads the JSON files of Tidemill's own state: an object with typed fields. Pure.

Such a file may be cut short, be a copy of the wrong one, or have been edited. Whatever it holds, reading it ends with one of Tidemill's
errors, which names the file and the field and says what to do. No other exception leaves this module.
"""

from __future__ import annotations

import enum
import json
import math
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from tidemill.budget import STATE, Budget, OverBudget
from tidemill.errors import FeedBroken, LogCorrupt, TidemillError, redact
from tidemill.tso import MAX_TS

DEPTH = 64
"""How deep a value may be nested that is kept as it is."""
_SHOWN = 60

E = TypeVar("E", bound=enum.Enum)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of state files: the error for a broken one, and what to do then."""

    error: type[TidemillError]
    hint: str
    may_be_lost: bool = False
    """What is cut counts as missing: whoever writes the file writes it again."""


LOG_FILE = Kind(LogCorrupt, "`tidemill log verify` lists all damage. Restore the file from a copy.")
FEED_FILE = Kind(FeedBroken, "Restore the file from a copy.")


def whole(data: bytes | None, name: str, kind: Kind) -> Fields | None:
    """The object in a file; None if there is no file. A file that was not synced may be empty, zeros or cut after a crash of the machine;
    it counts as missing then, if it may be lost. Raises the error of its kind for any other."""
    if data is None:
        return None
    try:
        return read(data, name, kind)
    except kind.error:
        if kind.may_be_lost:
            return None
        raise


def read(data: bytes | str, name: str, kind: Kind = LOG_FILE) -> Fields:
    """The object in a file. `name`: the file's path or URL, for errors. Raises the error of its kind."""
    if isinstance(data, bytes) and not data.strip(b"\0 \n"):
        raise kind.error(f"{redact(name)} is empty: a crash of the machine may have taken what it held", hint=kind.hint)
    try:
        found = Budget(STATE).json(data)
    except RecursionError:
        raise kind.error(f"{redact(name)} is nested too deep", hint=kind.hint) from None
    except OverBudget as error:
        raise kind.error(f"{redact(name)}: {error.message}", hint=kind.hint) from None
    except ValueError as error:
        raise kind.error(f"{redact(name)} is not JSON: {error}", hint=kind.hint) from None
    return Fields(found, name, kind)


class Fields:
    """A JSON object of a state file. Each method returns a field. If the field is missing or wrong, it raises the error of the file's kind.
    With a default, a field may be missing."""

    def __init__(self, found: object, place: str, kind: Kind, at: str = "") -> None:
        """`place`: the file's path or URL. Errors hide what is secret in it. `at`: where the object is in the file."""
        self._place, self._kind, self._at = place, kind, at
        if not isinstance(found, Mapping):
            raise self.broken(f"{at} is {_said(found)}, not a JSON object" if at else "it is not a JSON object")
        self._found: Mapping[str, Any] = found

    def __contains__(self, name: str) -> bool:
        """Whether there is such a field, and it is not null."""
        return self._found.get(name) is not None

    def broken(self, why: str) -> TidemillError:
        """Return the error for this file."""
        return self._kind.error(f"{redact(self._place)}: {redact(why)}", hint=self._kind.hint)

    def integer(self, name: str, least: int = 0, most: int = MAX_TS, *, default: int | None = None) -> int:
        """A whole number between bounds; true and 1.0 are none."""
        return self._bounded(self._value(name, default), self._path(name), least, most)

    def number(self, name: str, *, default: float | None = None) -> float:
        """A finite number."""
        value = self._value(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            raise self._wrong(self._path(name), value, "a number")
        return float(value)

    def text(self, name: str, *, default: str | None = None) -> str:
        """A text that can be written to a file or a terminal."""
        return self._text(self._value(name, default), self._path(name))

    def flag(self, name: str, *, default: bool | None = None) -> bool:
        """True or false."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self._wrong(self._path(name), value, "true or false")
        return value

    def choice(self, name: str, words: type[E]) -> E:
        """A member of an enum of texts."""
        value = self.text(name)
        try:
            return words(value)
        except ValueError:
            raise self._wrong(self._path(name), value, f"one of {', '.join(str(word.value) for word in words)}") from None

    def items(self, name: str, *, optional: bool = False) -> list[Any]:
        """A list of anything. `optional`: an empty one if the field is missing."""
        value = self._value(name, [] if optional else None)
        if not isinstance(value, list):
            raise self._wrong(self._path(name), value, "a list")
        return value

    def integers(self, name: str, least: int = 0, most: int = MAX_TS, *, optional: bool = False) -> tuple[int, ...]:
        """A list of whole numbers."""
        return tuple(self._bounded(one, at, least, most) for at, one in self._numbered(name, optional))

    def pairs(self, name: str, least: int = 0, most: int = MAX_TS, *, optional: bool = False) -> tuple[tuple[int, int], ...]:
        """A list of pairs of whole numbers."""
        found = []
        for at, one in self._numbered(name, optional):
            if not isinstance(one, list) or len(one) != 2:
                raise self._wrong(at, one, "a pair")
            found.append((self._bounded(one[0], at, least, most), self._bounded(one[1], at, least, most)))
        return tuple(found)

    def texts(self, name: str, *, optional: bool = False) -> tuple[str, ...]:
        """A list of texts."""
        return tuple(self._text(one, at) for at, one in self._numbered(name, optional))

    def text_pairs(self, name: str) -> list[tuple[str, str]]:
        """A list of pairs of texts."""
        found = []
        for at, one in self._numbered(name, optional=False):
            if not isinstance(one, list) or len(one) != 2:
                raise self._wrong(at, one, "a pair")
            found.append((self._text(one[0], at), self._text(one[1], at)))
        return found

    def members(self) -> list[tuple[str, str]]:
        """All fields of an object that has texts only, with their names."""
        return [(self._text(name, self._at), self._text(value, self._path(name))) for name, value in self._found.items()]

    def parts(self, name: str, *, optional: bool = False) -> list[Fields]:
        """A list of objects."""
        return [Fields(one, self._place, self._kind, at) for at, one in self._numbered(name, optional)]

    def part(self, name: str) -> Fields:
        """An object."""
        return Fields(self._value(name, None), self._place, self._kind, self._path(name))

    def plain(self, name: str) -> dict[str, Any]:
        """An object with anything in it, not nested so deep that it could not be written again."""
        value = self._value(name, None)
        if not isinstance(value, dict):
            raise self._wrong(self._path(name), value, "a JSON object")
        return self._shallow(value, self._path(name))

    def others(self, known: Iterable[str] = ()) -> dict[str, Any]:
        """All fields but the known ones, such as those of a later version."""
        return self._shallow({name: value for name, value in self._found.items() if name not in set(known)}, self._at)

    def _shallow(self, value: dict[str, Any], at: str) -> dict[str, Any]:
        if not is_shallow(value):
            raise self.broken(f"{at or 'it'} is nested too deep")
        return value

    def _path(self, name: str) -> str:
        return f"{self._at}.{name}" if self._at else name

    def _value(self, name: str, default: object) -> Any:
        if name not in self._found and default is None:
            raise self.broken(f"{self._at or 'it'} has no field {name!r}")
        return self._found.get(name, default)

    def _numbered(self, name: str, optional: bool) -> Iterable[tuple[str, Any]]:
        return ((f"{self._path(name)}[{i}]", one) for i, one in enumerate(self.items(name, optional=optional)))

    def _bounded(self, value: object, at: str, least: int, most: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self._wrong(at, value, f"a whole number {f'from {least} to {most}' if most < MAX_TS else f'of at least {least}'}")
        return value

    def _text(self, value: object, at: str) -> str:
        if not isinstance(value, str) or "\0" in value or not _is_unicode(value):
            raise self._wrong(at, value, "a text")
        return value

    def _wrong(self, at: str, value: object, wanted: str) -> TidemillError:
        return self.broken(f"{at} is {_said(value)}, not {wanted}")


def is_shallow(value: object) -> bool:
    """Whether a JSON value is nested no deeper than DEPTH."""
    level: list[object] = [value]
    for _ in range(DEPTH):
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())]
        if not level:
            return True
    return False


def _is_unicode(text: str) -> bool:
    """Whether a text has no half of a surrogate pair, which JSON can name and no file can hold."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _said(value: object) -> str:
    """A value for people. A list may be nested too deep to be shown."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


# Files that may be lost


def fitting(kind: type, found: object, *, others: bool = False) -> dict[str, Any]:
    """The fields of an object whose values fit the fields of a dataclass. For status files: what cannot be used counts as lost. `found` may
    be anything that JSON can hold. `others`: also the fields that the class does not have."""
    if not isinstance(found, Mapping):
        return {}
    hints = _hints(kind)
    return {name: value for name, value in found.items() if (_fits(value, hints[name]) if name in hints else others and is_shallow(value))}


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _fits(value: object, hint: Any) -> bool:
    """Whether a JSON value has a type: int (0 to the last ts), float, str, bool, None, Any, lists and objects of these, one of several."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is list:
        return isinstance(value, list) and all(_fits(one, inner[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(one, inner[1]) for one in value.values())
    if hint is Any:
        return is_shallow(value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TS
    if hint is str:
        return isinstance(value, str) and _is_unicode(value)
    return value is None if hint is type(None) else isinstance(value, hint)
