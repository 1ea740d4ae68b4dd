"""What capturing a row costs: CPU seconds of the capture process per million rows, from the change feed's socket to durable segments.

    python -m bench.bench_capture [narrow mixed wide] [--corpus FOLDER] [--rows 400000] [--shapes scan/64 live10/4 …] [--transport h2|grpc]

A store of its own process sends serialised messages over HTTP/2 as fast as flow control lets it; its CPU does not count. Shapes:
`scan` is an incremental scan (COMMITTED rows), `liveN` are transactions of N rows (PREWRITE and COMMIT events); behind the slash
the most events a message holds. Before the clock starts a quarter as many rows of a live shape are sealed: their memory is used again
by those that count, as in a capture that has run for a minute. A scan's rows are all there at once, in memory that is new. Resolved
ts come every 50,000 rows, so several segments are sealed. The rows that reach the log
are counted; user and system time are told apart because the latter is noisy in virtual machines. `--work /dev/shm` shows it without
a disk: a file's pages are memory that was never touched, and a virtual machine gets that from its host first.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import hpack
import uvloop

from bench.corpus import NAMES, Corpus, load
from bench.report import limits
from bench.report.figures import Figure, Limit, files_in, note
from tidemill.tidb.keys import record_key
from tidemill.wire import cdcpb_pb2 as cdcpb

if TYPE_CHECKING:
    from tidemill.capture.tikv.receive.ingest import Stats

SHAPES = ("scan/64", "live1/64", "live10/64", "live500/64", "live10/4", "live1/1", "live10/1")
REGIONS = 64
REQUEST = 1
START_TS = 470_000_000_000_000_000
RESOLVED_EVERY = 50_000
EVENT_BYTES = 32 << 10
MESSAGE_BYTES = 6 << 20
AIMS = {"narrow": 0.8, "mixed": 1.2}  # CPU s a million rows at most, kernel time included
RESIDENT = 280  # MiB at most: a capture that idles has 115, and with rows it should have 400
SHORT_VALUE = 255  # a COMMIT repeats values up to so many bytes
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8

PREWRITE, COMMIT, COMMITTED, INITIALIZED = 1, 2, 4, 5


# ---- what is sent ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """How rows come: transactions of `size` rows (0: an incremental scan), at most `events` events a message."""

    size: int
    events: int

    @classmethod
    def parse(cls, text: str) -> Shape:
        kind, _, events = text.partition("/")
        return cls(0 if kind == "scan" else int(kind.removeprefix("live")), int(events))


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(tag: int, data: bytes) -> bytes:
    return bytes([tag]) + varint(len(data)) + data if data else b""


@dataclass(frozen=True, slots=True)
class Change:
    """A row change and its region."""

    region: int
    op: int
    key: bytes
    value: bytes
    old: bytes


def changes(corpus: Corpus, count: int) -> Iterator[Change]:
    """The corpus again and again, each time with other handles."""
    table = corpus.table_info["id"]
    values, olds = corpus.value.to_pylist(), corpus.old_value.to_pylist()
    handles, ops = corpus.handle.tolist(), corpus.op.tolist()
    for i in range(count):
        j, turn = i % len(values), i // len(values)
        handle = handles[j] + (turn << 40)
        yield Change(handle % REGIONS + 1, ops[j], record_key(table, handle), values[j] or b"", olds[j] or b"")


def row(kind: int, change: Change, start_ts: int, commit_ts: int) -> bytes:
    head = b"\x08" + varint(start_ts) + (b"\x10" + varint(commit_ts) if commit_ts else b"") + bytes([0x18, kind, 0x20, change.op])
    value = change.value if kind != COMMIT or len(change.value) <= SHORT_VALUE else b""
    body = head + field(0x2A, change.key) + field(0x32, value) + (field(0x3A, change.old) if kind != COMMIT else b"")
    return field(0x0A, body)


def event(region: int, rows: Sequence[bytes]) -> bytes:
    return field(0x0A, b"\x08" + varint(region) + field(0x1A, b"".join(rows)) + b"\x38" + varint(REQUEST))


def events(corpus: Corpus, shape: Shape, count: int) -> Iterator[tuple[bytes, int]]:
    """Serialised events (a field of ChangeDataEvent) and, behind some, a ts up to which all is sent (else 0)."""
    if shape.size == 0:
        yield from scan_events(corpus, count)
    else:
        yield from live_events(corpus, shape, count)


def scan_events(corpus: Corpus, count: int) -> Iterator[tuple[bytes, int]]:
    waiting: dict[int, list[bytes]] = {r: [] for r in range(1, REGIONS + 1)}
    size = dict.fromkeys(waiting, 0)
    ts = START_TS
    for i, change in enumerate(changes(corpus, count)):
        ts = START_TS + 10 + i // 8 * 4
        data = row(COMMITTED, change, ts - 2, ts)
        rows = waiting[change.region]
        rows.append(data)
        size[change.region] += len(data)
        if size[change.region] >= EVENT_BYTES:
            yield event(change.region, rows), 0
            waiting[change.region], size[change.region] = [], 0
    for region, rows in waiting.items():
        if rows:
            yield event(region, rows), 0
        yield event(region, [field(0x0A, bytes([0x18, INITIALIZED]))]), 0
    yield b"", ts


def live_events(corpus: Corpus, shape: Shape, count: int) -> Iterator[tuple[bytes, int]]:
    for region in range(1, REGIONS + 1):
        yield event(region, [field(0x0A, bytes([0x18, INITIALIZED]))]), 0
    ts, sent, told = START_TS, 0, 0
    transaction: dict[bytes, Change] = {}
    for change in changes(corpus, count):
        transaction[change.key] = change  # a key comes once in a transaction
        if len(transaction) < shape.size and sent + len(transaction) < count:
            continue
        ts += 10
        rows = list(transaction.values())
        transaction = {}
        region = rows[0].region
        yield event(region, [row(PREWRITE, c, ts - 5, 0) for c in rows]), 0
        yield event(region, [row(COMMIT, c, ts - 5, ts) for c in rows]), 0
        sent += len(rows)
        if sent - told >= RESOLVED_EVERY:
            told = sent
            yield b"", ts
    yield b"", ts


def messages(corpus: Corpus, shape: Shape, count: int) -> Iterator[tuple[bytes, int]]:
    """ChangeDataEvents, each as a gRPC message, and the resolved ts that it tells (else 0)."""
    waiting: list[bytes] = []
    size = 0
    for data, resolved_ts in events(corpus, shape, count):
        if waiting and (not data or len(waiting) == shape.events or size + len(data) > MESSAGE_BYTES):
            yield framed(b"".join(waiting)), 0
            waiting, size = [], 0
        if data:
            waiting.append(data)
            size += len(data)
        if resolved_ts:
            resolved = cdcpb.ResolvedTs(regions=range(1, REGIONS + 1), ts=resolved_ts, request_id=REQUEST)
            yield framed(cdcpb.ChangeDataEvent(resolved_ts=resolved).SerializeToString()), resolved_ts


@dataclass(frozen=True, slots=True)
class Script:
    """What a store sends: the file's bytes, with a pause behind so many of them (0: none). The resolved ts that the messages before the
    pause, and all, end with."""

    path: Path
    pause_at: int
    warm_ts: int
    last_ts: int

    @classmethod
    def write(cls, path: Path, corpus: Corpus, shape: Shape, rows: int) -> Script:
        """A quarter of `rows` to warm up with, then `rows` of them. A scan has only one resolved ts, so it has no warm-up and no pause."""
        warm = rows // 4 if shape.size else 0
        pause_at = warm_ts = last_ts = told = 0
        with path.open("wb") as out:
            for data, resolved_ts in messages(corpus, shape, warm + rows):
                out.write(data)
                if resolved_ts:
                    last_ts = resolved_ts
                    told += RESOLVED_EVERY
                    if not pause_at and warm and told >= warm:
                        pause_at, warm_ts = out.tell(), resolved_ts
        return cls(path, pause_at, warm_ts, last_ts)


def framed(message: bytes) -> bytes:
    return struct.pack(">BI", 0, len(message)) + message


# ---- the store: a process of its own -----------------------------------------------------------------------------------


def serve(path: Path, pause_at: int) -> None:
    """Accept one connection and send the file's bytes as DATA frames on stream 1, within the peer's windows. Behind `pause_at` bytes wait
    for a line from the standard input."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    data = path.read_bytes()
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    reader = connection.makefile("rb")
    reader.read(24)
    window = threading.Condition()
    room = {0: 65535, 1: 65535, "frame": 16384}
    begun = threading.Event()

    def send(kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        with write:
            connection.sendall(struct.pack(">I", len(payload) << 8 | kind) + struct.pack(">BI", flags, stream) + payload)

    def read() -> None:
        while head := reader.read(9):
            length, kind = int.from_bytes(head[:3], "big"), head[3]
            flags, stream = head[4], int.from_bytes(head[5:], "big")
            payload = reader.read(length)
            if kind == SETTINGS and not flags & 1:
                with window:
                    for key, value in struct.iter_unpack(">HI", payload):
                        if key == 4:
                            room[1] += value - 65535
                        elif key == 5:
                            room["frame"] = value
                    window.notify()
                send(SETTINGS, 1, 0)
            elif kind == WINDOW_UPDATE:
                with window:
                    room[stream] = room.get(stream, 0) + int.from_bytes(payload, "big")
                    window.notify()
            elif kind == PING and not flags & 1:
                send(PING, 1, 0, payload)
            elif kind == DATA:
                begun.set()
        with window:
            room["gone"] = 1
            window.notify()

    write = threading.Lock()
    send(SETTINGS, 0, 0, struct.pack(">HIHI", 4, 1 << 20, 3, 100))
    threading.Thread(target=read, daemon=True).start()
    begun.wait()
    send(HEADERS, 4, 1, hpack.Encoder().encode([(":status", "200"), ("content-type", "application/grpc")]))
    view = memoryview(data)
    until_pause = pause_at or len(view)
    while view:
        if not until_pause:
            sys.stdin.readline()
            until_pause = len(view)
        with window:
            window.wait_for(lambda: min(room[0], room[1]) > 0 or "gone" in room)
            if "gone" in room:
                return
            n = min(until_pause, room[0], room[1], room["frame"])
            room[0] -= n
            room[1] -= n
        send(DATA, 0, 1, bytes(view[:n]))
        view = view[n:]
        until_pause -= n
    with window:
        window.wait_for(lambda: "gone" in room)


# ---- the capture that is measured --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Result:
    """CPU seconds of the capture process per million rows; wall seconds in all."""

    rows: int
    user: float
    system: float
    wall: float
    stages: dict[str, float]
    all_rows: int
    """With those of the warm-up."""
    resident: int
    """MiB at most, less what the process had before it connected."""
    limits: tuple[float, float] = (0.0, 0.0)
    """What a socket and a file need for as many bytes as came and were kept, in the same unit."""

    @property
    def cpu(self) -> float:
        return self.user + self.system


@dataclass(frozen=True, slots=True)
class Mark:
    """Where the counters of this process and of a receiver stand."""

    user: float
    system: float
    at: float
    rows: int
    stages: dict[str, float]

    @classmethod
    def of(cls, stats: Stats) -> Mark:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return cls(used.ru_utime, used.ru_stime, time.monotonic(), stats.sealed_rows, dict(stats.cpu))


def resident(what: str) -> int:
    """MiB that are resident (VmRSS), or were at most (VmHWM)."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition(f"{what}:")[2].split()[0]) >> 10


async def receive(port: int, log: Path, script: Script, go_on: Callable[[], None], transport: str) -> Result:
    """Receive and seal all messages. When the warm-up is sealed, start the clock and call `go_on`, which ends the store's pause."""
    import tidemill.capture.tikv.feed.http2  # noqa: F401  (kernels load before the clock starts)
    from tidemill.capture.tikv.client.channels import Channels
    from tidemill.capture.tikv.feed.base import Method, Transport
    from tidemill.capture.tikv.feed.connect import open_feed
    from tidemill.capture.tikv.receive.ingest import Receiver
    from tidemill.capture.tikv.sort.partition import PartitionLog, Sealed
    from tidemill.changelog.log_format import LogIdentity
    from tidemill.changelog.writer import LogWriter

    loop = asyncio.get_running_loop()
    warm, done, failed = asyncio.Event(), asyncio.Event(), loop.create_future()
    with LogWriter.create(log, LogIdentity("1", START_TS, 1), snapshot={}) as writer:

        def sealed(_: int, what: Sealed) -> None:
            if what.head >= script.warm_ts:
                loop.call_soon_threadsafe(warm.set)
            if what.head >= script.last_ts:
                loop.call_soon_threadsafe(done.set)

        def fail(error: BaseException) -> None:
            loop.call_soon_threadsafe(failed.set_exception, error)

        receiver = Receiver([PartitionLog(writer.partition(0), log)], log, lambda events: None, sealed, fail)
        receiver.open_stream(0, True)
        for region in range(1, REGIONS + 1):
            receiver.subscribe(region, 0, region, REQUEST, START_TS, b"", b"", 0)
        receiver.start()
        before = Mark.of(receiver.stats)
        channels = Channels()
        feed = await open_feed(Transport(transport), f"127.0.0.1:{port}", 0, receiver.inbox, Method.V2, channels)
        feed.send(b"")

        async def until(event: asyncio.Event) -> None:
            waiting = asyncio.ensure_future(event.wait())
            await asyncio.wait([waiting, failed, feed.ended], return_when=asyncio.FIRST_COMPLETED)
            if not event.is_set():
                raise SystemExit(f"the capture ended early: {feed.ended.result() if feed.ended.done() else failed.exception()}")

        Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins again
        held = resident("VmRSS")
        if script.pause_at:
            await until(warm)
            before = Mark.of(receiver.stats)
            go_on()
        await until(done)
        after = Mark.of(receiver.stats)
        feed.cancel()
        await asyncio.to_thread(receiver.stop)
        await channels.close()
    rows = after.rows - before.rows
    million = rows / 1e6
    return Result(
        rows,
        (after.user - before.user) / million,
        (after.system - before.system) / million,
        after.at - before.at,
        {name: (seconds - before.stages[name]) / million for name, seconds in after.stages.items()},
        all_rows=after.rows,
        resident=resident("VmHWM") - held,
    )


def measure(corpus: Corpus, shape: Shape, rows: int, transport: str, work: Path) -> Result:
    """One run, with a store of its own and a log in a scratch folder below `work`."""
    with tempfile.TemporaryDirectory(prefix="bench-capture-", dir=work) as folder:
        script = Script.write(Path(folder, "messages"), corpus, shape, rows)
        command = [sys.executable, "-m", "bench.bench_capture", "--serve", str(script.path), "--pause-at", str(script.pause_at)]
        store = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert store.stdin is not None
        assert store.stdout is not None
        try:
            port = int(store.stdout.readline())
            go_on = partial(print, file=store.stdin, flush=True)
            result = uvloop.run(receive(port, Path(folder, "log"), script, go_on, transport))
        finally:
            store.kill()
            store.wait()
        kept = sum(file.stat().st_size for file in Path(folder, "log").rglob("*.arrow"))
        costs = limits.loopback(script.path.stat().st_size), limits.append(kept, Path(folder))
        return replace(result, limits=(costs[0] * 1e6 / result.all_rows, costs[1] * 1e6 / result.all_rows))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="*", help=", ".join(NAMES))
    parser.add_argument("--corpus", type=Path, help="folder of recorded corpora")
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--shapes", nargs="*", default=SHAPES)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()), help="folder for the log; /dev/shm: without a disk")
    parser.add_argument("--transport", default="h2", choices=["h2", "grpc"])
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--pause-at", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(options.serve, options.pause_at)
        return
    print(f"{'corpus':8} {'shape':10} {'rows':>8} {'CPU s/M':>8} {'user':>6} {'system':>7} {'rows/s':>9}  stages, limits (s/M); memory")
    for name in options.corpora or ("narrow", "mixed"):
        corpus = load(name, options.corpus)
        for text in options.shapes:
            best = min(
                (measure(corpus, Shape.parse(text), options.rows, options.transport, options.work) for _ in range(options.runs)),
                key=lambda r: r.cpu,
            )
            stages = " ".join(f"{k} {v:.2f}" for k, v in best.stages.items())
            rate = best.rows / best.wall
            of_socket, of_file = best.limits
            print(
                f"{name:8} {text:10} {best.rows:8} {best.cpu:8.2f} {best.user:6.2f} {best.system:7.2f} {rate:9,.0f}  {stages}; "
                f"socket {of_socket:.2f} file {of_file:.2f}; {best.resident:+} MiB",
                flush=True,
            )
            limit = Limit("loopback socket, append and fdatasync", of_socket + of_file)
            named = f"{name} {text}{files_in(options.work)}"
            note(Figure("Capture: change feed to change log", named, best.cpu, "CPU s a million rows", limit, AIMS.get(name)))
            note(Figure("Capture: memory beyond that of an idle process", named, best.resident, "MiB", aim=RESIDENT))


if __name__ == "__main__":
    main()
