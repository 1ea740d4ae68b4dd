"""Packets: recorded ones are read, and written again byte for byte; hostile bytes are refused."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.support.canal.golden import frames
from tests.support.rows.random_rows import maximal_varint
from tidemill.protocols.canal import packets as p
from tidemill.protocols.canal.codes import PacketType

SHORTER = {"bad_types", "bad_frame_empty", "client_java_110", "client_node", "get_pipelined", "raw_false"}
"""Recordings with packets that are written in another way: of other clients, by hand, and of a server that does not keep bytes."""


def test_recorded_packets_are_read_and_written() -> None:
    kinds: Counter[type] = Counter()
    for line in frames():
        data = bytes.fromhex(line["hex"])
        taken = p.take_frame(data)
        assert taken is not None
        assert taken[1] == len(data)
        if line["type"] is None:  # garbage that a client sent
            with pytest.raises(p.PacketError, match="read as Packet"):
                p.parse_packet(taken[0])
            continue
        body = p.parse_packet(taken[0])
        kinds[type(body)] += 1
        if isinstance(body, p.Unknown):
            assert body.type in (0, 9, 10, 11, 77)
            continue
        again = p.frame(p.write_packet(body))
        assert again == data or line["scenario"] in SHORTER, line
        taken = p.take_frame(again)
        assert taken is not None
        assert p.parse_packet(taken[0]) == body
    assert kinds[p.Handshake] > 50
    assert set(kinds) == {
        p.Handshake, p.ClientAuth, p.Ack, p.Subscription, p.Unsubscription, p.Get, p.Messages, p.ClientAck, p.ClientRollback, p.Unknown
    }  # fmt: skip


def test_what_stands_in_requests() -> None:
    get = bytes.fromhex("18062a250a0c617574685f6f6b5f6a617661120431303031180a20ffffffffffffffffff0128023000")
    assert p.parse_packet(get) == p.Get("auth_ok_java", "1001", 10, -1, 2, False)
    assert p.parse_packet(p.write_packet(p.Get("d", "1", 5))) == p.Get("d", "1", 5, None, None, False)
    auth = p.ClientAuth("u", b"0123", 3_600_000, 1, "d", "7", "a\\..*")
    assert p.parse_packet(p.write_packet(auth)) == auth
    assert "0123" not in repr(auth)


def test_a_batch_has_no_version_and_all_else_of_a_server_has() -> None:
    assert p.packet_version(p.write_packet(p.Messages(3, (b"x",)))) is None
    assert p.packet_version(p.write_packet(p.Messages(-1))) == 1
    assert p.write_packet(p.Ack()) == bytes.fromhex("10011803")


def test_frames_in_pieces() -> None:
    data = p.frame(b"abc") + p.frame(b"") + p.frame(b"de")
    found, at = [], 0
    for end in range(len(data) + 1):
        while (taken := p.take_frame(data[:end], at)) is not None:
            packet, at = taken
            found.append(packet)
    assert found == [b"abc", b"", b"de"]


@pytest.mark.parametrize("head", ["ffffffff", "80000000", "08000001", "7fffffff"])
def test_lengths_that_no_frame_has(head: str) -> None:
    """Refused by the first four bytes: nothing is waited for."""
    with pytest.raises(p.PacketError, match="a frame of"):
        p.take_frame(bytes.fromhex(head))


def test_other_refusals() -> None:
    compressed = p.write_packet(p.Messages(1, (b"x",))) + b"\x20\x02"
    with pytest.raises(p.PacketError, match="compressed"):
        p.parse_packet(compressed)
    with pytest.raises(p.PacketError, match=r"client id .* is not UTF-8"):
        p.parse_packet(b"\x18\x04\x2a\x03\x12\x01\xff")
    with pytest.raises(ValueError, match="no body"):
        p.write_packet(p.Unknown(9))


def test_hostile_packets() -> None:
    """Bytes changed anywhere, and lengths near 2^63: a body, or PacketError."""
    rng = random.Random(13)
    pool = [bytes.fromhex(line["hex"])[4:] for line in frames()]
    refused = 0
    for _ in range(6000):
        data = bytearray(rng.choice(pool))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data) + 1)
            data[at : at + rng.randrange(3)] = maximal_varint(rng) if rng.random() < 0.5 else rng.randbytes(rng.randrange(3))
        try:
            p.parse_packet(bytes(data))
        except p.PacketError:
            refused += 1
    assert refused > 1000
    assert {t.value for t in PacketType} == set(range(13))
