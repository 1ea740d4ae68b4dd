"""The worked example of the protocol's document (its log lines 1 to 14): an early dialect, without flags and with base64 text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidemill.protocols.open import Column, DdlMessage, Event, OpenMessageError, ResolvedMessage, RowEvent, RowKind, decode
from tidemill.protocols.open.codes import ColumnFlag, ColumnType, DdlType
from tidemill.protocols.open.encode import framed

CREATED, FIRST, SECOND, RESOLVED = 415508856908021766, 415508878783938562, 415508881418485761, 415508881038376963
QUERY = "CREATE TABLE test.t1(id int primary key, val varchar(16))"


def row(ts: int, image: str, number: int, text: str | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """A row of test.t1 as the document prints it: `val` has no flags and is base64; a delete has the key only."""
    columns: dict[str, Any] = {"id": {"t": 3, "h": True, "v": number}}
    if text is not None:
        columns["val"] = {"t": 15, "v": text}
    return {"ts": ts, "scm": "test", "tbl": "t1", "t": 1}, {image: columns}


DDL = {"ts": CREATED, "scm": "test", "tbl": "t1", "t": 2}, {"q": QUERY, "t": 3}
LINES: list[tuple[dict[str, Any], dict[str, Any] | None]] = [
    DDL,
    ({"ts": CREATED, "t": 3}, None),
    DDL,
    ({"ts": CREATED, "t": 3}, None),
    row(FIRST, "u", 1, "YWE="),
    row(FIRST, "u", 2, "YmI="),
    row(FIRST, "u", 3, "Y2M="),
    row(FIRST, "u", 3, "Y2M="),
    row(SECOND, "d", 1),
    row(SECOND, "d", 2),
    row(SECOND, "u", 3, "ZGQ="),
    row(SECOND, "u", 4, "ZWU="),
    ({"ts": RESOLVED, "t": 3}, None),
    ({"ts": RESOLVED, "t": 3}, None),
]


def read(number: int) -> Event:
    """The event of a log line; a resolved one has no value at all."""
    key, value = LINES[number - 1]
    framed_key, framed_value = framed(json.dumps(key).encode(), json.dumps(value).encode())
    (event,) = decode(framed_key, framed_value if value is not None else b"")
    return event


def image(number: int, text: bytes | None = None) -> tuple[Column, ...]:
    columns = (Column("id", ColumnType.INT, ColumnFlag(0), True, number),)
    return columns if text is None else (*columns, Column("val", ColumnType.VARCHAR, ColumnFlag(0), False, text))


@pytest.mark.parametrize("number", [1, 3])
def test_ddls(number: int) -> None:
    assert read(number) == DdlMessage(CREATED, "test", "t1", QUERY, DdlType.CREATE_TABLE)


@pytest.mark.parametrize(("number", "ts"), [(2, CREATED), (4, CREATED), (13, RESOLVED), (14, RESOLVED)])
def test_resolved_events_without_a_value(number: int, ts: int) -> None:
    assert read(number) == ResolvedMessage(ts)
    key = framed(json.dumps(LINES[number - 1][0]).encode(), b"")[0]
    assert decode(key, None) == decode(key, bytes(8)) == [ResolvedMessage(ts)]


@pytest.mark.parametrize(
    ("number", "ts", "key", "text"),
    [
        (5, FIRST, 1, b"aa"),
        (6, FIRST, 2, b"bb"),
        (7, FIRST, 3, b"cc"),
        (8, FIRST, 3, b"cc"),
        (11, SECOND, 3, b"dd"),
        (12, SECOND, 4, b"ee"),
    ],
)
def test_inserts_and_updates_look_the_same(number: int, ts: int, key: int, text: bytes) -> None:
    event = read(number)
    assert isinstance(event, RowEvent)
    assert (event.ts, event.schema, event.table, event.kind) == (ts, "test", "t1", RowKind.INSERT)
    assert (event.after, event.before) == (image(key, text), ())


@pytest.mark.parametrize(("number", "key"), [(9, 1), (10, 2)])
def test_deletes_have_the_key_only(number: int, key: int) -> None:
    event = read(number)
    assert isinstance(event, RowEvent)
    assert (event.ts, event.kind, event.after, event.before) == (SECOND, RowKind.DELETE, (), image(key))


def test_text_without_flags_has_to_be_base64() -> None:
    key, value = row(FIRST, "u", 1, "no base64!")
    with pytest.raises(OpenMessageError, match=r"u\.val\.v: expected base64"):
        decode(*framed(json.dumps(key).encode(), json.dumps(value).encode()))


def test_an_empty_value_is_for_resolved_events_only() -> None:
    for number in (1, 5):
        key, _ = framed(json.dumps(LINES[number - 1][0]).encode(), b"")
        with pytest.raises(OpenMessageError, match="it has 0 events, the key has 1"):
            decode(key, b"")
