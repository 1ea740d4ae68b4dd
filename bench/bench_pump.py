"""A Pump that is a process of its own, with a fdatasync before each answer: CPU of that process for each binlog, rates, and times.

    python -m bench.bench_pump write [--clients 32] [--bytes 200] [--binlogs 100000] [--transport h2]
    python -m bench.bench_pump pull [--transactions 200000]

`write`: so many clients on one connection write transactions, a Prewrite and then its Commit, each one after the other. The clients are a
raw HTTP/2 connection in a process of its own, which sends what grpc-go would: literals that are indexed, a PING with what it read. What
one append and fdatasync of 200 B takes is measured right before and after. `pull`: one client reads transactions of one row.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing as mp
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import hpack
import psutil

from bench.report.figures import Figure, Limit, note
from tidemill import tso
from tidemill.binlog.http2 import frames as F
from tidemill.binlog.http2.frames import Frame, Setting
from tidemill.binlog.messages import Binlog, BinlogType, read_head
from tidemill.binlog.nodes import NodeKind, NodeState, read_node
from tidemill.binlog.pump.store import Store
from tidemill.playground.server import Playground
from tidemill.process.ports import free_ports
from tidemill.wire import pump_pb2

AIMS_US = {(32, 200): 31, (128, 200): 26, (32, 10_000): 60}
"""CPU µs a binlog at most, by clients and bytes: 1.2 times what the real Pump takes."""
WARM_UP = 4000
WINDOW = 16 << 20
KEY = b"t\x80\0\0\0\0\0\0\x6a_r\x80\0\0\0\0\0\0\x01"


# ---- the other process: clients --------------------------------------------------------------------------------------


def _block(method: str, address: str, timeout: bool, encoder: hpack.Encoder) -> bytes:
    fields = [
        (":method", "POST"), (":scheme", "http"), (":path", f"/binlog.Pump/{method}"), (":authority", address),
        ("content-type", "application/grpc"), ("user-agent", "grpc-go/1.65.0"), ("te", "trailers"),
    ]  # fmt: skip
    return bytes(encoder.encode([*fields, ("grpc-timeout", "14999953u")] if timeout else fields))


def _connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    largest = F.LARGEST_WINDOW
    connection.sendall(
        F.PREFACE + F.settings({Setting.INITIAL_WINDOW_SIZE: WINDOW}) + F.window_update(0, largest - F.FIRST_WINDOW)
    )  # fmt: skip
    return connection


@dataclass
class Writers:
    """Clients that write one transaction after the other. `times`: seconds of each Prewrite."""

    address: str
    cluster_id: int
    clients: int
    size: int
    times: list[float] = field(default_factory=list)

    def run(self, pipe: Connection) -> None:
        """Write as many binlogs as the pipe says, again and again until it says 0; each time send the seconds and the times."""
        connection, encoder = _connected(self.address), hpack.Encoder()
        first, later = (_block("WriteBinlog", self.address, True, encoder) for _ in range(2))
        self._blocks = deque([first])
        self._later = later
        self._ts, self._stream = tso.compose(int(time.time() * 1000)), 1
        self._value = os.urandom(self.size)
        while count := pipe.recv():
            self.times = []
            began = time.monotonic()
            self._some(connection, count)
            pipe.send((time.monotonic() - began, self.times))

    def _request(self, binlog: Binlog) -> bytes:
        message = pump_pb2.WriteBinlogReq(clusterID=self.cluster_id, payload=binlog.encode()).SerializeToString()
        block = self._blocks.popleft() if self._blocks else self._later
        stream, self._stream = self._stream, self._stream + 2
        head = F.frame(Frame.HEADERS, F.END_HEADERS, stream, block)
        return head + F.frame(Frame.DATA, F.END_STREAM, stream, struct.pack(">BI", 0, len(message)) + message)

    def _some(self, connection: socket.socket, count: int) -> None:
        """`count` binlogs, half of them Commits."""
        open_: dict[int, tuple[int, float]] = {}  # start_ts of a Prewrite, 0 for a Commit; when it was sent
        sent = done = 0
        data, out = b"", bytearray()

        def begin() -> None:
            nonlocal sent
            self._ts += 1
            open_[self._stream] = self._ts, time.perf_counter()
            out.extend(self._request(Binlog(BinlogType.PREWRITE, self._ts, 0, KEY, self._value)))
            sent += 1

        for _ in range(min(self.clients, count // 2)):
            begin()
        connection.sendall(out)
        while done < count:
            data += connection.recv(1 << 18)
            out, at, before = bytearray(), 0, done
            now = time.perf_counter()
            while len(data) - at >= F.HEAD:
                length, kind = int.from_bytes(data[at : at + 3], "big"), data[at + 3]
                if len(data) - at - F.HEAD < length:
                    break
                if kind == Frame.HEADERS and data[at + 4] & F.END_STREAM:
                    assert b"grpc-message" not in data[at : at + F.HEAD + length]
                    start_ts, since = open_.pop(int.from_bytes(data[at + 5 : at + 9], "big"))
                    done += 1
                    if start_ts:
                        self.times.append(now - since)
                        self._ts += 1
                        open_[self._stream] = 0, now
                        out += self._request(Binlog(BinlogType.COMMIT, start_ts, self._ts, KEY))
                        sent += 1
                    elif sent + len(open_) < count:
                        begin()
                at += F.HEAD + length
            data = data[at:]
            if done > before:
                connection.sendall(F.frame(Frame.PING, 0, 0, b"bdp ping") + out)


def write_process(address: str, cluster_id: int, clients: int, size: int, pipe: Connection) -> None:
    """The clients' process."""
    Writers(address, cluster_id, clients, size).run(pipe)


def pull_process(address: str, cluster_id: int, count: int, pipe: Connection) -> None:
    """A client that pulls `count` transactions, each time that the pipe says so; sends the seconds."""
    while pipe.recv():
        connection = _connected(address)
        request = pump_pb2.PullBinlogReq(clusterID=cluster_id).SerializeToString()
        began = time.monotonic()
        connection.sendall(
            F.frame(Frame.HEADERS, F.END_HEADERS, 1, _block("PullBinlogs", address, False, hpack.Encoder()))
            + F.frame(Frame.DATA, F.END_STREAM, 1, F.prefixed(request))
        )
        messages, left, credit, data = 0, b"", 0, b""
        while messages < count:
            data += connection.recv(1 << 20)
            at, parts = 0, [left]
            while len(data) - at >= F.HEAD:
                length = int.from_bytes(data[at : at + 3], "big")
                if len(data) - at - F.HEAD < length:
                    break
                if data[at + 3] == Frame.DATA:
                    parts.append(data[at + F.HEAD : at + F.HEAD + length])
                    credit += length
                at += F.HEAD + length
            data, left, place = data[at:], b"".join(parts), 0
            while len(left) - place >= F.PREFIX:
                size = int.from_bytes(left[place + 1 : place + F.PREFIX], "big")
                if len(left) - place - F.PREFIX < size:
                    break
                place += F.PREFIX + size
                messages += 1
            left = left[place:]
            if credit >= WINDOW // 4:
                connection.sendall(F.window_update(1, credit))
                credit = 0
        pipe.send(time.monotonic() - began)
        connection.close()


# ---- this process: PD, and the Pump's parent -------------------------------------------------------------------------


@contextmanager
def helper(target: object, *args: object) -> Iterator[Connection]:
    """A process with a pipe."""
    spawn = mp.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=target, args=(*args, there), daemon=True)
    process.start()
    try:
        yield here
    finally:
        here.send(0)
        process.join(10)


def one_sync(folder: Path, size: int = 200, count: int = 300) -> tuple[float, float]:
    """Seconds of an append and its fdatasync: the middle, and the 99th percentile."""
    times = []
    descriptor = os.open(folder / "sync", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for _ in range(count):
        began = time.perf_counter()
        os.write(descriptor, b"x" * size)
        os.fdatasync(descriptor)
        times.append(time.perf_counter() - began)
    os.close(descriptor)
    times.sort()
    return times[count // 2], times[count * 99 // 100]


async def started(folder: Path, playground: Playground, transport: str) -> tuple[subprocess.Popen[bytes], str]:
    """A Pump, online."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [
        sys.executable, "-m", "tidemill.cli.main", "pump", "--addr", address, "--pd-urls", playground.pd_address, "--node-id", "pump1",
        "--data-dir", str(folder), "--stop-write-at-available-space", "0", "--transport", transport,
        "--fake-binlog-interval", "3600", "--log-level", "error",
    ]  # fmt: skip
    process = subprocess.Popen(command)
    key = NodeKind.PUMP.key("pump1").encode()
    while process.poll() is None:
        events = list(playground.etcd.since(0, key, b""))
        if events and read_node(events[-1].pair.value).state is NodeState.ONLINE:
            return process, address
        await asyncio.sleep(0.05)
    raise SystemExit("the Pump ended")


def _cpu(process: subprocess.Popen[bytes]) -> tuple[float, float]:
    times = psutil.Process(process.pid).cpu_times()
    return times.user, times.system


async def write(folder: Path, clients: int, size: int, binlogs: int, transport: str) -> None:
    """See the module."""
    loop = asyncio.get_running_loop()
    async with Playground() as playground:
        process, address = await started(folder / "pump", playground, transport)
        with helper(write_process, address, playground.cluster.cluster_id, clients, size) as pipe:

            async def some(count: int) -> tuple[float, list[float]]:
                pipe.send(count)
                seconds, times = await loop.run_in_executor(None, pipe.recv)
                return seconds, times

            await some(WARM_UP)
            syncs = [one_sync(folder)]
            before = _cpu(process)
            seconds, times = await some(binlogs)
            user, system = (after - earlier for after, earlier in zip(_cpu(process), before, strict=True))
            syncs.append(one_sync(folder))
        process.terminate()
        await asyncio.to_thread(process.wait, 30)
    times.sort()
    middle, late = times[len(times) // 2] * 1000, times[len(times) * 99 // 100] * 1000
    sync = max(one for one, _ in syncs) * 1000
    late_sync = max(one for _, one in syncs) * 1000
    print(
        f"{transport}, {clients} clients, {size} B: {binlogs / seconds:,.0f} binlogs/s, "
        f"{(user + system) / binlogs * 1e6:.1f} us of CPU a binlog (user {user / binlogs * 1e6:.1f}, system {system / binlogs * 1e6:.1f}); "
        f"a Prewrite: p50 {middle:.2f} ms, p99 {late:.2f} ms; an append and its fdatasync: p50 {sync:.2f} ms, p99 {late_sync:.2f} ms",
        flush=True,
    )
    kind = f"{clients} clients, {size} B"
    note(Figure("Pump", kind, (user + system) / binlogs * 1e6, "CPU µs a binlog", aim=AIMS_US.get((clients, size))))
    late_limit = Limit("append and fdatasync, p99", late_sync)
    note(Figure("Pump", f"{kind}: a Prewrite, p99", late, "ms", late_limit, aim=late_sync + 10 if (clients, size) == (32, 200) else None))


async def _fill(folder: Path, count: int) -> None:
    """A Pump's folder with so many transactions of one row."""
    store = Store(folder, sync=False)
    store.start()
    ts = tso.compose(int(time.time() * 1000) - 600_000)
    value = os.urandom(189)
    for first in range(0, count, 16):
        for n in range(first, min(first + 16, count)):
            binlog = Binlog(BinlogType.PREWRITE, ts + 64 * first + n - first, 0, KEY, value).encode()
            store.groups.add(binlog, read_head(binlog))
        for n in range(first, min(first + 16, count)):
            start_ts = ts + 64 * first + n - first
            binlog = Binlog(BinlogType.COMMIT, start_ts, start_ts + 20, KEY).encode()
            store.groups.add(binlog, read_head(binlog))
        store.wake()
        if first % 16384 == 0:
            await asyncio.sleep(0)
    while store.behind or store.waiting or len(store.order):
        await asyncio.sleep(0.05)
    await store.close()


async def pull(folder: Path, count: int, transport: str) -> None:
    """See the module."""
    loop = asyncio.get_running_loop()
    (folder / "pump").mkdir()
    await _fill(folder / "pump", count)
    async with Playground() as playground:
        process, address = await started(folder / "pump", playground, transport)
        with helper(pull_process, address, playground.cluster.cluster_id, count) as pipe:
            for turn in range(1, 4):
                before = sum(_cpu(process))
                pipe.send(1)
                seconds = await loop.run_in_executor(None, pipe.recv)
                cpu = sum(_cpu(process)) - before
                print(
                    f"{transport}, PullBinlogs: {count / seconds:,.0f} transactions/s, {cpu / count * 1e6:.1f} us of CPU a transaction",
                    flush=True,
                )
                note(Figure("Pump", f"PullBinlogs, time {turn}", count / seconds, "transactions a second", aim=80_000, most=False))
        process.terminate()
        await asyncio.to_thread(process.wait, 30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["write", "pull"])
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--bytes", type=int, default=200)
    parser.add_argument("--binlogs", type=int, default=100_000)
    parser.add_argument("--transactions", type=int, default=200_000)
    parser.add_argument("--transport", choices=["h2", "grpc"], default="h2")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        if args.what == "write":
            asyncio.run(write(Path(name), args.clients, args.bytes, args.binlogs, args.transport))
        else:
            asyncio.run(pull(Path(name), args.transactions, args.transport))


if __name__ == "__main__":
    main()
