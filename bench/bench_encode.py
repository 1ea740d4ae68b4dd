"""What decoding and encoding a row costs: CPU nanoseconds, the least of several runs, on one core.

    python -m bench.bench_encode [narrow mixed wide] [--protocol open] [--corpus FOLDER] [--rows 100000] [--chunk 8192] [--runs 7]

Ratios to memcpy (of the output's bytes) and to the plain reference are taken in the same run, so they hold on a busy machine too.
TiCDC's figures (mount + encode, one core) are those of another machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.corpus import NAMES, Corpus, load
from bench.report import limits
from bench.report.figures import Figure, Limit, note
from tidemill.kernels.avro import AvroRowEncoder
from tidemill.kernels.canal import CanalRowEncoder
from tidemill.kernels.canal_json import CanalJsonRowEncoder
from tidemill.kernels.csv import CsvRowEncoder
from tidemill.kernels.debezium import DebeziumRowEncoder
from tidemill.kernels.debezium_avro import DebeziumAvroRowEncoder
from tidemill.kernels.open.encoder import OpenRowEncoder
from tidemill.kernels.routing.identity import KeyHash, unique_change
from tidemill.kernels.rows.mount import MountEncoder
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord
from tidemill.kernels.simple import SimpleRowEncoder
from tidemill.kernels.templates.encoder import TextRowEncoder
from tidemill.protocols.options import AvroOptions, BigintUnsignedMode, DebeziumOptions, DecimalMode, EncodingOptions, MessageFormat
from tidemill.records import KIND_DELETE, KIND_INSERT, KIND_UPDATE, ROW
from tidemill.tidb.keys import record_key
from tidemill.tidb.schema.model import TableInfo

REFERENCE_ROWS = 2000
STRINGS = AvroOptions(DecimalMode.STRING, BigintUnsignedMode.STRING)


@dataclass(frozen=True, slots=True)
class Bench:
    """A protocol under some options. `ticdc`: ns a row, mount + encode, of TiCDC v9.0.0-beta.1 on a core of the machine that the corpora
    were recorded on; None: nobody measured it."""

    options: EncodingOptions
    ticdc: dict[str, int] | None


BENCHES = {
    "open": Bench(EncodingOptions(), {"narrow": 5917, "mixed": 14904, "wide": 54752}),
    "avro": Bench(EncodingOptions(MessageFormat.AVRO), {"narrow": 4486, "mixed": 12925, "wide": 42377}),
    "avro-strings": Bench(
        EncodingOptions(MessageFormat.AVRO, enable_tidb_extension=True, avro=STRINGS), {"narrow": 4505, "mixed": 12739, "wide": 40149}
    ),
    "canal-json": Bench(EncodingOptions(MessageFormat.CANAL_JSON), {"narrow": 4242, "mixed": 10947, "wide": 36079}),
    "canal-json-extension": Bench(
        EncodingOptions(MessageFormat.CANAL_JSON, enable_tidb_extension=True), {"narrow": 4293, "mixed": 10696, "wide": 39110}
    ),
    "canal-json-updated": Bench(EncodingOptions(MessageFormat.CANAL_JSON, only_output_updated_columns=True), None),
    "canal": Bench(EncodingOptions(MessageFormat.CANAL), {"narrow": 4666, "mixed": 11578, "wide": 40420}),
    "csv": Bench(EncodingOptions(MessageFormat.CSV), None),
    "simple": Bench(EncodingOptions(MessageFormat.SIMPLE), {"narrow": 4916, "mixed": 13831, "wide": 44820}),
    "debezium": Bench(EncodingOptions(MessageFormat.DEBEZIUM), {"narrow": 10009, "mixed": 20290, "wide": 48538}),
    "debezium-payload": Bench(EncodingOptions(MessageFormat.DEBEZIUM, debezium=DebeziumOptions(disable_schema=True)), None),
    "debezium-avro": Bench(EncodingOptions(MessageFormat.DEBEZIUM_AVRO), None),
    "avro-checksum": Bench(EncodingOptions(MessageFormat.AVRO, enable_tidb_extension=True, row_checksum=True, avro=STRINGS), None),
}


AIMS = {
    "open": {"narrow": 30, "mixed": 25, "wide": 25},
    "avro": {"narrow": 45, "mixed": 35, "wide": 40},
    "avro-strings": {"narrow": 45, "mixed": 28, "wide": 38},
    "canal-json": {"narrow": 25, "mixed": 18, "wide": 18},
    "canal": {"narrow": 20, "mixed": 20, "wide": 20},
    "simple": {"narrow": 20, "mixed": 20, "wide": 20},
}
"""Times TiCDC's mount and encode, at least."""


def encoder_of(bench: Bench, program: TableProgram) -> tuple[Any, Callable[..., object]]:
    """The kernel's encoder, and the reference for one row."""
    if bench.options.protocol is MessageFormat.AVRO:
        made = AvroRowEncoder([program], bench.options, [(1, 2)])
        return made, made.programs[0].avro.row
    if bench.options.protocol is MessageFormat.DEBEZIUM_AVRO:
        envelopes = DebeziumAvroRowEncoder([program], bench.options, [(1, 2)], clock=lambda: 0)
        reference = envelopes.programs[0].reference
        return envelopes, lambda key, value, old, ts: reference.row(key, value, old, 0, ts, 0)
    if bench.options.protocol is MessageFormat.CANAL:
        canal = CanalRowEncoder([program], bench.options)
        return canal, canal.tables[0].row
    texts: dict[MessageFormat, Callable[[], TextRowEncoder]] = {
        MessageFormat.CANAL_JSON: lambda: CanalJsonRowEncoder([program], bench.options, clock=lambda: 0),
        MessageFormat.CSV: lambda: CsvRowEncoder([program], bench.options),
        MessageFormat.SIMPLE: lambda: SimpleRowEncoder([program], bench.options, clock=lambda: 0),
        MessageFormat.DEBEZIUM: lambda: DebeziumRowEncoder([program], bench.options, clock=lambda: 0),
    }
    if bench.options.protocol in texts:
        encoder = texts[bench.options.protocol]()
        return encoder, lambda key, value, old, ts: encoder.value_of(RawRecord(key, value, old, 0, ts, 0), 0)
    return OpenRowEncoder([program], bench.options), program.open.row


def row_records(corpus: Corpus) -> tuple[np.ndarray[Any, Any], list[object]]:
    """The corpus as ROW records, and what they point into."""
    count = len(corpus)
    keys = np.frombuffer(b"".join(record_key(corpus.table_info["id"], int(h)) for h in corpus.handle) + bytes(64), np.uint8)
    rows = np.zeros(count, ROW)
    rows["key"] = keys.ctypes.data + 19 * np.arange(count, dtype=np.uint64)
    rows["key_len"] = 19
    for address, length, array in (("value", "value_len", corpus.value), ("old_value", "old_len", corpus.old_value)):
        rows[address], rows[length] = spans(array)
    rows["commit_ts"] = (np.uint64(1_790_000_000_000) << np.uint64(18)) + corpus.transaction.astype(np.uint64) * np.uint64(1000)
    rows["start_ts"] = rows["commit_ts"] - np.uint64(1)
    both = (rows["value_len"] >= 0) & (rows["old_len"] >= 0)
    rows["kind"] = np.where(both, KIND_UPDATE, np.where(rows["value_len"] >= 0, KIND_INSERT, KIND_DELETE))
    return rows, [keys, corpus]


def spans(array: pa.Array) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Addresses and lengths of a binary array; length -1 for null."""
    _, offset_buffer, data = array.buffers()
    kind = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    offsets = np.frombuffer(offset_buffer, kind)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    lengths = np.diff(offsets)
    lengths[~array.is_valid().to_numpy(zero_copy_only=False)] = -1
    return offsets[:-1].astype(np.uint64) + np.uint64(data.address), lengths


def least(runs: int, work: Callable[[], object]) -> float:
    """CPU seconds of the fastest run."""
    best = float("inf")
    for _ in range(runs):
        start = time.process_time_ns()
        work()
        best = min(best, (time.process_time_ns() - start) / 1e9)
    return best


def chunked(rows: np.ndarray[Any, Any], size: int, work: Callable[[np.ndarray[Any, Any], np.ndarray[Any, Any]], object]) -> None:
    """Call `work` with chunks of rows, each one group."""
    for start in range(0, len(rows), size):
        chunk = rows[start : start + size]
        work(chunk, np.array([0, len(chunk)], np.int32))


def measure(name: str, args: argparse.Namespace) -> None:
    """Print one line for a corpus."""
    corpus = load(name, args.corpus)
    rows, _keep = row_records(corpus)
    rows = np.ascontiguousarray(rows[: args.rows])
    program = TableProgram("bench", name, TableInfo.from_json(corpus.table_info))
    bench = BENCHES[args.protocol]
    encoder, plain = encoder_of(bench, program)
    mount = MountEncoder([program])
    unique, hashes = unique_change([program]), KeyHash([program])
    out_bytes = 0

    def encode(chunk: np.ndarray[Any, Any], groups: np.ndarray[Any, Any]) -> None:
        nonlocal out_bytes
        out_bytes += encoder.encode(chunk, groups).bytes

    chunked(rows, args.chunk, encode)
    row_bytes = out_bytes / len(rows)
    per_row = 1e9 / len(rows)
    encode_ns = least(args.runs, lambda: chunked(rows, args.chunk, encode)) * per_row
    mount_ns = least(args.runs, lambda: chunked(rows, args.chunk, mount.encode)) * per_row
    split_ns = least(args.runs, lambda: chunked(rows, args.chunk, lambda chunk, _: unique.changed(chunk))) * per_row
    hash_ns = least(args.runs, lambda: chunked(rows, args.chunk, lambda chunk, _: hashes.hash(chunk))) * per_row
    copy_ns = limits.memcpy(int(row_bytes * args.chunk)) * 1e9 / args.chunk
    few = [record_of(corpus, rows, i) for i in range(min(REFERENCE_ROWS, len(rows)))]
    plain_ns = least(2, lambda: [plain(r.key, r.value, r.old_value, r.commit_ts) for r in few]) * 1e9 / len(few)
    ratio = f"TiCDC /{bench.ticdc[name] / encode_ns:5.1f}  " if bench.ticdc else ""
    print(
        f"{name:7} {encode_ns:8.0f} ns/row  {row_bytes / encode_ns * 1000:6.0f} MB/s out  memcpy x{encode_ns / copy_ns:5.1f}  "
        f"reference /{plain_ns / encode_ns:5.0f}  {ratio}mount {mount_ns:5.0f}  split {split_ns:4.0f}  "
        f"hash {hash_ns:4.0f}  slow rows {encoder.slow_rows + mount.slow_rows}",
        flush=True,
    )
    stage = f"Decode and encode: {args.protocol}"
    note(Figure(stage, name, encode_ns, "CPU ns a row", Limit("memcpy of the output", copy_ns)))
    note(Figure(stage, f"{name}, times faster than the plain reference", plain_ns / encode_ns, "times", most=False))
    if bench.ticdc:
        aim = AIMS.get(args.protocol, {}).get(name)
        note(Figure(stage, f"{name}, times TiCDC's", bench.ticdc[name] / encode_ns, "times TiCDC's", aim=aim, most=False))


def record_of(corpus: Corpus, rows: np.ndarray[Any, Any], i: int) -> RawRecord:
    """A row as Python bytes."""
    key = record_key(corpus.table_info["id"], int(corpus.handle[i]))
    return RawRecord(key, corpus.value[i].as_py(), corpus.old_value[i].as_py(), 0, int(rows["commit_ts"][i]), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(NAMES), metavar="CORPUS", help="narrow, mixed, wide (default: all)")
    parser.add_argument("--protocol", choices=list(BENCHES), default="open")
    parser.add_argument("--corpus", type=Path, help="folder with recorded corpora (default: made-up ones)")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--chunk", type=int, default=8192, help="rows of one call")
    parser.add_argument("--runs", type=int, default=7)
    args = parser.parse_args()
    for name in args.names:
        measure(name, args)


if __name__ == "__main__":
    main()
