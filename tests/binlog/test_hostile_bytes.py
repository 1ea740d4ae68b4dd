"""Recorded binlogs, files, messages and registry values of the real programs with a few bytes changed: read, or refused with our errors."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC
from functools import cache
from typing import Any

import pytest

from tests.support.binlog.binlogs import lines
from tests.support.binlog.sample_rows import TEST
from tests.support.rows.mutation import mutated
from tests.support.thorough import FUZZ
from tidemill.binlog.messages import read_binlog, read_head, read_prewritten
from tidemill.binlog.nodes import read_node
from tidemill.binlog.outputs.reading import decode_file, decode_slave
from tidemill.binlog.records import read_records, read_steps
from tidemill.binlog.rows import read_changes
from tidemill.errors import TidemillError
from tidemill.wire import binlog_pb2, pump_pb2

ROUNDS = 500 * FUZZ


@cache
def recorded(kind: str) -> tuple[bytes, ...]:
    return tuple(_recorded(kind))


def _recorded(kind: str) -> Iterator[bytes]:
    if kind == "node":
        for line in lines("node_states"):
            yield from (put["value"].encode() for put in line["first_puts"])
        return
    if kind == "prewritten":
        for payload in recorded("binlog"):
            if value := binlog_pb2.Binlog.FromString(payload).prewrite_value:
                yield value
        return
    for case in lines("cases"):
        if kind == "binlog":
            answers = (one["resp"] for one in case["pull_binlogs"] if isinstance(one["resp"], str))
            yield from (pump_pb2.PullBinlogResp.FromString(bytes.fromhex(one)).entity.payload for one in answers)
        elif kind == "slave":
            yield from (bytes.fromhex(one["value"]) for one in case["drainer"].get("kafka") or () if isinstance(one["value"], str))
        else:
            yield from (bytes.fromhex(one) for one in case["drainer"].get(kind) or () if isinstance(one, str))


def read_rows(value: bytes) -> None:
    for mutation in read_prewritten(value).mutations:
        list(read_changes(TEST, mutation))
        read_records(TEST, mutation)
        read_steps(TEST, mutation)


READERS: dict[str, tuple[str, Callable[[bytes], Any]]] = {
    "file": ("file", lambda data: decode_file(data, UTC)),
    "relay": ("relay", lambda data: decode_slave(data, UTC)),
    "slave": ("slave", lambda data: decode_slave(data, UTC)),
    "binlog": ("binlog", read_binlog),
    "head": ("binlog", read_head),
    "rows": ("prewritten", read_rows),
    "node": ("node", read_node),
}


@pytest.mark.parametrize("name", READERS)
def test_changed_bytes_are_read_or_refused(name: str) -> None:
    kind, read = READERS[name]
    rng, good = random.Random(name), 0
    for _ in range(ROUNDS):
        data = mutated(rng, rng.choice(recorded(kind)))
        with suppress(TidemillError):
            read(data)
            good += 1
    assert 0 < good < ROUNDS


@pytest.mark.parametrize("value", [b"[" * 100_000, b'{"score": ' + b"1" * 5000 + b"}", json.dumps({"nodeId": "a", "host": 1}).encode()])
def test_values_of_the_registry_that_describe_no_node(value: bytes) -> None:
    with pytest.raises(TidemillError):
        read_node(value)
