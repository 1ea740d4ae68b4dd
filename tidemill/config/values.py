"""Parsers for the values of settings. Each raises ValueError with the expected form."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TypeVar
from urllib.parse import quote, unquote

_TRUE, _FALSE = {"1", "t", "T", "TRUE", "true", "True"}, {"0", "f", "F", "FALSE", "false", "False"}
_STORAGES = ("file", "local", "s3", "gcs", "gs", "abfs", "abfss", "hdfs", "viewfs")
_CLIENT_ID = re.compile(r"[A-Za-z0-9._-]+")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?)(ms|us|µs|ns|h|m|s)")
_MILLIS = {"h": 3_600_000.0, "m": 60_000.0, "s": 1000.0, "ms": 1.0, "us": 1e-3, "µs": 1e-3, "ns": 1e-6}

_E = TypeVar("_E", bound=Enum)


class Adjusted(Exception):
    """A value outside its bounds, replaced by the nearest bound as in TiCDC. Callers warn of it."""

    def __init__(self, value: int, taken: str) -> None:
        super().__init__(f"{taken} is taken")
        self.value = value


def bounded(parse: Callable[[str], int], low: tuple[int, str], high: tuple[int, str]) -> Callable[[str], int]:
    """Return a parser that raises Adjusted for values outside `low` to `high`. Each bound is a value and its text."""

    def bound(text: str) -> int:
        found = parse(text)
        limit = low if found < low[0] else high
        if not low[0] <= found <= high[0]:
            raise Adjusted(*limit)
        return found

    return bound


def integer(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of integers from low to high."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,19}", text) or not low <= int(text) <= high:
            raise ValueError(f"expected an integer from {low} to {high}")
        return int(text)

    return parse


def parse_bool(text: str) -> bool:
    """Parse a boolean in one of Go's spellings."""
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ValueError("expected true or false")


def duration(low_ms: int = 1, high_ms: int = 86_400_000) -> Callable[[str], int]:
    """Return a parser of Go's durations (`10s`, `1m30s`, `250ms`) to milliseconds."""

    def parse(text: str) -> int:
        parts = _DURATION_PART.findall(text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            raise ValueError("expected a duration such as 10s, 1m30s or 250ms")
        millis = sum(float(number) * _MILLIS[unit] for number, unit in parts)
        if not low_ms <= millis <= high_ms:
            raise ValueError(f"expected a duration from {_shown(low_ms)} to {_shown(high_ms)}")
        return round(millis)

    return parse


def _shown(millis: int) -> str:
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if millis % size == 0:
            return f"{millis // size}{unit}"
    return f"{millis}ms"


parse_duration = duration()
parse_stuck_duration = duration(0, 30 * 86_400_000)


def one_of(*words: str) -> Callable[[str], str]:
    """Return a parser of these words, in any case."""

    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return text.lower()

    return parse


def member(kind: type[_E]) -> Callable[[str], _E]:
    """Return a parser of an enum's words, in any case."""
    members: Mapping[str, _E] = {str(m.value): m for m in kind}
    word = one_of(*members)
    return lambda text: members[word(text)]


def text(value: str) -> str:
    """Take any text that is not empty."""
    if not value:
        raise ValueError("expected a value")
    return value


def any_text(value: str) -> str:
    """Take any text."""
    return value


def storage_uri(value: str) -> str:
    """Check the storage of claim checks: a folder, or an address with a known scheme. Nothing is opened."""
    kind, mark, _ = value.partition("://")
    if "\0" in unquote(value):
        raise ValueError("it has a zero byte")
    if mark and kind.lower() not in _STORAGES:
        raise ValueError(f"expected a folder or one of {', '.join(f'{known}://' for known in _STORAGES)}")
    return value


def acks(value: str) -> int:
    """Parse Kafka's required-acks."""
    found = {"-1": -1, "all": -1, "0": 0, "1": 1}.get(value.lower())
    if found is None:
        raise ValueError("expected -1 (all in-sync replicas), 1 or 0")
    return found


def client_id(value: str) -> str:
    """Check a Kafka client id."""
    if not _CLIENT_ID.fullmatch(value):
        raise ValueError("expected characters A-Z a-z 0-9 . _ -")
    return value


def csv_delimiter(value: str) -> str:
    """Check [sink.csv] delimiter by TiCDC's rule. Newer versions limit it to three bytes."""
    if not value or "\r" in value or "\n" in value:
        raise ValueError("expected one or more characters, no line breaks")
    if len(value.encode()) > 3:
        raise ValueError("expected at most 3 bytes")
    return value


def csv_quote(value: str) -> str:
    """Check [sink.csv] quote by TiCDC's rule: one byte, or none for no quoting."""
    if len(value.encode()) > 1 or value in ("\r", "\n"):
        raise ValueError("expected one ASCII character that is not a line break, or nothing")
    return value


def file_index_digits(value: str) -> int:
    """Parse sink.file-index-digit. As in TiCDC a value outside 6 to 20 becomes 20."""
    digits = integer(-(2**31), 2**31)(value)
    return digits if 6 <= digits <= 20 else 20


def with_parameter(sink_uri: str, name: str, value: str | None) -> str:
    """Set a parameter in a sink URI. None leaves the URI as it is."""
    if value is None:
        return sink_uri
    head, _, query = sink_uri.partition("?")
    kept = [one for one in query.split("&") if one and one.partition("=")[0] != name]
    return head + "?" + "&".join([*kept, f"{name}={quote(value, safe='')}"])
