"""The machine of HTTP/2: the kernel's path beside the plain one, flow control both ways, the rules, and hostile peers."""

from __future__ import annotations

import random
import struct
from typing import Any

import hpack
import pytest

from tests.support.binlog.binlogs import commit, prewrite
from tests.support.thorough import FUZZ
from tidemill.binlog.groups import Groups
from tidemill.binlog.http2 import connection as machine
from tidemill.binlog.http2 import frames as F
from tidemill.binlog.http2.connection import Call, Cancelled, Connection
from tidemill.binlog.http2.frames import Code, Frame, Setting, Status
from tidemill.binlog.messages import read_head
from tidemill.binlog.valuelog import Record, scan
from tidemill.kernels.pump import layout as L
from tidemill.wire import pump_pb2

CLUSTER = 7
ROUNDS = 40 * FUZZ
FIELDS = [
    (":method", "POST"), (":scheme", "http"), (":path", L.WRITE_PATH.decode()), (":authority", "h:1"), ("content-type", "application/grpc"),
    ("te", "trailers"),
]  # fmt: skip


def request(payload: bytes, cluster: int = CLUSTER) -> bytes:
    """A request of WriteBinlog."""
    return bytes(pump_pb2.WriteBinlogReq(clusterID=cluster, payload=payload).SerializeToString())


class Client:
    """What a client sends, and what it gets."""

    def __init__(self, *, plain: bool = False, **options: Any) -> None:
        self.groups = Groups()
        self.groups.say(CLUSTER, prewrites=True)
        self.server = Connection(1, self.groups, plain=plain, **options)
        self.encoder, self._decoder = hpack.Encoder(), hpack.Decoder()
        self.events: list[Any] = []
        self.data: dict[int, bytes] = {}
        self.ended: dict[int, dict[str, str]] = {}
        self.resets: dict[int, int] = {}
        self.windows: dict[int, int] = {}
        self.goaway: tuple[int, int] | None = None
        self.pongs = 0

    def open(self, **settings: int) -> Client:
        """Say what a client says first."""
        return self.send(F.PREFACE + F.settings({Setting[name]: value for name, value in settings.items()}))

    def send(self, data: bytes) -> Client:
        """Send bytes, and read what comes."""
        self.events += self.server.receive(data)
        return self.read()

    def read(self) -> Client:
        """Read what the server has to send."""
        data, self.server.sender.output = b"".join(bytes(part) for part in self.server.sender.output), []
        at = 0
        while at < len(data):
            length, kind, flags = int.from_bytes(data[at : at + 3], "big"), data[at + 3], data[at + 4]
            stream = int.from_bytes(data[at + 5 : at + 9], "big")
            self._frame(kind, flags, stream, data[at + 9 : at + 9 + length])
            at += 9 + length
        return self

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == Frame.HEADERS:
            found = {str(k): str(v) for k, v in self._decoder.decode(payload)}
            if flags & F.END_STREAM:
                self.ended[stream] = found
        elif kind == Frame.DATA:
            self.data[stream] = self.data.get(stream, b"") + payload
        elif kind == Frame.RST_STREAM:
            self.resets[stream] = int.from_bytes(payload, "big")
        elif kind == Frame.WINDOW_UPDATE:
            self.windows[stream] = self.windows.get(stream, 0) + int.from_bytes(payload, "big")
        elif kind == Frame.GOAWAY:
            self.goaway = int.from_bytes(payload[:4], "big"), int.from_bytes(payload[4:8], "big")
        elif kind == Frame.PING:
            self.pongs += 1

    def headers(self, stream: int, *, flags: int = F.END_HEADERS, **changed: str) -> bytes:
        """A HEADERS frame that begins a call."""
        fields = [(k, changed.get(k.lstrip(":").replace("-", "_"), v)) for k, v in FIELDS]
        more = [(k.replace("_", "-"), v) for k, v in changed.items() if k.startswith("grpc_")]
        return F.frame(Frame.HEADERS, flags, stream, self.encoder.encode([*fields, *more]))

    def call(self, stream: int, message: bytes, **changed: str) -> bytes:
        """A whole call."""
        return self.headers(stream, **changed) + F.frame(Frame.DATA, F.END_STREAM, stream, F.prefixed(message))

    def write(self) -> list[bytes]:
        """Write the groups, as the store does, and answer; returns the payloads. Calls that no kernel took are admitted if they can be."""
        for event in self.events:
            if isinstance(event, Call) and event.path == L.WRITE:
                asked = pump_pb2.WriteBinlogReq.FromString(event.message)
                waits = self.server.entrust(event.stream)
                self.groups.add(asked.payload, read_head(asked.payload), *((1, event.stream) if waits else (0, 0)))
        self.events = [event for event in self.events if not isinstance(event, Call)]
        found: list[bytes] = []
        while (group := self.groups.take()) is not None:
            data = bytes(group.records)
            found += [one.payload for one in scan(data, len(data)) if isinstance(one, Record)]
            self.server.answer_marks(group.marks[: group.count])
            self.groups.done(group)
        self.read()
        return found


def plan(rng: random.Random) -> list[tuple[str, Any]]:
    """What a client does: calls of all sizes and forms, and what else it may send."""
    steps: list[tuple[str, Any]] = []
    for n in range(rng.randrange(1, 12)):
        size = rng.choice((0, 1, 50, 200, 16_000, 17_000, 60_000))
        steps.append(("call", (2 * n + 1, prewrite(n + 1, rng.randbytes(size)) if rng.random() < 0.6 else commit(n + 1, n + 2))))
    for _ in range(rng.randrange(4)):
        steps.insert(rng.randrange(len(steps)), (rng.choice(("ping", "window", "priority", "unknown", "settings")), None))
    return steps


def wire(client: Client, rng: random.Random, steps: list[tuple[str, Any]]) -> bytes:
    """The bytes of it, with DATA and headers cut and padded at random. Calls overlap."""
    out, waiting = b"", list[list[bytes]]()
    others = {
        "ping": F.frame(Frame.PING, 0, 0, b"12345678"), "window": F.window_update(0, 100), "unknown": F.frame(77, 3, 5, b"?"),
        "priority": F.frame(Frame.PRIORITY, 0, 1, bytes(5)), "settings": F.settings({Setting.HEADER_TABLE_SIZE: 100}),
    }  # fmt: skip
    for kind, what in steps:
        if kind != "call":
            out += others[kind]
            continue
        stream, payload = what
        message = F.prefixed(request(payload))
        block = client.headers(stream, grpc_timeout=f"{rng.randrange(10**6)}u")[9:]
        if rng.random() < 0.3:
            block = b"\x07" + struct.pack(">IB", 0, 1) + block + bytes(7)
            out += F.frame(Frame.HEADERS, F.END_HEADERS | F.PADDED | F.PRIORITY_FLAG, stream, block)
        elif rng.random() < 0.4:
            at = rng.randrange(len(block) + 1)
            out += F.frame(Frame.HEADERS, 0, stream, block[:at]) + F.frame(Frame.CONTINUATION, F.END_HEADERS, stream, block[at:])
        else:
            out += F.frame(Frame.HEADERS, F.END_HEADERS, stream, block)
        step = rng.choice((1 << 14, 1 << 14, 9000))
        cuts = [message[at : at + step] for at in range(0, len(message), step)]
        waiting.append([F.frame(Frame.DATA, F.END_STREAM if n == len(cuts) - 1 else 0, stream, cut) for n, cut in enumerate(cuts)])
        while waiting and rng.random() < 0.7:
            first = waiting[rng.randrange(len(waiting))]
            out += first.pop(0)
            waiting = [one for one in waiting if one]
    return out + b"".join(frame for one in waiting for frame in one)


@pytest.mark.parametrize("seed", range(4))
def test_the_kernel_takes_what_the_plain_machine_takes_however_the_bytes_are_cut(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(ROUNDS):
        steps, cut = plan(rng), rng.randrange(1 << 30)
        found = []
        for plain in (False, True):
            client, local = Client(plain=plain).open(), random.Random(cut)
            data = wire(client, local, steps)
            while data:
                size = local.choice((1, 10, 100, 5000, 100_000))
                client.send(data[:size])
                data = data[size:]
            written = sorted(client.write())
            assert client.server.over is None
            assert client.server.open == 0
            found.append((written, client.data, client.ended, client.pongs))
        assert found[0] == found[1]
        calls = [what for kind, what in steps if kind == "call"]
        assert found[0][0] == sorted(payload for _, payload in calls)
        assert {stream: end["grpc-status"] for stream, end in found[0][2].items()} == {stream: "0" for stream, _ in calls}


def test_usual_calls_are_taken_without_an_event() -> None:
    client = Client().open()
    client.send(b"".join(client.call(stream, request(prewrite(stream))) for stream in (1, 3, 5)))
    assert client.events == []
    assert client.server.taken == 3
    assert client.write() == [prewrite(1), prewrite(3), prewrite(5)]
    assert client.data == {1: bytes(5), 3: bytes(5), 5: bytes(5)}
    assert client.server.open == 0


@pytest.mark.parametrize("plain", [False, True])
def test_what_is_not_usual_is_for_the_service(plain: bool) -> None:
    client = Client(plain=plain).open()
    client.send(client.call(1, request(prewrite(1), cluster=8)) + client.call(3, request(b"")) + client.call(5, request(b"\xff\xff")))
    client.groups.say(CLUSTER, prewrites=False)
    client.send(client.call(7, request(prewrite(7))) + client.call(9, b"", path=L.PULL_PATH.decode()))
    assert [(event.stream, event.path) for event in client.events] == [(1, L.WRITE), (3, L.WRITE), (5, L.WRITE), (7, L.WRITE), (9, L.PULL)]
    client.server.refuse(1, Status.UNKNOWN, "100 % falsch: ä")
    assert client.read().ended[1]["grpc-message"] == "100 %25 falsch: %C3%A4"
    assert client.groups.empty


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    ("changed", "message", "status"),
    [
        ({"path": "/binlog.Pump/Nothing"}, b"", Status.UNIMPLEMENTED),
        ({"method": "GET"}, b"", Status.INTERNAL),
        ({"content_type": "text/plain"}, b"", Status.UNKNOWN),
        ({}, b"\x01\0\0\0\x01x", Status.INTERNAL),
        ({"grpc_encoding": "gzip"}, b"\x01\0\0\0\x01x", Status.UNIMPLEMENTED),
        ({}, b"\0\0\0\0\x03x", Status.INTERNAL),
        ({}, b"\0\0\0\0\0" * 2, Status.INTERNAL),
        ({}, b"\0\x01\0\0\0", Status.RESOURCE_EXHAUSTED),
    ],
)
def test_calls_that_end_with_a_status(changed: dict[str, str], message: bytes, status: Status, plain: bool) -> None:
    client = Client(plain=plain, largest=1000).open()
    client.send(client.headers(1, **changed) + F.frame(Frame.DATA, F.END_STREAM, 1, message))
    assert client.ended[1]["grpc-status"] == str(int(status))
    assert client.server.open == 0
    client.send(client.call(3, request(commit(1, 2))))
    assert client.write() == [commit(1, 2)]


def test_a_large_request_gets_the_window_that_it_needs_and_others_wait() -> None:
    client = Client().open()
    big = F.prefixed(request(prewrite(1, bytes(machine.GRANTED))))
    for stream in (1, 3):
        client.send(client.headers(stream))
        for at in range(0, F.FIRST_WINDOW - 16384, 16384):
            client.send(F.frame(Frame.DATA, 0, stream, big[at : at + 16384]))
    assert client.windows[1] == len(big) - F.FIRST_WINDOW
    assert 3 not in client.windows
    client.send(F.frame(Frame.RST_STREAM, 0, 1, struct.pack(">I", 8)))
    assert client.windows[3] == len(big) - F.FIRST_WINDOW
    for first in range(49152, len(big), 1 << 20):
        client.send(
            b"".join(F.frame(Frame.DATA, 0, 3, big[at : at + 16384]) for at in range(first, min(first + (1 << 20), len(big)), 16384))
        )
    assert client.server.over is None
    client.send(F.frame(Frame.DATA, F.END_STREAM, 3, b""))
    assert len(client.write()[0]) > machine.GRANTED


def test_answers_keep_to_the_windows_of_the_client() -> None:
    client = Client().open(INITIAL_WINDOW_SIZE=3)
    client.send(client.call(1, request(commit(1, 2))))
    client.write()
    assert (client.data, client.ended) == ({1: bytes(3)}, {})
    client.send(F.window_update(1, 2))
    assert (client.data[1], client.ended[1]["grpc-status"]) == (bytes(5), "0")
    client.send(client.call(3, b"", path=L.PULL_PATH.decode()))
    assert client.server.open_answer(3)
    block = bytes(range(250)) * 400
    client.server.send(3, block)
    client.read().send(F.settings({Setting.INITIAL_WINDOW_SIZE: 70_000}))
    assert len(client.data[3]) == F.FIRST_WINDOW - 5  # the connection's
    assert client.server.waiting(3) == len(block) - len(client.data[3])
    client.send(F.window_update(0, 1 << 20) + F.window_update(3, 1 << 20))
    assert client.data[3] == block
    client.server.finish(3, Status.UNAVAILABLE, "end")
    assert client.read().ended[3] == {"grpc-status": "14", "grpc-message": "end"}


def test_a_cancelled_call_is_written_and_not_answered() -> None:
    client = Client().open()
    client.send(client.call(1, request(commit(1, 2))) + client.call(3, request(commit(1, 3))))
    client.send(F.frame(Frame.RST_STREAM, 0, 1, struct.pack(">I", 8)))
    assert len(client.write()) == 2
    assert list(client.ended) == [3]
    assert client.server.open == 0
    client.send(client.call(5, b"", path=L.PULL_PATH.decode()) + F.frame(Frame.RST_STREAM, 0, 5, struct.pack(">I", 8)))
    assert client.events[-1] == Cancelled(5)


def test_a_call_and_its_cancellation_come_together() -> None:
    """As a client does that gives up just as it has sent everything. The call is not one that the kernel takes."""
    client = Client(plain=True).open()
    reset = F.frame(Frame.RST_STREAM, 0, 1, struct.pack(">I", 8))
    client.send(client.call(1, request(prewrite(1, b"value"))) + reset + client.call(3, request(commit(1, 3))))
    assert [type(event) for event in client.events] == [Call, Cancelled, Call]
    assert client.write() == [prewrite(1, b"value"), commit(1, 3)]
    assert list(client.ended) == [3]
    assert (client.server.open, client.resets) == (0, {})


def test_closing_takes_no_more_calls_and_answers_what_has_begun() -> None:
    client = Client().open()
    client.send(client.call(1, request(commit(1, 2))))
    client.server.close()
    client.send(client.call(3, request(commit(1, 3))))
    assert client.goaway == (1, Code.NO_ERROR)
    assert not client.server.idle
    assert client.write() == [commit(1, 2)]
    assert client.server.idle
    assert list(client.ended) == [1]


def test_more_calls_than_there_may_be_are_refused_and_can_be_tried_again() -> None:
    client = Client().open()
    for n in range(machine.MOST_STREAMS + 1):
        client.send(client.headers(2 * n + 1))
    assert client.resets == {2 * machine.MOST_STREAMS + 1: Code.REFUSED_STREAM}


@pytest.mark.parametrize("plain", [False, True])
def test_a_request_that_does_not_go_on_ends_and_gives_its_memory_back(plain: bool) -> None:
    client = Client(plain=plain).open()
    client.send(client.headers(1))
    part = F.prefixed(request(prewrite(1, bytes(40_000))))[:20_000]
    client.send(client.headers(3) + b"".join(F.frame(Frame.DATA, 0, 3, part[at : at + 10_000]) for at in (0, 10_000)))
    assert client.server.unfinished == 20_000
    client.server.expire()
    client.send(client.headers(5))
    client.server.expire()
    assert client.server.open == 1
    assert client.server.unfinished == 0
    client.read()
    assert {client.ended[n]["grpc-status"] for n in (1, 3)} == {str(int(Status.DEADLINE_EXCEEDED))}
    client.send(F.frame(Frame.DATA, F.END_STREAM, 5, F.prefixed(request(commit(1, 2)))))
    assert client.write() == [commit(1, 2)]
    assert client.server.over is None


def test_a_large_request_that_goes_on_and_a_call_that_waits_for_its_answer_do_not_end() -> None:
    client = Client().open()
    message = F.prefixed(request(prewrite(1, bytes(1_000_000))))
    parts = [message[at : at + 10_000] for at in range(0, len(message), 10_000)]
    client.send(client.headers(1))
    client.send(client.call(3, request(commit(8, 9))))
    for at, part in enumerate(parts):
        client.send(F.frame(Frame.DATA, F.END_STREAM if part is parts[-1] else 0, 1, part))
        if at % 10 == 9:
            client.server.expire()
    assert client.server.unfinished == 0
    assert sorted(map(len, client.write())) == sorted(map(len, (commit(8, 9), prewrite(1, bytes(1_000_000)))))


def test_a_call_that_waits_for_room_for_its_request_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "GRANTED", 1 << 20)
    client = Client().open()
    first = F.prefixed(request(prewrite(1, bytes(900_000))))
    for stream in (1, 3):
        client.send(client.headers(stream) + F.frame(Frame.DATA, 0, stream, first[:10_000]))
    for at in range(10_000, 810_000, 80_000):
        for part in range(at, at + 80_000, 10_000):
            client.send(F.frame(Frame.DATA, 0, 1, first[part : part + 10_000]))
        client.server.expire()
    assert not client.read().ended
    assert client.server.open == 2


@pytest.mark.parametrize(
    "begun",
    [b"", F.PREFACE[:9], F.PREFACE, F.PREFACE + F.settings({})[:5], F.PREFACE + F.settings({}) + F.frame(Frame.HEADERS, 0, 1, b"\x83")],
)
def test_a_connection_that_does_not_end_what_it_began_is_over(begun: bytes) -> None:
    client = Client().send(begun)
    client.server.expire()
    assert client.server.over is None
    client.server.expire()
    assert client.read().goaway is not None
    assert client.server.over is not None


HUGE = b"\x40" + b"\x01x" + b"\x7f\xff\xff\x07"


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (F.frame(Frame.PING, 0, 0, b"1"), Code.FRAME_SIZE_ERROR),
        (F.frame(Frame.PING, 0, 1, b"12345678"), Code.PROTOCOL_ERROR),
        (F.frame(Frame.DATA, 0, 0, b""), Code.PROTOCOL_ERROR),
        (F.frame(Frame.DATA, 0, 9, b""), Code.PROTOCOL_ERROR),
        (F.frame(Frame.DATA, 0, 1, bytes(16385)), Code.FRAME_SIZE_ERROR),
        (F.frame(Frame.RST_STREAM, 0, 9, bytes(4)), Code.PROTOCOL_ERROR),
        (F.frame(Frame.SETTINGS, 0, 0, b"12345"), Code.FRAME_SIZE_ERROR),
        (F.settings({Setting.MAX_FRAME_SIZE: 5}), Code.PROTOCOL_ERROR),
        (F.settings({Setting.INITIAL_WINDOW_SIZE: 1 << 31}), Code.FLOW_CONTROL_ERROR),
        (F.window_update(0, 0), Code.PROTOCOL_ERROR),
        (F.window_update(0, (1 << 31) - 1), Code.FLOW_CONTROL_ERROR),
        (F.frame(Frame.PUSH_PROMISE, 0, 1, b""), Code.PROTOCOL_ERROR),
        (F.frame(Frame.CONTINUATION, 0, 1, b""), Code.PROTOCOL_ERROR),
        (F.frame(Frame.HEADERS, F.END_HEADERS, 2, b"\x83"), Code.PROTOCOL_ERROR),
        (F.frame(Frame.HEADERS, F.END_HEADERS, 1, b"\x80"), Code.COMPRESSION_ERROR),
        (F.frame(Frame.HEADERS, F.END_HEADERS, 1, b"\x3f\xff\xff\x03"), Code.COMPRESSION_ERROR),
        (F.frame(Frame.HEADERS, F.END_HEADERS, 1, HUGE), Code.COMPRESSION_ERROR),
        (F.frame(Frame.HEADERS, F.END_HEADERS | F.PADDED, 1, b"\x05\x83"), Code.PROTOCOL_ERROR),
        (F.frame(Frame.HEADERS, 0, 1, b"\x83") + F.frame(Frame.PING, 0, 0, bytes(8)), Code.PROTOCOL_ERROR),
        (F.frame(Frame.HEADERS, 0, 1, b"") + F.frame(Frame.CONTINUATION, 0, 1, b"") * 70, Code.ENHANCE_YOUR_CALM),
        (F.frame(Frame.HEADERS, 0, 1, b"") + F.frame(Frame.CONTINUATION, 0, 1, bytes(16384)) * 3, Code.ENHANCE_YOUR_CALM),
    ],
)
def test_a_peer_that_breaks_the_rules_is_told_and_its_connection_is_over(data: bytes, code: Code, plain: bool) -> None:
    client = Client(plain=plain).open()
    client.send(data)
    assert client.goaway is not None
    assert client.goaway[1] == code
    assert client.server.over is not None
    assert client.send(client.call(11, b"")).ended == {}


def test_what_is_no_http_2_is_told() -> None:
    assert Client().send(b"PRI * HTTP/1.0\r\n").goaway is not None
    assert Client().send(F.PREFACE + F.frame(Frame.PING, 0, 0, bytes(8))).goaway is not None


def test_calls_that_are_reset_again_and_again_end_the_connection() -> None:
    client = Client().open()
    for n in range(machine.MOST_RESETS + 1):
        client.send(client.headers(2 * n + 1) + F.frame(Frame.RST_STREAM, 0, 2 * n + 1, struct.pack(">I", 8)))
    assert client.goaway == (2 * machine.MOST_RESETS + 1, Code.ENHANCE_YOUR_CALM)


def test_headers_that_unpack_to_too_much_end_the_call_only() -> None:
    client = Client().open()
    client.send(client.call(1, request(commit(1, 2))))
    bomb = b"\x40\x01x\x7f\xa1\x1e" + bytes(4000) + b"\xbe" * 9000  # an entry of 4 KB, again and again
    client.send(F.frame(Frame.HEADERS, F.END_HEADERS, 3, b"\x83\x86\x44\x01/" + bomb))
    assert client.ended[3]["grpc-status"] == str(int(Status.RESOURCE_EXHAUSTED))
    assert client.server.over is None


@pytest.mark.parametrize("seed", range(2))
def test_changed_bytes_end_with_an_error_or_not_at_all(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(4 * ROUNDS):
        client = Client()
        data = bytearray(F.PREFACE + F.settings({}) + wire(client, rng, plan(rng)))
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        half = rng.randrange(len(data))
        client.server.receive(bytes(data[:half]))
        client.server.receive(bytes(data[half:]))
        assert 0 <= client.server.open <= machine.MOST_STREAMS
