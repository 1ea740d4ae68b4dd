"""Canal-JSON messages → events. Reads messages of TiCDC and Tidemill under any options, and Canal's own flat messages.

`mysqlType` gives the type of each value, so a message describes itself. A value of an unknown type stays text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidemill.budget import MESSAGE, Budget
from tidemill.errors import MalformedMessage
from tidemill.protocols.canal_json.codes import MessageType
from tidemill.protocols.canal_json.events import Column, DdlMessage, Event, RowEvent, RowKind, Value, WatermarkMessage
from tidemill.protocols.common.claim_check import unpack
from tidemill.protocols.common.jsonmessage import JsonMessage, JsonMessageError, shown
from tidemill.protocols.common.jsontext import INT32
from tidemill.protocols.common.mysqlvalues import base_type, parse_value
from tidemill.protocols.open.decode import Fault

Fetch = Callable[[str], bytes]
"""Reads the file of a claim check by the location that a message names: `sinks.claim_check.ClaimCheckStorage(uri).fetch`."""

_KINDS = {MessageType.INSERT.value: RowKind.INSERT, MessageType.UPDATE.value: RowKind.UPDATE, MessageType.DELETE.value: RowKind.DELETE}


def decode(value: bytes, *, fetch: Fetch | None = None, budget: Budget | None = None) -> list[Event]:
    """Decode a message to its events: one, or one for each row of a message of Canal. Raises JsonMessageError.

    A row that was too large is returned as it is in the message, with `only_handle_key` or `claim_check` set. With `fetch` the whole row is
    read from the claim check's file; errors of `fetch` pass through. `budget`: what the message may take (None: MESSAGE).
    """
    budget = budget or Budget(MESSAGE)
    message = JsonMessage(value, budget)
    extension = message.mapping("_tidb")
    kind = message.text("type")
    if kind == MessageType.WATERMARK.value:
        return [WatermarkMessage(message.integer("watermarkTs", extension, path="_tidb."))]
    commit_ts = message.integer("commitTs", extension, path="_tidb.") if "commitTs" in extension else None
    schema, table = message.text("database"), message.text("table", default="")
    es = message.integer("es")
    if message.flag("isDdl"):
        return [DdlMessage(es, commit_ts, schema, table, message.text("sql"), kind)]
    if kind not in _KINDS:
        message.fail("type", f"expected INSERT, UPDATE or DELETE, found {shown(kind)}", Fault.READER)
    only_handle = message.flag("onlyHandleKey", extension, path="_tidb.")
    location = message.text("claimCheckLocation", extension, path="_tidb.") if "claimCheckLocation" in extension else None
    head = RowEvent(es, commit_ts, schema, table, _KINDS[kind], (), (), only_handle, location)
    events: list[Event] = list(_rows(message, head))
    return events if fetch is None or location is None else [_whole(head, fetch, budget)]


def _whole(head: RowEvent, fetch: Fetch, budget: Budget) -> RowEvent:
    """Return the row in a claim check's file. Raises JsonMessageError for a file with another row."""
    assert head.claim_check is not None
    data = fetch(head.claim_check)
    kept = decode(_kept_value(data), budget=budget)
    found = kept[0] if len(kept) == 1 else None
    if not isinstance(found, RowEvent) or (found.schema, found.table, found.commit_ts) != (head.schema, head.table, head.commit_ts):
        raise JsonMessageError(0, "_tidb.claimCheckLocation", f"the file {head.claim_check[:200]} holds another row than this one")
    return dataclasses.replace(found, claim_check=head.claim_check)


def _kept_value(data: bytes) -> bytes:
    """Return the message in a claim-check file: raw, or in base64 beside its key."""
    try:
        members = Budget(MESSAGE).json(data)
    except (ValueError, RecursionError):
        return data
    if not isinstance(members, dict) or not members.keys() <= {"key", "value"}:
        return data
    try:
        return unpack(data)[1]
    except MalformedMessage:
        return data


def _rows(message: JsonMessage, head: RowEvent) -> Sequence[RowEvent]:
    types, sql_types = message.mapping("mysqlType"), message.mapping("sqlType")
    names = message.members.get("pkNames") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        message.fail("pkNames", f"expected a list of names, found {shown(names)}")
    keys = frozenset(names)
    data, old = _images(message, "data"), _images(message, "old")
    if not data:
        message.fail("data", "it has no row")
    if head.kind is RowKind.UPDATE and len(old) not in (0, len(data)):
        message.fail("old", f"it has {len(old)} rows, data has {len(data)}")
    rows = []
    for i, row in enumerate(data):
        shown_row = _columns(message, "data", row, types, sql_types, keys)
        if head.kind is RowKind.DELETE:
            rows.append(dataclasses.replace(head, before=shown_row))
            continue
        before = _columns(message, "old", old[i], types, sql_types, keys) if head.kind is RowKind.UPDATE and old else ()
        rows.append(dataclasses.replace(head, after=shown_row, before=before))
    return rows


def _images(message: JsonMessage, name: str) -> list[Mapping[str, Any]]:
    """Return `data` or `old`, a list of objects. null is an empty list, and null in the list is an empty object."""
    images = message.members.get(name)
    if images is None:
        return []
    if not isinstance(images, list):
        message.fail(name, f"expected a list of rows, found {shown(images)}")
    for image in images:
        if image is not None and not isinstance(image, dict):
            message.fail(name, f"expected an object for each row, found {shown(image)}")
    return [image or {} for image in images]


def _columns(
    message: JsonMessage,
    image: str,
    row: Mapping[str, Any],
    types: Mapping[str, Any],
    sql_types: Mapping[str, Any],
    keys: frozenset[str],
) -> tuple[Column, ...]:
    columns = []
    for name, text in row.items():
        mysql_type, sql_type = types.get(name, ""), sql_types.get(name)
        if not isinstance(mysql_type, str):
            message.fail(f"mysqlType.{name}", f"expected a string, found {shown(mysql_type)}")
        if sql_type is not None and (isinstance(sql_type, bool) or not isinstance(sql_type, int) or not INT32[0] <= sql_type <= INT32[1]):
            message.fail(f"sqlType.{name}", f"expected a number of 32 bits, found {shown(sql_type)}")
        columns.append(Column(name, mysql_type, sql_type, name in keys, _value(message, f"{image}.{name}", mysql_type, text)))
    return tuple(columns)


def _value(message: JsonMessage, field: str, mysql_type: str, text: object) -> Value:
    if text is None:
        return None
    if not isinstance(text, str):
        message.fail(field, f"expected a string or null, found {shown(text)}")
    try:
        return parse_value(base_type(mysql_type), text, _latin)
    except ValueError as error:
        message.fail(field, f"{error} (its type is {mysql_type})")


def _latin(text: str) -> bytes:
    """Return the bytes of a binary column. Each byte is written as the character with its number."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError(f"{shown(text)} has a character that is not a byte") from None
