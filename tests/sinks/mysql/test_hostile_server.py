"""Whoever answers at a database's address may send anything: that ends in an error of ours, and takes so much memory."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from random import Random

import pytest

from tidemill.config.database import MysqlOptions
from tidemill.secret import Secret
from tidemill.sinks.mysql import connection as module
from tidemill.sinks.mysql.codes import Fate
from tidemill.sinks.mysql.connection import Connection, ServerFault

CAPABILITIES = 0x2820F | 0x8000 | 0x0008 << 16 | 0x0020 << 16
GREETING = (
    b"\x0a8.0.11-TiDB-v8.1.0\0"
    + struct.pack("<I8sBHBHHB10x", 7, b"A" * 8, 0, CAPABILITIES & 0xFFFF, 0x2D, 2, CAPABILITIES >> 16, 21)
    + b"B" * 12
    + b"\0mysql_native_password\0"
)
OK, EOF = b"\0\0\0\2\0\0\0", b"\xfe\0\0\2\0"
FILE = b"\xfb/etc/passwd"
"""Asks the client for a file of its machine."""
Judge = Callable[[str, list[bytes]], Iterator[bytes] | list[bytes]]
"""What is sent in place of the packets of a stage: greeting, login, answer."""


def text(value: bytes) -> bytes:
    return bytes([len(value)]) + value


def answer(*row: bytes) -> list[bytes]:
    """The packets of a result with one row."""
    columns = [text(b"def") + text(b"") * 3 + text(b"c") * 2 + struct.pack("<BHIBHBxx", 12, 45, 100, 253, 0, 0) for _ in row]
    return [bytes([len(row)]), *columns, EOF, b"".join(map(text, row)), EOF]


class Hostile:
    """Serves one connection."""

    def __init__(self, judge: Judge) -> None:
        self._judge, self._listening = judge, socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError), self._listening.accept()[0] as client:
            client.settimeout(10)
            self._send(client, 0, "greeting", [GREETING])
            client.recv(65536)
            self._send(client, 2, "login", [OK])
            while command := client.recv(65536)[5:]:
                packets = answer(b"8.0.11-TiDB-v8.1.0", b"7") if b"VERSION()" in command else answer(b"1000000")
                self._send(client, 1, "answer", packets if command[:6].upper() == b"SELECT" else [OK])

    def _send(self, client: socket.socket, first: int, stage: str, packets: list[bytes]) -> None:
        for number, data in enumerate(self._judge(stage, packets), first):
            client.sendall(len(data).to_bytes(3, "little") + bytes([number & 0xFF]) + data)

    def close(self) -> None:
        self._listening.close()


def use(judge: Judge) -> None:
    """Do with a server what a sink does."""
    with closing(Hostile(judge)) as server:
        options = MysqlOptions("127.0.0.1", server.port, "u", Secret("password", "p"), read_timeout=300, write_timeout=300)
        with closing(Connection(options)) as one:
            one.rows("SELECT 1")
            one.run("INSERT INTO t VALUES (1)")
            list(one.streamed("SELECT a FROM t"))
            one.commit()


def garbled(random: Random, data: bytes) -> bytes:
    """Some bytes changed, left out or added."""
    at = random.randint(0, len(data))
    match random.randrange(4):
        case 0:
            return data[:at]
        case 1:
            return data[at:]
        case 2:
            return data[:at] + random.randbytes(random.randint(1, 5)) + data[at:]
    return data[:at] + random.choice([b"\0", b"\xfb", b"\xfc", b"\xfd", b"\xfe", b"\xff"]) + data[at + 1 :]


def test_a_database_that_is_one() -> None:
    use(lambda stage, packets: packets)


MORE = pytest.mark.thorough("further seeds: the first dozen has each way to garble a packet several times")


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 40), marks=MORE)], ids=["few", "more"])
@pytest.mark.parametrize("stage", ["greeting", "login", "answer"])
def test_garbled_packets_are_a_fault_of_the_server(stage: str, seeds: range) -> None:
    for seed in seeds:
        random = Random(seed)

        def judge(at: str, packets: list[bytes], random: Random = random) -> list[bytes]:
            return [garbled(random, one) if at == stage and random.random() < 0.6 else one for one in packets]

        with suppress(ServerFault):
            use(judge)


def test_no_file_is_sent() -> None:
    with pytest.raises(ServerFault, match="LOAD_LOCAL") as caught:
        use(lambda stage, packets: [FILE] if len(packets) > 1 else packets)
    assert (caught.value.code, caught.value.fate) == (module.MALFORMED, Fate.RECONNECT)


def endless(packets: list[bytes]) -> Iterator[bytes]:
    """A result whose rows never end."""
    yield from packets[:-2]
    while True:
        yield packets[-2]


@pytest.mark.parametrize("last", [lambda packets: endless(packets), lambda packets: iter([b"\1" * 70_000])], ids=["rows", "one packet"])
def test_an_answer_without_end_ends(last: Callable[[list[bytes]], Iterator[bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_ANSWER", 1 << 16)
    with pytest.raises(ServerFault, match="answer has more than 65,536 bytes"):
        use(lambda stage, packets: last(packets) if len(packets) > 1 else packets)


def test_rows_that_are_streamed_are_counted_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_ANSWER", 1 << 12)

    def judge(stage: str, packets: list[bytes]) -> list[bytes]:
        many = stage == "answer" and len(packets) == 5 and packets[3] == text(b"1000000")
        return packets[:3] + [text(b"x" * 100)] * 1000 + [EOF] if many and next(asked) == 2 else packets

    asked = iter(range(9))  # the size of a packet, SELECT 1, what is streamed, counted from 0
    use(judge)
