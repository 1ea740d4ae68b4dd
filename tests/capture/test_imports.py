"""Rows written by a physical import: TiKV marks them in txn_source, and changefeeds of the table stop there. Other marks are ignored."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.support.capture.captures import caught_up, config, running
from tests.support.capture.eventfeeds import Row, committed, message, resolved
from tidemill.capture.tikv.receive.decode import Scanner
from tidemill.capture.tikv.receive.ingest import Receiver
from tidemill.capture.tikv.receive.matcher import FOREVER, Matcher
from tidemill.capture.tikv.sort.partition import PartitionLog
from tidemill.changefeed.replay import Delivered, replay
from tidemill.changelog import imports
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.retention import drop
from tidemill.changelog.storage.open import open_storage
from tidemill.changelog.verify import verify
from tidemill.changelog.writer import LogWriter
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings
from tidemill.delivery.zone import parse_zone
from tidemill.errors import DataWithoutEvents
from tidemill.kernels.receive.layout import COMMIT, COMMITTED, DELETE, INITIALIZED, PREWRITE, PUT
from tidemill.playground.server import Playground
from tidemill.tidb.keys import record_key

IMPORT = 1 << 16
INIT = Row(type=INITIALIZED)


def row(table_id: int, handle: int, commit_ts: int, source: int = 0, kind: int = COMMITTED, op: int = PUT) -> Row:
    value = b"v" if op == PUT else b""
    return Row(type=kind, op_type=op, start_ts=5, commit_ts=commit_ts, key=record_key(table_id, handle), value=value, txn_source=source)


def test_the_mark_is_found_and_nothing_else_changes() -> None:
    """Every table and commit_ts once, also negative and large ids. Other bits, and rows without the bit, are left alone."""
    scanner = Scanner()
    matcher = Matcher(chunks=scanner.chunks)
    matcher.subscribe(0, 1, 7, 10)
    rows = [
        INIT,
        *(row(70 + i, i, 100 + i, source) for i, source in enumerate((0, 1, 3, 0xFF, 0x100, 0xFF00, 1 << 17, (1 << 17) | 0xFFFF))),
        *(row(90, i, 200 + i % 2, IMPORT | i) for i in range(200)),
        row(91, 1, 300, IMPORT | 1 << 40),
        row((1 << 48) - 2, 1, 301, IMPORT, op=DELETE),
        Row(type=PREWRITE, op_type=PUT, key=record_key(92, 1), start_ts=9, value=b"v", txn_source=IMPORT),
        row(92, 1, 302, IMPORT, kind=COMMIT),
        Row(type=COMMITTED, op_type=PUT, start_ts=5, commit_ts=303, key=b"m-short", value=b"v", txn_source=IMPORT),
    ]
    rows[-2].start_ts = 9
    batch = scanner.scan([message(1, 7, rows)])
    assert batch.imports == ((200, 90), (201, 90), (300, 91), (301, (1 << 48) - 2), (302, 92))
    assert set(np.unique(batch.entries["op"][: batch.count]).tolist()) <= {0, PUT, DELETE}
    assert len(matcher.feed(batch)) == 1, "the scan is over; nothing broke the protocol"
    found = {(r[0], r[2]) for r in committed(matcher.take(0, FOREVER))}
    assert found == {(r.commit_ts, r.key) for r in rows if r.commit_ts}
    plain = scanner.scan([message(1, 7, [row(70, 1, 900)])])
    assert plain.imports == ()


def test_it_is_noted_before_the_rows_are_in_the_log(tmp_path: Path) -> None:
    writer = LogWriter.create(tmp_path / "log", LogIdentity("1", 10, 1), snapshot={})
    noted: list[tuple[int, int, int]] = []
    with writer:
        log = PartitionLog(writer.partition(0), tmp_path)
        receiver = Receiver([log], tmp_path, lambda events: None, note_import=lambda ts, table_id: noted.append((ts, table_id, log.head)))
        receiver.place(1, 10, 0)
        receiver.subscribe(1, 0, 1, 7, 10, b"", b"", 0)
        for _ in range(2):  # the same rows come again when their region is subscribed again
            receiver.step([0, 0], [message(1, 7, [row(90, 1, 200, IMPORT)]), message(1, 7, [INIT])])
        receiver.step([0], [resolved(500, 7, 1)])
        receiver._seal(force=True)
        receiver._finish_seals(wait=True)
        assert noted == [(200, 90, 10)]
        assert log.head == 500
        receiver.stop()


def test_a_note_that_cannot_be_written_ends_the_capture(tmp_path: Path) -> None:
    def refused(ts: int, table_id: int) -> None:
        raise OSError(30, "Read-only file system")

    with LogWriter.create(tmp_path / "log", LogIdentity("1", 10, 1), snapshot={}) as writer:
        receiver = Receiver([PartitionLog(writer.partition(0), tmp_path)], tmp_path, lambda events: None, note_import=refused)
        receiver.place(1, 10, 0)
        receiver.subscribe(1, 0, 1, 7, 10, b"", b"", 0)
        failed = threading.Event()
        receiver._on_failure = lambda error: failed.set()
        receiver.start()
        receiver.inbox.put(0, message(1, 7, [row(90, 1, 200, IMPORT)]))
        assert failed.wait(60)
        assert isinstance(receiver.failure, OSError)
        receiver.stop()


def delivered(log: Path, out: Path, rules: str = "*.*", **span: int) -> Delivered:
    config = parse_config(f"[filter]\nrules = [{rules!r}]\n")
    settings = Settings("t", config.sink_uri(f"messages://{out}?protocol=open-protocol"), config, parse_zone("UTC"))
    return replay(str(log), settings, **span)  # type: ignore[arg-type]


def test_a_changefeed_of_the_table_stops_and_names_it(tmp_path: Path) -> None:
    """Rows written by another change data capture are delivered; so are other tables' rows and those after the import."""
    log = tmp_path / "log"
    at: list[int] = []

    async def main() -> None:
        async with Playground(5, resolved_interval=0.1) as playground:
            playground.execute(
                "create database d; create table d.t (id int primary key, v int); create table d.u (id int primary key, v int)"
            )
            playground.execute("insert into d.t values (1, 1)")
            ids = {t.name: t.model.id for t in playground.database.catalog.tables.values()}
            mvcc, oracle = playground.cluster.mvcc, playground.cluster.oracle
            ((_, value),) = mvcc.scan(record_key(ids["t"], 1), record_key(ids["t"], 2), oracle.next())
            async with running(config(playground, log)) as capture:
                playground.cluster.transact([(record_key(ids["u"], 1), value)], source=1)
                at.append(playground.cluster.transact([(record_key(ids["t"], 2), value)], source=IMPORT))
                playground.execute("insert into d.u values (2, 2)")
                await caught_up(capture, oracle.next())
            assert imports.noted(open_storage(str(log))) == [(at[0], ids["t"])]

    asyncio.run(main())
    assert verify(str(log)).is_whole
    with pytest.raises(DataWithoutEvents, match=rf"rows were imported into d\.t at {at[0]} .*has only some"):
        delivered(log, tmp_path / "all")
    assert delivered(log, tmp_path / "u", "d.u").rows == 2
    assert delivered(log, tmp_path / "after", start_ts=at[0]).rows == 1
    with pytest.raises(DataWithoutEvents):
        delivered(log, tmp_path / "before", "d.t", start_ts=at[0] - 1)
    storage = open_storage(str(log))
    imports.forget(storage, at[0] - 1)
    assert imports.noted(storage) != []
    drop(storage)
    assert imports.noted(storage) == []
