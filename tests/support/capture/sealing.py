"""Logs and transactions for tests of sealing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from tests.support.capture.eventfeeds import Emitted, Row, message
from tidemill.capture.tikv.receive.decode import Scanner
from tidemill.capture.tikv.receive.matcher import Initialized, Matcher
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import LocalStorage
from tidemill.changelog.writer import LogWriter
from tidemill.kernels.receive.layout import COMMITTED, DELETE, PUT
from tidemill.tidb.keys import parse_record_key, record_key

START = 10
LogRow = tuple[int, int, int, int, bytes, bytes | None, bytes | None]


def new_log(folder: Path, partitions: int = 1) -> LogWriter:
    return LogWriter.create(LocalStorage(folder, sync=False), LogIdentity("1", START, partitions), snapshot={})


def log_rows(folder: Path, partition: int = 0) -> tuple[list[LogRow], list[tuple[int, int]]]:
    """All rows of a partition and its intervals; the reader checks that they chain."""
    reader = LogReader(folder)
    rows: list[LogRow] = []
    intervals = reader.chain(partition, START, reader.head(partition))
    for interval in intervals:
        for path in interval.parts:
            segment = reader.open_segment(path)
            for i in range(segment.num_record_batches):
                batch = segment.get_batch(i)
                batch.validate(full=True)
                got = [tuple(r.values()) for r in batch.to_pylist()]
                assert all(interval.from_ts < r[3] <= interval.to_ts for r in got)
                rows += got
    return rows, [(i.from_ts, i.to_ts) for i in intervals]


def as_log(rows: Sequence[Emitted]) -> list[LogRow]:
    """As rows of a segment: sorted, without duplicates."""
    out = set()
    for commit_ts, start_ts, key, op, value, old in rows:
        table = parse_record_key(key).table_id if key[:1] == b"t" else 0
        out.add((table, op, start_ts, commit_ts, key, value or None, old or None))
    return sorted(out, key=lambda r: (r[3], r[2], r[0], r[4]))


def emitted(rows: Sequence[Row]) -> list[Emitted]:
    return [(r.commit_ts, r.start_ts, r.key, r.op_type, r.value, r.old_value) for r in rows]


def transactions(random_: random.Random, n: int) -> list[Row]:
    """Committed rows: many tables, key shapes, transactions of 1 to 600 rows, shared commit_ts."""
    out: list[Row] = []
    ts = 1000
    while len(out) < n:
        ts += random_.randint(1, 3)
        commit_ts = ts + random_.randint(1, 3)
        prefix = bytes(random_.randrange(3)) + b"some long shared beginning of a key "
        shape = random_.randrange(4)
        keys = set()
        for _ in range(random_.choice((1, 1, 2, 10, 40, 600))):
            table = random_.choice((5, 6, 300, 7))
            if shape == 0:
                keys.add(record_key(table, random_.randint(-50, 10**9)))
            elif shape == 1:
                keys.add(record_key(table, prefix + random_.randbytes(random_.randrange(6))))
            elif shape == 2:
                keys.add(record_key(5, bytes(9 + random_.randrange(30))))
            else:
                keys.add(b"mDB:%d" % random_.randrange(1000))
        for key in sorted(keys):
            op = PUT if random_.random() < 0.8 else DELETE
            value = random_.randbytes(random_.choice((1, 40, 300))) if op == PUT else b""
            old = random_.randbytes(random_.choice((0, 31, 200)))
            out.append(Row(type=COMMITTED, op_type=op, start_ts=ts - 1, commit_ts=commit_ts, key=key, value=value, old_value=old))
    return out


def feed(matcher: Matcher, scanner: Scanner, rows: Sequence[Row], region: int = 1) -> None:
    for at in range(0, len(rows), 500):
        controls = matcher.feed(scanner.scan([message(region, 7, rows[at : at + 500])]))
        assert all(isinstance(c, Initialized) for c in controls)
