"""Change logs for tests, built from the format's description alone: this module and tidemill.changelog share no code, so that each
checks the other.

    build_log(folder, [put(70, 1, commit_ts=START + 5, value=b"…"), …], start_ts=START)
    golden_log(folder, partitions=2, segments=3)     # what a real TiDB did (tests/golden/ticdc)
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.ipc

GOLDEN = Path(__file__).parents[2] / "golden" / "ticdc"
PUT, DELETE = 1, 2
START = 470_000_000_000_000_000
"""A start ts for logs of made-up rows."""

CHANGE = pa.schema(
    [
        ("table_id", pa.int64()),
        ("op", pa.uint8()),
        ("start_ts", pa.uint64()),
        ("commit_ts", pa.uint64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("old_value", pa.binary()),
    ]
)
PAIR = pa.schema([("key", pa.binary()), ("value", pa.binary())])
MAX_ROWS = 65_536
MAX_BYTES = 64 << 20


class Change(NamedTuple):
    """A row of the log."""

    table_id: int
    op: int
    start_ts: int
    commit_ts: int
    key: bytes
    value: bytes | None
    old_value: bytes | None


def row_key(table_id: int, handle: int) -> bytes:
    """The record key of an integer handle."""
    return b"t" + (table_id + (1 << 63)).to_bytes(8, "big") + b"_r" + (handle + (1 << 63)).to_bytes(8, "big")


def put(
    table_id: int, handle: int, commit_ts: int, value: bytes = b"\x80\0\0\0\0\0", old: bytes | None = None, start_ts: int = 0
) -> Change:
    """An insert, or with `old` an update."""
    return Change(table_id, PUT, start_ts or commit_ts - 1, commit_ts, row_key(table_id, handle), value, old)


def delete(table_id: int, handle: int, commit_ts: int, old: bytes | None = b"\x80\0\0\0\0\0", start_ts: int = 0) -> Change:
    """A delete."""
    return Change(table_id, DELETE, start_ts or commit_ts - 1, commit_ts, row_key(table_id, handle), None, old)


def order(change: Change) -> tuple[int, int, int, bytes]:
    """How rows of a segment are sorted."""
    return change.commit_ts, change.start_ts, change.table_id, change.key


def batch_of(changes: Iterable[Change]) -> pa.RecordBatch:
    """Rows as one record batch, in the order given."""
    columns = list(zip(*changes, strict=True)) or [[]] * len(CHANGE)
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, CHANGE, strict=True)], schema=CHANGE)


def changes_of(batches: Any) -> list[Change]:
    """Rows of a table or a record batch."""
    return [Change(*values) for values in zip(*(c.to_pylist() for c in batches.columns), strict=True)]


def read_changes(log: str | Path, partition: int) -> list[Change]:
    """All rows of a partition's files, in the order of names, without regard to chains."""
    found: list[Change] = []
    for path in sorted((Path(log) / "rows" / str(partition)).glob("[0-9]*.arrow")):
        with pa.OSFile(str(path)) as f:
            found += changes_of(pa.ipc.open_file(f).read_all())
    return found


# ---- writing -------------------------------------------------------------------------------------------------------


def write_arrow(path: Path, schema: pa.Schema, rows: Sequence[tuple[Any, ...]], compression: str | None = None) -> None:
    """An Arrow IPC file; without rows it has no record batch."""
    path.parent.mkdir(parents=True, exist_ok=True)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema, options=options) as writer:
        for piece in _pieces(rows):
            columns = zip(*piece, strict=True)
            writer.write_batch(pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema))


def _pieces(rows: Sequence[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    piece: list[tuple[Any, ...]] = []
    size = 0
    for one in rows:
        weight = sum(len(v) if isinstance(v, bytes) else 8 for v in one)
        if piece and (len(piece) == MAX_ROWS or size + weight > MAX_BYTES):
            yield piece
            piece, size = [], 0
        piece.append(one)
        size += weight
    if piece:
        yield piece


def write_json(path: Path, fields: Mapping[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(fields) + "\n", encoding="utf-8")


def write_segment(folder: Path, from_ts: int, to_ts: int, changes: Iterable[Change], part: tuple[int, int] | None = None) -> Path:
    """One segment file of the rows that lie in the interval, sorted."""
    suffix = f".{part[0]}of{part[1]}" if part else ""
    path = folder / f"{from_ts:020d}-{to_ts:020d}{suffix}.arrow"
    write_arrow(path, CHANGE, sorted((c for c in changes if from_ts < c.commit_ts <= to_ts), key=order))
    return path


def build_log(
    log: str | Path,
    changes: Iterable[Change] = (),
    *,
    start_ts: int = START,
    ends: Sequence[int] | None = None,
    head: int | None = None,
    partitions: int = 1,
    partition_of: Callable[[Change], int] = lambda c: c.table_id,
    schema_changes: Iterable[Change] = (),
    snapshot: Mapping[bytes, bytes] | None = None,
    compression: str | None = None,
    **identity: object,
) -> Path:
    """A log of these rows. Every folder has the intervals that `ends` bound (default: one, up to the last row).

    `partition_of` gives a number that is taken modulo `partitions`. `head`: resolved ts of all folders (default: the last end).
    `identity`: further fields of log.json, or others than the defaults.
    """
    root = Path(log)
    rows, schema = sorted(changes, key=order), sorted(schema_changes, key=order)
    if ends is None:
        ends = [max((c.commit_ts for c in [*rows, *schema]), default=start_ts + 1)]
    resolved = {"resolved_ts": ends[-1] if head is None else head}
    spread: list[list[Change]] = [[] for _ in range(partitions)]
    for change in rows:
        spread[partition_of(change) % partitions].append(change)
    write_arrow(root / "schema" / f"snapshot-{start_ts:020d}.arrow", PAIR, sorted((snapshot or {}).items()), compression)
    for folder, own in [(root / "schema", schema), *((root / "rows" / str(p), own) for p, own in enumerate(spread))]:
        for from_ts, to_ts in zip([start_ts, *ends], ends, strict=False):
            inside = [c for c in own if from_ts < c.commit_ts <= to_ts]
            write_arrow(folder / f"{from_ts:020d}-{to_ts:020d}.arrow", CHANGE, inside, compression)
        write_json(folder / "head.json", resolved)
    defaults = {"format": 1, "source": "tikv", "cluster_id": "1", "start_ts": start_ts, "partitions": partitions, "affinity": "table"}
    write_json(root / "log.json", {**defaults, **identity})
    return root


# ---- what a real TiDB did ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Golden:
    """The recorded changes. `logical[i]` is the logical table of `rows[i]` when it was written."""

    start_ts: int
    snapshot: dict[bytes, bytes]
    rows: list[Change]
    logical: list[int]
    schema: list[Change]
    cases: dict[tuple[int, bytes], str]  # (commit_ts, key) -> case

    @property
    def last_ts(self) -> int:
        return max(c.commit_ts for c in [*self.rows, *self.schema])

    def ends(self, segments: int) -> list[int]:
        """Ends of intervals with about as many commit ts each."""
        commits = sorted({c.commit_ts for c in [*self.rows, *self.schema]})
        segments = min(segments, len(commits))
        return [commits[len(commits) * (i + 1) // segments - 1] for i in range(segments)]


def golden_lines(name: str) -> Iterator[dict[str, Any]]:
    """Objects of tests/golden/ticdc/NAME.jsonl.gz."""
    with gzip.open(GOLDEN / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _unbase64(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@functools.cache
def golden() -> Golden:
    """The recording, read once."""
    first, *pairs = golden_lines("meta_snapshot_0")
    snapshot = {base64.b64decode(p["k"]): base64.b64decode(p["v"]) for p in pairs}
    owner: dict[int, int] = {}
    for value in snapshot.values():
        _learn(owner, value)
    rows, logical, schema, cases = [], [], [], {}
    for o in sorted(golden_lines("rawkv"), key=lambda o: o["commit_ts"]):
        if o["kind"] == "index":
            continue
        key, value = base64.b64decode(o["key"]), _unbase64(o.get("value"))
        table_id = 0 if key[:1] == b"m" else int.from_bytes(key[1:9], "big") - (1 << 63)
        is_put = o["op"] == "put"
        change = Change(
            table_id,
            PUT if is_put else DELETE,
            o["start_ts"],
            o["commit_ts"],
            key,
            value if is_put else None,
            _unbase64(o.get("old_value")),
        )
        cases[change.commit_ts, key] = o["case"]
        if o["kind"] == "row":
            rows.append(change)
            logical.append(owner.get(table_id, table_id))
            continue
        schema.append(change)
        if is_put and value:
            _learn(owner, value)
    return Golden(first["ts"], snapshot, rows, logical, schema, cases)


def _learn(owner: dict[int, int], value: bytes) -> None:
    """Which table the partitions of a table description belong to."""
    if not value.startswith(b'{"id":') or b'"partition":{' not in value:
        return
    info = json.loads(value)
    for definition in (info.get("partition") or {}).get("definitions") or ():
        owner[definition["id"]] = info["id"]


@functools.cache
def golden_span(first: str, last: str = "") -> tuple[int, int]:
    """The interval in which the recorded cases from one to another were written: they came one after the other."""
    found = {case: [ts for (ts, _), name in golden().cases.items() if name == case] for case in (first, last or first)}
    return min(found[first]) - 1, max(found[last or first])


def golden_log(log: str | Path, *, partitions: int = 1, segments: int = 1, compression: str | None = None, head: int | None = None) -> Path:
    """The log of the recording, with table affinity; its heads are one past the last commit."""
    recorded = golden()
    logical = {(c.commit_ts, c.key): t for c, t in zip(recorded.rows, recorded.logical, strict=True)}
    return build_log(
        log,
        recorded.rows,
        start_ts=recorded.start_ts,
        ends=recorded.ends(segments),
        head=recorded.last_ts + 1 if head is None else head,
        partitions=partitions,
        partition_of=lambda c: logical[c.commit_ts, c.key],
        schema_changes=recorded.schema,
        snapshot=recorded.snapshot,
        compression=compression,
        cluster_id="golden",
    )
