"""Flat messages, packets, partitions and topics, as Canal makes them of the same entries."""

from __future__ import annotations

import base64
import json
from collections import Counter
from typing import Any

import pytest

from tests.support.canal.golden import lines
from tidemill.canal.flat import DynamicTopics, FlatMessage, PartitionHash, flat_messages, mq_packet, parse_entries
from tidemill.errors import ConfigError
from tidemill.protocols.canal.codes import EntryType, EventType
from tidemill.protocols.canal.events import Entry, EntryColumn, Header, RowChange, RowData
from tidemill.protocols.canal.parse import EntryError

BATCHES = lines("flat_message")
TS = 1_700_000_000_123


def raw_of(batch: dict[str, Any]) -> list[bytes]:
    return [base64.b64decode(entry) for entry in batch["entries"]]


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: f"{batch['scenario']}-{batch['batch']}")
def test_recorded_batches(batch: dict[str, Any]) -> None:
    raw = raw_of(batch)
    entries = parse_entries(raw)
    messages = flat_messages(entries, batch["id"], TS, like_canal=True)
    assert [message.to_json().decode() for message in messages] == batch["flat"]
    assert mq_packet(raw, batch["id"]) == base64.b64decode(batch["mq_protobuf_b64"])
    rows = [data for data, entry in zip(raw, entries, strict=True) if entry.change is not None]
    assert mq_packet(rows) == base64.b64decode(batch["mq_protobuf_nonraw_b64"])
    for case in batch.get("hash", ()):
        found = PartitionHash.of(case["config"], case["partitions"], with_database=case["databaseHash"])
        parts = [found.split_message(message) for message in messages]
        assert [{str(n): len(m.data) if m.data else -1 for n, m in p.items()} for p in parts] == case["flat_partition_rows"]
        counted = Counter(str(partition) for data in rows for partition, _ in found.split_entry(data))
        assert counted == case["entry_partition_entries"]
    for case in batch.get("topics", ()):
        topics = DynamicTopics.of(case["dynamicTopic"], "deftopic")
        named = Counter(topics.topic(entry.header.schema, entry.header.table) for entry in entries if entry.change is not None)
        assert named == case["kafka_topic_entries"]


def column(name: str, value: str | None, *, updated: bool = False, key: bool = False, kind: str = "varchar(9)") -> EntryColumn:
    return EntryColumn(0, 12, name, key, updated, None if value is None else value.encode(), kind)


def update(*rows: tuple[list[EntryColumn], list[EntryColumn]], event: EventType = EventType.UPDATE) -> Entry:
    change = RowChange(event, rows=tuple(RowData(tuple(before), tuple(after)) for before, after in rows))
    return Entry(EntryType.ROWDATA, Header(schema="d", table="t", execute_time=5), change=change)


ROWS = (
    ([column("id", "1"), column("a", "x")], [column("id", "1"), column("a", "y", updated=True)]),
    ([column("id", "2"), column("a", "x")], [column("id", "3", updated=True), column("a", "x")]),
    ([column("id", "4"), column("a", None)], [column("id", "4"), column("a", None)]),
)


def test_old_has_what_changed_in_each_row() -> None:
    (message,) = flat_messages([update(*ROWS)], 1, 2)
    assert message.old == ({"a": "x"}, {"id": "2"}, {})
    (message,) = flat_messages([update(*ROWS)], 1, 2, like_canal=True)
    assert message.old == ({"a": "x"}, {"id": "2", "a": "x"}, {"id": "4", "a": None})


def test_parts_keep_old_beside_data() -> None:
    (message,) = flat_messages([update(*ROWS)], 1, 2)
    parts = PartitionHash.of("d.t:id", 2, with_database=False).split_message(message)
    assert {n: (m.data, m.old) for n, m in parts.items()} == {
        0: (({"id": "4", "a": None},), ({},)),
        1: (({"id": "1", "a": "y"}, {"id": "3", "a": "x"}), ({"a": "x"}, {"id": "2"})),
    }


def test_text_as_json() -> None:
    text = "".join(map(chr, range(0x20))) + '"\\/<>&\x7f\x80\u2028😀é'
    message = FlatMessage(1, text, "t", "INSERT", 2, 3, data=({"é": text, "n": None},))
    read = json.loads(message.to_json())
    assert read["database"] == read["data"][0]["é"] == text
    assert b"\\u0000\\u0001\\u0002\\u0003\\u0004\\u0005\\u0006\\u0007\\b\\t\\n\\u000b\\f\\r\\u000e" in message.to_json()
    assert "\x7f\x80\u2028😀é".encode() in message.to_json()
    assert list(read) == sorted(read)


def test_floats_as_java_writes_them() -> None:
    row = [
        column("f", "0.1", kind="float"),
        column("d", "10000000", kind="double"),
        column("v", "10000000"),
        column("n", None, kind="float"),
    ]
    entry = update((row, []), event=EventType.DELETE)
    (message,) = flat_messages([entry], 1, 2, java_floats=True)
    assert message.data == ({"f": "0.1", "d": "1.0E7", "v": "10000000", "n": None},)
    (message,) = flat_messages([entry], 1, 2)
    assert message.data == ({"f": "0.1", "d": "10000000", "v": "10000000", "n": None},)
    with pytest.raises(EntryError, match="'x' is not a double"):
        flat_messages([update(([column("d", "x", kind="double")], []), event=EventType.DELETE)], 1, 2, java_floats=True)


def test_bytes_that_are_not_text() -> None:
    broken = EntryColumn(0, 12, "v", False, False, b"\xff", "varchar(9)")
    with pytest.raises(EntryError, match="not UTF-8"):
        flat_messages([update(([], [broken]), event=EventType.INSERT)], 1, 2)


def test_a_row_by_itself_is_an_entry() -> None:
    """Rows of an entry go to partitions as entries with one row each and the same header."""
    changes = [(raw, entry, entry.change) for raw in raw_of(BATCHES[0]) for entry in parse_entries([raw]) if entry.change is not None]
    raw, whole, change = next(found for found in changes if len(found[2].rows) == 3)
    made = parse_entries([data for _, data in PartitionHash.of(".*\\..*:$pk$", 1 << 20).split_entry(raw)])
    assert [entry.change.rows[0] for entry in made if entry.change] == list(change.rows)
    assert all(entry.header == whole.header for entry in made)


@pytest.mark.parametrize("written", ["a:", ":a", "t:[", "a:(*"])
def test_settings_that_cannot_be_read(written: str) -> None:
    with pytest.raises(ConfigError, match=r"canal\.mq\.dynamicTopic"):
        DynamicTopics.of(written, "d")


@pytest.mark.parametrize("written", ["a:", ":a", "[:id", "(*:id"])
def test_hashes_that_cannot_be_read(written: str) -> None:
    with pytest.raises(ConfigError, match=r"canal\.mq\.partitionHash"):
        PartitionHash.of(written, 3)
    with pytest.raises(ConfigError, match="partitionsNum"):
        PartitionHash.of("", 0)
