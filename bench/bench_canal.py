"""What Canal's entries and their server cost: CPU time a row.

    python -m bench.bench_canal codec [narrow mixed wide] [--corpus FOLDER] [--rows 100000]
    python -m bench.bench_canal server [--rows 1000000]
    python -m bench.bench_canal clients [--active 100] [--idle 1000] [--rows 200000]

codec    rows of a corpus → entries for Canal's clients, its transactions as they are and all as one; beside what TiCDC pays for mount and
         `canal` encode on the machine that the corpora were recorded on.
server   one client, which does not parse what it gets, reads the whole store from a server process: in bulk (transactions of 1,000 rows)
         and in transactions of one row. The server's CPU has everything: reading the store, cutting batches, positions, the socket. Canal's
         own server, on that machine: 2.0 and 32 µs a row.
clients  idle clients (logged in, subscribed, their GET waits) beside active ones that all read the whole store. The server's CPU a row that
         it sent, its memory with a small store and with one ten times as large.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bench.bench_encode import BENCHES, least, row_records
from bench.corpus import NAMES, load
from bench.report import limits
from bench.report.figures import Figure, Limit, note
from tidemill.canal.client import AsyncClient, Client
from tidemill.changelog.storage.open import open_storage
from tidemill.kernels.canal.entry_encoder import CanalEntryEncoder
from tidemill.kernels.canal.entry_messages import EntryMessages
from tidemill.kernels.rows.program import TableProgram
from tidemill.protocols.canal.packets import (
    Body,
    ClientAck,
    ClientAuth,
    Get,
    Messages,
    Subscription,
    frame,
    parse_packet,
    write_packet,
)
from tidemill.sinks.canal.store.publish import StorePublisher
from tidemill.sinks.canal.store.writer import SegmentWriter, index_of
from tidemill.tidb.schema.model import TableInfo

CHUNK = 8192
SIZE = 1000
BULK_ROWS = 1000
SEGMENT_ROWS = 200_000
CANAL_US = {"bulk": 2.0, "single": 32.0}
"""What Canal 1.1.8's server pays a row in such transactions. Its rows had about 180 bytes of entries; those here have 460 and more."""
AIMS_US = {"bulk": 0.4, "single": 2}
BEGIN = 470_000_000_000_000_000


def programs(name: str, corpus: Any) -> list[TableProgram]:
    return [TableProgram("bench", name, TableInfo.from_json(corpus.table_info))]


def codec(name: str, args: argparse.Namespace) -> None:
    """Print one line for a corpus."""
    corpus = load(name, args.corpus)
    rows, _keep = row_records(corpus)
    rows = np.ascontiguousarray(rows[: args.rows])
    whole = rows.copy()
    whole["commit_ts"], whole["start_ts"] = whole["commit_ts"][0], whole["start_ts"][0]
    said = []
    for kind, given in (("its transactions", rows), ("one transaction", whole)):
        encoder = CanalEntryEncoder(programs(name, corpus), 1)
        written = 0

        def encode(given: Any = given, encoder: CanalEntryEncoder = encoder) -> None:
            nonlocal written
            encoder.begin()
            written = 0
            for start in range(0, len(given), CHUNK):
                entries = encoder.encode(given[start : start + CHUNK], last=start + CHUNK >= len(given))
                written += int(entries.table["size"].sum())

        encode()
        ns = least(args.runs, encode) * 1e9 / len(given)
        ticdc = BENCHES["canal"].ticdc
        assert ticdc is not None
        copy_ns = limits.memcpy(written) * 1e9 / len(given)
        note(Figure("Decode and encode: entries of Canal", f"{name}, {kind}", ns, "CPU ns a row", Limit("memcpy of the output", copy_ns)))
        times = ticdc[name] / ns
        note(Figure("Decode and encode: entries of Canal", f"{name}, {kind}, times TiCDC's", times, "times TiCDC's", aim=20, most=False))
        said.append(
            f"{kind} {ns:6.0f} ns/row, {written / len(given):5.0f} B/row, TiCDC /{ticdc[name] / ns:5.1f}, slow rows {encoder.slow_rows}"
        )
    print(f"{name:7} " + "   ".join(said), flush=True)


def fill(folder: Path, count: int, transaction: int) -> int:
    """Make a store of so many rows of the narrow corpus, in transactions of so many. Returns the head."""
    corpus = load("narrow")
    rows, _keep = row_records(corpus)
    storage = open_storage(str(folder))
    publisher = StorePublisher(storage, "bench", BEGIN)
    encoder = CanalEntryEncoder(programs("narrow", corpus), 1)
    ts, done = BEGIN, 0
    while done < count:
        writer = SegmentWriter(storage, ts, ts + SEGMENT_ROWS, publisher.epoch)
        names = [("bench", "narrow")]
        numbers = np.array([writer.number(*name) for name in (*names, ("", ""))], np.uint32)
        end = min(done + SEGMENT_ROWS, count)
        encoder.begin()
        for start in range(done, end, CHUNK):
            chunk = np.ascontiguousarray(rows[np.arange(start, min(start + CHUNK, end)) % len(rows)])
            commit = ts + 1 + (np.arange(start, start + len(chunk)) - done) // transaction
            chunk["commit_ts"], chunk["start_ts"] = commit, commit - 1
            chunk = chunk[np.lexsort((chunk["kind"], commit))]  # as statements of many rows leave them
            entries = encoder.encode(chunk, last=start + CHUNK >= end)
            index = index_of(len(entries.table))
            for field in ("commit_ts", "size", "rows", "event"):
                index[field] = entries.table[field]
            index["kind"], index["name"] = entries.table["type"], numbers[entries.table["table"]]
            writer.add(index, EntryMessages(entries, names).joined().data)
        writer.seal()
        writer.publish()
        publisher.publish(ts, ts + SEGMENT_ROWS, [writer.name])
        ts, done = ts + SEGMENT_ROWS, end
    return ts


@contextmanager
def serving(store: Path) -> Iterator[tuple[int, psutil.Process]]:
    """A server process: its port and itself."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tidemill.cli.main", "canal", "--store", str(store), "--listen", f"127.0.0.1:{port}"]
    command += ["--destination", "d", "--start-ts", str(BEGIN)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "serving" in line:
                break
        yield port, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def warm(port: int) -> None:
    """One batch to another client: kernels are loaded now."""
    with Client("127.0.0.1", port, "d", filter=".*", client_id=9999) as client:
        client.get_without_ack(SIZE, 0)


def server(args: argparse.Namespace) -> None:
    for kind, transaction, count in (("bulk", BULK_ROWS, args.rows), ("single", 1, args.rows // 4)):
        with tempfile.TemporaryDirectory() as folder:
            fill(Path(folder) / "store", count, transaction)
            with serving(Path(folder) / "store") as (port, process):
                warm(port)
                before = used(process)
                got = drain(port)
                us = (used(process) - before) * 1e6 / count
        note(Figure("Server of Canal's protocol", f"{kind}, {transaction} rows a transaction", us, "CPU µs a row", aim=AIMS_US[kind]))
        print(f"{kind:6} {count} rows in {got} entries: {us:6.2f} µs/row of the server, Canal /{CANAL_US[kind] / us:5.1f}", flush=True)


def drain(port: int) -> int:
    """Read all entries with a client that only splits the batches. Returns how many."""
    got = 0
    with socket.create_connection(("127.0.0.1", port)) as raw, raw.makefile("rb") as stream:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def receive() -> Body:
            return parse_packet(stream.read(int.from_bytes(stream.read(4), "big")))

        def send(*bodies: Body) -> None:
            raw.sendall(b"".join(frame(write_packet(body)) for body in bodies))

        receive()
        send(ClientAuth("", b""), Subscription("d", "1001", ".*"))
        receive()
        receive()
        send(Get("d", "1001", SIZE, -1))
        while isinstance(batch := receive(), Messages) and batch.batch_id != -1:
            got += len(batch.entries)
            send(ClientAck("d", "1001", batch.batch_id), Get("d", "1001", SIZE, -1))
    return got


async def _read_all(port: int, number: int) -> int:
    """One active client: all entries, a batch at a time."""
    got = 0
    async with AsyncClient("127.0.0.1", port, "d", filter=".*", client_id=number) as client:
        while batch := await client.get_without_ack(SIZE, 0):
            got += len(batch)
            await client.ack(batch.id)
    return got


async def _crowd(port: int, process: psutil.Process, args: argparse.Namespace, count: int) -> str:
    idle = [AsyncClient("127.0.0.1", port, "d", filter="no\\.such", client_id=10_000 + n) for n in range(args.idle)]
    for client in idle:
        await client.connect()
    waiting = [asyncio.create_task(client.get_without_ack(SIZE, 3_600_000)) for client in idle]
    await asyncio.sleep(0)
    await asyncio.to_thread(warm, port)
    before = used(process)
    got = await asyncio.gather(*(_read_all(port, 1001 + n) for n in range(args.active)))
    us = (used(process) - before) * 1e6 / (count * args.active)
    memory = process.memory_info().rss >> 20
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    for client in idle:
        await client.close()
    return f"{us:6.2f} µs a row that was sent, {memory} MiB, every client got {min(got)}…{max(got)} entries"


def clients(args: argparse.Namespace) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    for count in (args.rows // 10, args.rows):
        with tempfile.TemporaryDirectory() as folder:
            fill(Path(folder) / "store", count, BULK_ROWS)
            with serving(Path(folder) / "store") as (port, process):
                said = asyncio.run(_crowd(port, process, args, count))
        print(f"{args.active} active and {args.idle} idle clients, {count} rows: {said}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["codec", "server", "clients"])
    parser.add_argument("names", nargs="*", metavar="CORPUS", help="narrow, mixed, wide (default: all)")
    parser.add_argument("--corpus", type=Path, help="folder with recorded corpora (default: made-up ones)")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--active", type=int, default=100)
    parser.add_argument("--idle", type=int, default=1000)
    args = parser.parse_args()
    args.rows = args.rows or {"codec": 100_000, "server": 1_000_000, "clients": 200_000}[args.what]
    if args.what == "codec":
        for name in args.names or NAMES:
            codec(name, args)
    elif args.what == "server":
        server(args)
    else:
        clients(args)


if __name__ == "__main__":
    main()
