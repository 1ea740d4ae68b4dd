"""The HTTP/2 subset: frame by frame against a model, and against a real gRPC server (grpcio's C core, as TiKV has it)."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
import hpack
import numpy as np
import pytest
import uvloop

from tidemill.capture.tikv.client.channels import Channels
from tidemill.capture.tikv.feed import http2
from tidemill.capture.tikv.feed.base import Feed, Method, Transport
from tidemill.capture.tikv.feed.connect import open_feed
from tidemill.capture.tikv.feed.http2 import OUT, Frame, frame
from tidemill.capture.tikv.feed.inbox import Inbox
from tidemill.capture.tikv.receive.decode import Packed, Scanner
from tidemill.capture.tikv.receive.matcher import Matcher
from tidemill.kernels.address import address
from tidemill.kernels.receive import layout as L
from tidemill.kernels.receive.deframe import deframe
from tidemill.wire import cdcpb_pb2 as cdcpb

Control = tuple[int, int, int, bytes]


def fresh_state() -> np.ndarray[Any, Any]:
    state = np.zeros(L.D_WORDS, np.int64)
    state[L.D_MSG], state[L.D_STREAM] = -1, 1
    return state


def deframe_all(wire: bytes, random_: random.Random) -> tuple[list[bytes], list[Control], bytes, np.ndarray[Any, Any]]:
    """Feed the bytes in random chunks, as a socket would, with little room for messages."""
    state, cap = fresh_state(), 1 << 16
    out, ends, frames = np.zeros(cap + 64, np.uint8), np.zeros(8, np.int64), np.zeros((64, 4), np.int64)
    got: list[bytes] = []
    controls: list[Control] = []
    left, at = b"", 0
    while at < len(wire) or left:
        n = random_.choice((1, 3, 9, 100, 5000))
        buffer = left + wire[at : at + n]
        dry = not wire[at : at + n]
        at += n
        array = np.frombuffer(buffer + bytes(64), np.uint8)
        again = True
        while again:
            k = deframe(address(state), address(array), len(buffer), address(out), cap, address(ends), 8, address(frames))
            for kind, flags, stream, where in frames[: state[L.D_CTL]].tolist():
                controls.append((kind, flags, stream, bytes(buffer[where >> 32 : (where >> 32) + (where & 0xFFFFFFFF)])))
            full = state[L.D_CTL] == 64
            state[L.D_CTL] = 0
            assert state[L.D_ERROR] == 0
            begin = 0
            for end in ends[: state[L.D_MSGS]].tolist():
                got.append(bytes(out[begin:end]))
                begin = end
            n_out = int(state[L.D_OUT])
            out[: n_out - begin] = out[begin:n_out].copy()
            state[L.D_OUT] = n_out - begin
            again = bool(state[L.D_MSGS] == 8 or state[L.D_NEED] or full)
            state[L.D_MSGS] = 0
            buffer = buffer[k:]
            array = np.frombuffer(buffer + bytes(64), np.uint8)
        left = buffer
        if dry and k == 0:
            break
    return got, controls, left, state


@pytest.mark.parametrize("seed", range(20))
def test_deframe_any_split(seed: int) -> None:
    random_ = random.Random(seed)
    messages = [random_.randbytes(random_.choice((0, 1, 5, 200, 20000))) for _ in range(60)]
    body = b"".join(struct.pack(">BI", 0, len(m)) + m for m in messages)
    wire, want, at = b"", [], 0
    while at < len(body):
        n = random_.choice((0, 1, 4, 7, 300, 16384))
        if random_.random() < 0.3:
            pad = random_.randrange(5)
            wire += frame(0, 8, 1, bytes([pad]) + body[at : at + n] + bytes(pad))
        else:
            wire += frame(0, 0, 1, body[at : at + n])
        at += n
        if random_.random() < 0.3:
            kind = random_.choice((1, 3, 4, 6, 8, 9, 77))
            control = (kind, random_.choice((0, 1, 4)), random_.choice((0, 1)), bytes(random_.randrange(40)))
            wire += frame(*control)
            want.append(control)
    wire += frame(0, 1, 1)
    got, controls, left, state = deframe_all(wire, random_)
    assert got == messages
    assert controls == want
    assert not left
    assert state[L.D_END] == 1


@pytest.mark.parametrize(
    ("wire", "error"),
    [
        (frame(0, 0, 3, b"x"), L.DE_STREAM),
        (frame(0, 0, 1, b"\x01\0\0\0\1x"), L.DE_COMPRESSED),
        (frame(0, 8, 1, b"\x07abc"), L.DE_PADDING),
    ],
)
def test_deframe_refuses(wire: bytes, error: int) -> None:
    state = fresh_state()
    buffer, out, ends, frames = (np.zeros(4096, np.uint8) for _ in range(4))
    buffer[: len(wire)] = np.frombuffer(wire, np.uint8)
    deframe(address(state), address(buffer), len(wire), address(out), 100, address(ends), 8, address(frames))
    assert state[L.D_ERROR] == error


def test_deframe_random_bytes_stay_in_bounds() -> None:
    random_ = random.Random(1)
    for _ in range(3000):
        frames_ = (
            frame(random_.choice((0, 0, 0, 1, 4)), random_.choice((0, 8)), 1, random_.randbytes(random_.randrange(30))) for _ in range(5)
        )
        wire = b"".join(frames_)
        state = fresh_state()
        buffer, out, ends, frames = np.zeros(400, np.uint8), np.full(164, 7, np.uint8), np.zeros(8, np.int64), np.zeros((64, 4), np.int64)
        buffer[: len(wire)] = np.frombuffer(wire, np.uint8)
        k = deframe(address(state), address(buffer), len(wire), address(out), 100, address(ends), 8, address(frames))
        assert 0 <= k <= len(wire)
        assert 0 <= state[L.D_OUT] <= 100
        assert (out[100:] == 7).all()


class Store:
    """A gRPC server with one EventFeed method that sends what it is told."""

    def __init__(
        self, send: Sequence[bytes], status: tuple[grpc.StatusCode, str] | None = None, requests: int = 1, method: str = "EventFeedV2"
    ) -> None:
        self.send, self.status, self.requests, self.method = send, status, requests, method
        self.got: list[bytes] = []
        self.sent = 0
        self.metadata: dict[str, Any] = {}
        self.progress = asyncio.Condition()

    async def feed(self, requests: Any, context: Any) -> None:
        self.metadata = dict(context.invocation_metadata())
        self.got.append(await context.read())
        if self.status and self.status[0] == grpc.StatusCode.UNIMPLEMENTED:
            await context.abort(*self.status)
        for message in self.send:
            await context.write(message)
            self.sent += 1
        while len(self.got) < self.requests:
            self.got.append(await context.read())
        if self.status:
            await context.abort(*self.status)
        await asyncio.Event().wait()

    async def __aenter__(self) -> Store:
        self.server = grpc.aio.server()
        handler = grpc.stream_stream_rpc_method_handler(self.feed)
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("cdcpb.ChangeData", {self.method: handler})])
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        await self.server.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.server.stop(0)


def drain(inbox: Inbox) -> list[bytes]:
    out = []
    while inbox.bytes:
        _, sub_ranges = inbox.take(1 << 20, 0, 0)
        assert isinstance(sub_ranges, list)
        for sub_range in sub_ranges:
            if isinstance(sub_range, Packed):
                begin = 0
                for end in sub_range.ends.tolist():
                    out.append(sub_range.data[begin:end].tobytes())
                    begin = end
            else:
                out.append(sub_range)
    return out


def with_feed(transport: Transport, store: Store, inbox: Inbox, use: Callable[[Feed], Awaitable[None]], method: Method = Method.V2) -> None:
    async def main() -> None:
        channels = Channels()
        async with asyncio.timeout(600), store:
            feed = await open_feed(transport, f"127.0.0.1:{store.port}", 4, inbox, method, channels)
            await use(feed)
        await channels.close()

    asyncio.run(main())


@pytest.mark.parametrize("transport", Transport)
def test_messages_of_all_sizes_requests_larger_than_the_window_and_trailers(transport: Transport) -> None:
    random_ = random.Random(3)
    messages = [random_.randbytes(random_.choice((0, 1, 10, 1000, 70000))) for _ in range(500)] + [random_.randbytes(9 << 20), b"end"]
    assert len(messages[-2]) > OUT
    requests = [b"r" * 300, b"s" * 3_000_000, b"t"]
    store = Store(messages, (grpc.StatusCode.UNKNOWN, "connection cancelled, slöw"), requests=3)
    inbox = Inbox(high=1 << 30)

    async def use(feed: Feed) -> None:
        for request in requests:
            feed.send(request)
        end = await feed.ended
        assert end.status == 2
        assert "connection cancelled, slöw" in end.text
        assert store.got == requests
        assert store.metadata["features"] == "stream-multiplexing"

    with_feed(transport, store, inbox, use)
    assert drain(inbox) == messages


@pytest.mark.slow
@pytest.mark.parametrize("transport", Transport)
def test_a_row_of_120_mebibytes(transport: Transport) -> None:
    """The largest entry of a transaction: far beyond what gRPC takes without being asked to (U-16)."""
    row = cdcpb.Event.Row(start_ts=11, commit_ts=12, type=cdcpb.Event.COMMITTED, op_type=1, key=b"k", value=bytes(120 << 20))
    event = cdcpb.Event(region_id=1, request_id=7)
    event.entries.entries.append(row)
    message = cdcpb.ChangeDataEvent(events=[event]).SerializeToString()
    inbox = Inbox(high=1 << 30)

    async def use(feed: Feed) -> None:
        feed.send(b"x")
        assert (await feed.ended).status == 2

    with_feed(transport, Store([message], (grpc.StatusCode.UNKNOWN, "over")), inbox, use)
    (got,) = drain(inbox)
    assert got == message
    matcher = Matcher()
    matcher.subscribe(0, 1, 7, 10)
    matcher.feed(Scanner(matcher.chunks).scan([got]))
    assert matcher.pending_rows()["value_len"].tolist() == [120 << 20]


@pytest.mark.parametrize("transport", Transport)
def test_an_old_store_says_unimplemented(transport: Transport) -> None:
    async def use(feed: Feed) -> None:
        feed.send(b"x")
        assert (await feed.ended).status == 12

    with_feed(transport, Store([], method="EventFeed"), Inbox(), use)
    with_feed(transport, Store([], (grpc.StatusCode.UNIMPLEMENTED, "foo")), Inbox(), use)

    async def old(feed: Feed) -> None:
        feed.send(b"x")
        feed.cancel()
        assert (await feed.ended).status == 1

    store = Store([], method="EventFeed")
    with_feed(transport, store, Inbox(), old, Method.V1)


@pytest.mark.parametrize("transport", Transport)
def test_a_store_that_goes_away_ends_the_stream(transport: Transport) -> None:
    store = Store([b"m"])

    async def use(feed: Feed) -> None:
        feed.send(b"x")
        await asyncio.sleep(0)
        while not store.sent:
            await asyncio.sleep(0.01)
        await store.server.stop(0)
        assert (await feed.ended).status in (1, 14)

    with_feed(transport, store, Inbox(), use)


def test_nobody_there_is_an_error_of_the_connection() -> None:
    async def main() -> None:
        with pytest.raises(OSError, match=r"111|refused|Connect"):
            await open_feed(Transport.H2, "127.0.0.1:1", 0, Inbox(), Method.V2, Channels())

    asyncio.run(main())


def h2_settings() -> bytes:
    return frame(Frame.SETTINGS, 0, 0)


def with_server(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    use: Callable[[Feed], Awaitable[None]],
    inbox: Inbox | None = None,
) -> None:
    """A feed to a server whose answers are given byte by byte."""

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with asyncio.timeout(600):
            port = server.sockets[0].getsockname()[1]
            feed = await open_feed(Transport.H2, f"127.0.0.1:{port}", 0, inbox or Inbox(), Method.V2, Channels())
            await use(feed)
        feed.cancel()
        server.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the server does not speak HTTP/2: its answer begins with b'HTTP/1.1 "),
        (b"\x15\x03\x01\x00\x02\x02\x46", "the server does not speak HTTP/2: it wants TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "the server does not speak HTTP/2: its answer begins with b'SSH-2.0"),
        (h2_settings() + frame(Frame.SETTINGS, 0, 0, b"12345"), "an HTTP/2 frame of type 4 cannot be read"),
        (h2_settings() + frame(Frame.HEADERS, 12, 1), "an HTTP/2 frame of type 1 cannot be read"),
        (h2_settings() + frame(Frame.HEADERS, 5, 1, hpack.Encoder().encode([("grpc-status", "lots")])), "of type 1 cannot be read"),
        (h2_settings() + frame(Frame.HEADERS, 5, 1, b"\xff\xff\xff\xff\xff"), "headers cannot be read"),
        (h2_settings() + frame(Frame.DATA, 0, 1, b"\0\xff\xff\xff\xf0x"), "is announced; no server sends more than"),
        (
            h2_settings() + frame(Frame.GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\x0btoo_many_pings"),
            "closes the connection with HTTP/2 code 11 too_many_pings",
        ),
        (
            h2_settings() + frame(Frame.GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\x0bbye") + frame(Frame.DATA, 0, 1, b"\0\xff\xff\xff\xf0x"),
            "closes the connection with HTTP/2 code 11 bye",
        ),
    ],
)
@pytest.mark.parametrize("pieces", ["bytes", "whole"])
def test_what_makes_no_sense_ends_the_stream_with_a_reason(answer: bytes, text: str, pieces: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(24)
        size = 1 if pieces == "bytes" else len(answer)
        for at in range(0, len(answer), size):
            writer.write(answer[at : at + size])
            await asyncio.sleep(0)

    async def use(feed: Feed) -> None:
        assert text in (await feed.ended).text

    with_server(serve, use)


REGIONS = [*range(1 << 20, 99 + (1 << 20))]
RESOLVED = cdcpb.ChangeDataEvent(resolved_ts=cdcpb.ResolvedTs(regions=REGIONS, ts=7)).SerializeToString()


@pytest.mark.parametrize("last", [RESOLVED, b"end"])
def test_rows_wait_for_a_resolved_ts_or_for_a_small_message(monkeypatch: pytest.MonkeyPatch, last: bytes) -> None:
    """Without either they would wait for an hour here."""
    monkeypatch.setattr(http2, "GATHER", 3600.0)
    rows = cdcpb.ChangeDataEvent(events=[cdcpb.Event(region_id=one) for one in range(1, 200)]).SerializeToString()
    assert min(len(rows), len(RESOLVED)) > http2.SMALL
    inbox, waits = Inbox(), asyncio.Event()

    def message(content: bytes) -> bytes:
        return frame(Frame.DATA, 0, 1, b"\0" + struct.pack(">I", len(content)) + content)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(24)
        writer.write(h2_settings() + message(rows) + message(rows))
        await waits.wait()
        writer.write(message(rows) + message(last))

    async def use(feed: Feed) -> None:
        assert isinstance(feed, http2.H2Feed)
        while feed.waiting < 2:
            await asyncio.sleep(0)
        assert not inbox.bytes
        waits.set()
        while not inbox.bytes:
            await asyncio.sleep(0)
        assert drain(inbox) == [rows, rows, rows, last]

    with_server(serve, use, inbox)


@pytest.mark.parametrize("silent", [True, False])
def test_a_ping_is_answered_by_anything_that_comes(monkeypatch: pytest.MonkeyPatch, silent: bool) -> None:
    """The answer to a PING may be queued behind megabytes of rows: a store that sends is alive; a silent one is given up."""
    monkeypatch.setattr(http2, "KEEPALIVE", 0.2)
    monkeypatch.setattr(http2, "KEEPALIVE_TIMEOUT", 0.15)
    asked = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(h2_settings())
        while data := await reader.read(1 << 16):
            if b"tidemill" in data[-8:]:  # a PING; it is never answered
                asked.set()
                if not silent:
                    writer.write(frame(77, 0, 0, b"x"))

    async def use(feed: Feed) -> None:
        await asked.wait()
        if silent:
            assert "is silent" in (await feed.ended).text
            return
        for _ in range(3):
            asked.clear()
            await asked.wait()
        assert not feed.ended.done()

    with_server(serve, use)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_name_server_that_is_away_keeps_nobody(monkeypatch: pytest.MonkeyPatch, run: Callable[[Any], None]) -> None:
    """The look-up continues, but neither the connection nor the end of the loop waits for it."""
    away, asked = threading.Event(), []

    def look_up(host: str, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        away.wait()
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(http2, "CONNECT_TIMEOUT", 0.2)

    async def main() -> None:
        with pytest.raises(OSError, match="no connection to tikv-0:20160 within 0 s"):
            await open_feed(Transport.H2, "tikv-0:20160", 0, Inbox(), Method.V2, Channels())

    run(main())
    assert asked == ["tikv-0"]
    away.set()


def test_all_addresses_of_a_name_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of two addresses is dead."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 0)) for ip in ("127.0.0.2", "127.0.0.1")]
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *a, **k: found if host == "tikv-0" else real(host, *a, **k))

    async def main() -> None:
        async with Store([b"m"]) as store:
            feed = await open_feed(Transport.H2, f"tikv-0:{store.port}", 0, Inbox(), Method.V2, Channels())
            feed.send(b"x")
            while not store.sent:
                await asyncio.sleep(0.01)
            feed.cancel()

    asyncio.run(main())


@pytest.mark.parametrize("transport", Transport)
def test_back_pressure_holds_the_store(transport: Transport) -> None:
    """A full inbox stops the sender after a window; taking lets it go on; nothing is lost."""
    messages = [struct.pack(">I", i) + bytes(64 << 10) for i in range(1200)]
    store, inbox = Store(messages), Inbox(high=4 << 20)

    async def use(feed: Feed) -> None:
        feed.send(b"x")
        held = -1
        while held != store.sent or inbox.bytes < inbox.high:  # until it stands still
            held = store.sent
            await asyncio.sleep(0.2)
        assert inbox.bytes <= (4 << 20) + (18 << 20)
        assert store.sent < 700
        got: list[bytes] = []
        while len(got) < len(messages):
            got += drain(inbox)
            await asyncio.sleep(0.005)
        assert got == messages
        feed.cancel()
        assert (await feed.ended).status == 1

    with_feed(transport, store, inbox, use)
