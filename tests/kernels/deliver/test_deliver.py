"""Frames, JSON lines and librdkafka's message array against their one-message references."""

from __future__ import annotations

import base64
import ctypes
import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.delivery.messages import messages_of
from tidemill.kernels.deliver import batch, kernels
from tidemill.kernels.deliver.kernels import C_ERROR, C_FAILED, C_PARTITION, C_TEXT, KAFKA_MESSAGE, TEXT_BYTES, on_delivery
from tidemill.protocols.common.messages import no_messages

TARGETS = [("a", 0), ("a", 1), ("b.c_d-e", 12)]
parts = st.one_of(st.none(), st.binary(max_size=70))
items = st.lists(st.tuples(st.integers(0, len(TARGETS) - 1), parts, parts), max_size=40)


@given(items)
def test_frames(given_items: list[tuple[int, bytes | None, bytes | None]]) -> None:
    found = {target: bytes(data) for target, data in batch.Writer().frames(messages_of(given_items))}
    for target in range(len(TARGETS)):
        assert found.get(target, b"") == b"".join(batch.frame(k, v) for t, k, v in given_items if t == target)


@given(items)
def test_json_lines(given_items: list[tuple[int, bytes | None, bytes | None]]) -> None:
    prefixes = [batch.line_prefix(*target) for target in TARGETS]
    found = {target: bytes(data) for target, data in batch.Writer().json_lines(messages_of(given_items), prefixes)}
    for target in range(len(TARGETS)):
        assert found.get(target, b"") == b"".join(batch.json_line(*TARGETS[target], k, v) for t, k, v in given_items if t == target)


def test_a_json_line_is_json() -> None:
    line = json.loads(batch.json_line("t", 3, b"\x00\xff", None))
    assert line == {"topic": "t", "partition": 3, "key": base64.b64encode(b"\x00\xff").decode(), "value": None}


def test_a_buffer_that_has_to_grow() -> None:
    writer = batch.Writer()
    big = b"x" * (3 << 20)
    for _ in range(2):
        ((target, data),) = writer.frames(messages_of([(1, b"k", big)]))
        assert (target, bytes(data)) == (1, batch.frame(b"k", big))
    assert list(writer.frames(no_messages())) == []


@given(items)
def test_kafka_messages(given_items: list[tuple[int, bytes | None, bytes | None]]) -> None:
    messages = messages_of(given_items)
    order, _ = batch.by_group(messages.table["target"])
    partitions = np.array([p for _, p in TARGETS], np.int64)
    out = np.full(kernels.KAFKA_MESSAGE * max(1, len(given_items)), 0xEE, np.uint8)
    kernels.kafka_messages(len(given_items), messages.table.ctypes.data, order.ctypes.data, partitions.ctypes.data, out.ctypes.data)
    rows = out[: kernels.KAFKA_MESSAGE * len(given_items)].view(np.int64).reshape(-1, 9).tolist()
    for row, index in zip(rows, order.tolist(), strict=True):
        target, key, value = given_items[index]
        assert row[0] == row[1] == row[7] == row[8] == 0
        assert row[2] == TARGETS[target][1]
        assert (ctypes.string_at(row[5], row[6]) if row[5] else None) == key
        assert (ctypes.string_at(row[3], row[4]) if row[3] else None) == value


@given(st.lists(st.integers(0, 4), max_size=50))
def test_grouping_keeps_order_and_cuts_runs(groups: list[int]) -> None:
    order, sorted_groups = batch.by_group(np.array(groups, np.int64))
    assert order.tolist() == sorted(range(len(groups)), key=lambda i: groups[i])
    found = [(g, order[a:b].tolist()) for g, a, b in batch.runs(sorted_groups)]
    assert found == [(g, [i for i, x in enumerate(groups) if x == g]) for g in sorted(set(groups))]


def test_the_failure_that_is_kept_is_not_one_of_a_message_that_only_waited() -> None:
    """A producer that dies of a message may report those behind it first."""
    too_large, away = 10, -195
    for reported, kept in (
        ([-152, -151, too_large, -152], too_large),
        ([away, too_large], away),
        ([-152], -152),
        ([0, too_large, away], too_large),
    ):
        counters = np.zeros(C_TEXT + TEXT_BYTES, np.uint8)
        for number, error in enumerate(reported):
            message = np.zeros(KAFKA_MESSAGE // 8, np.int64)
            message.view(np.int32)[[0, 4]] = error, number
            on_delivery(0, message.ctypes.data, counters.ctypes.data)
        words = counters.view(np.int64)
        assert (words[C_ERROR // 8], words[C_PARTITION // 8]) == (kept, reported.index(kept))
        assert words[C_FAILED // 8] == len([error for error in reported if error])
