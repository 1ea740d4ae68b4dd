"""Binlogs in blocks: what the kernel reads of each is what the reference reads, also of broken ones."""

from __future__ import annotations

import random

import numpy as np
import pytest
from google.protobuf.message import DecodeError

from tests.support.binlog.binlogs import cases
from tests.support.binlog.blocks import block_of, message
from tests.support.rows.mutation import mutated
from tests.support.rows.random_rows import maximal_varint
from tidemill.binlog.blocks import is_fake, read_messages
from tidemill.binlog.messages import Binlog, BinlogType, fake, read_binlog
from tidemill.errors import MalformedMessage
from tidemill.kernels.binlog.layout import H_DDL
from tidemill.wire import pump_pb2


def reference(data: bytes) -> Binlog | None:
    """A message as protobuf reads it; None: it is broken."""
    try:
        return read_binlog(pump_pb2.PullBinlogResp.FromString(data).entity.payload)
    except (MalformedMessage, DecodeError):
        return None


def agrees(messages: list[bytes]) -> None:
    """Compare all of a block with the reference."""
    found = block_of(messages)
    want = [reference(one) for one in messages]
    for i, one in enumerate(want):
        assert one is not None
        head = found.heads[i]
        assert (head["commit_ts"], head["start_ts"], head["type"]) == (one.commit_ts, one.start_ts, one.tp)
        assert bool(is_fake(found)[i]) is one.is_fake
        assert bool(head["flags"] & H_DDL) is (one.ddl_job_id != 0)
        assert int(head["rows_len"]) == len(one.prewrite_value)
        assert found.binlog(i) == one


def test_recorded_messages_are_read_as_by_the_reference() -> None:
    agrees([answer for case in cases() for answer in case.pulls.values()] + [message(fake(7).encode())])


def hostile(rng: random.Random, data: bytes) -> bytes:
    """Bytes with some of them changed, and with lengths that no field has."""
    made = bytearray(mutated(rng, data))
    if rng.random() < 0.4:
        at = rng.randrange(len(made) + 1)
        made[at : at + rng.randrange(3)] = maximal_varint(rng)
    return bytes(made)


def small_answers() -> list[bytes]:
    """Recorded messages."""
    return [answer for case in cases() for answer in case.pulls.values() if len(answer) < 400]


def test_broken_binlogs_are_refused_as_by_the_reference() -> None:
    rng = random.Random(3)
    pool = [pump_pb2.PullBinlogResp.FromString(answer).entity.payload for answer in small_answers()]
    refused = 0
    for _ in range(1500):
        data = message(hostile(rng, rng.choice(pool)))
        if reference(data) is None:
            refused += 1
            with pytest.raises(MalformedMessage):
                block_of([data])
        else:
            agrees([data])
    assert 200 < refused < 1400


def test_what_the_reference_reads_of_broken_messages_is_read_so_too() -> None:
    """Fields that nobody needs are not looked into, so a message may be read here that protobuf refuses."""
    rng = random.Random(4)
    pool = small_answers()
    read = 0
    for _ in range(1500):
        data = hostile(rng, rng.choice(pool))
        if reference(data) is not None:
            read += 1
            agrees([data])
    assert read > 40


def test_a_message_that_no_real_program_writes_is_read_all_the_same() -> None:
    """Two entities are one in protobuf; those before and after it are read by the kernel."""
    plain = message(Binlog(BinlogType.COMMIT, 4, 5, b"k", b"\x08\x01").encode())
    payload = Binlog(BinlogType.COMMIT, 6, 7, b"k", b"\x08\x02").encode()
    divided = pump_pb2.PullBinlogResp(entity=pump_pb2.Entity(payload=payload)).SerializeToString() + b"\x0a\x00"
    agrees([plain, divided, plain, divided])


def test_an_empty_block_has_nothing() -> None:
    assert len(read_messages(np.zeros(0, np.uint8), np.zeros(0, np.int64))) == 0
