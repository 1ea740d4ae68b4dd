"""Scenario files in SQL: statements against the playground's cluster, captured by the simulator, and what the log then tells.

sql TEXT            statements (several with ;)
begin [N] [from mark]    a capture from now on, or from the ts that `mark` remembers (with N log partitions)
ddl SQL / step [N] / done    a DDL step by step, so that rows can be written in between
lock TABLE HANDLE [VALUE] / commit / rollback    a transaction that stops between prewrite and commit
split TABLE HANDLE… / merge TABLE / leader TABLE / break / kill    what happens to regions, streams and the process
stop / start        the process is away, for as long as `pass SECONDS` says; it is there again
schema slow|on      the regions of the schema send no resolved ts for a while
clock SECONDS       the cluster's clock jumps; the host's does not
gc                  TiDB collects all the garbage that nobody wants to keep
pd down|up / keep / forget / drop    PD answers nothing about GC; the barrier follows the log; PD has lost it; the log is dropped
zone NAME           TIMESTAMPs are shown in this zone from now on
resumed             where the spans go on after the last start
look                what is in the log, without waiting for anything
log                 everything so far arrives; prints what is new in the log: rows with names and values, DDLs at their place
tables              how the tables of users are at the log's resolved ts, from the log alone (`=` where that is the truth)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, tzinfo
from pathlib import Path
from random import Random
from typing import Any

from tests.support.capture.captures import Change, log_changes
from tests.support.simulation.scenarios import Block
from tests.support.simulation.simulator import SERVICE, Simulator
from tests.support.simulation.virtual_gc import finish
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader
from tidemill.delivery.zone import parse_zone
from tidemill.errors import TidemillError
from tidemill.playground.store.cluster import Pending
from tidemill.playground.store.truth import tables_at
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows import RowReader
from tidemill.tidb.schema.tracking.history import SchemaHistory
from tidemill.tidb.schema.tracking.versions import TableVersion


class Tables:
    """Runs blocks. `chaos`: things go wrong between the commands, which must change nothing of what comes out."""

    def __init__(self, folder: Path, random: Random, chaos: bool = False) -> None:
        self.random, self.chaos = random, chaos
        self.sim = Simulator(folder, random.randrange(1 << 30), stores=2)
        self.out: list[str] = []
        self.shown = 0  # the log has been printed up to this ts
        self.pending: Pending | None = None
        self.mark = 0
        self.zone: tzinfo = UTC
        self.away = False
        self.steps: Iterator[None] = iter(())
        self.started = False
        if chaos:
            self.sim.faults.cut = 0.5

    def run(self, block: Block) -> list[str]:
        """What a block's commands print."""
        self.out = []
        for text in block.commands:
            name, _, rest = text.partition(" ")
            if self.chaos and self.started and not self.away:
                self.trouble()
            command: Callable[[str], None] = getattr(self, f"do_{name}")
            command(rest)
        return self.out

    def close(self) -> None:
        """The end."""
        if self.started:
            self.sim.kill()

    def trouble(self) -> None:
        """One or two things of an everyday cluster."""
        sim, random = self.sim, self.random
        for _ in range(random.randint(0, 2)):
            kind = random.randrange(6)
            waiting = sim.todo()
            if kind == 0 and sim.connections:
                sim.break_stream(random.choice(list(sim.connections.values())))
            elif kind == 1:
                region = random.choice(list(sim.cluster.regions))
                sim.cluster.transfer_leader(region.id, random.choice(region.peers).store_id)
            elif kind == 2:
                sim.cluster.split([record_key(random.randint(100, 140), random.randint(0, 9))])
            elif kind == 3 and not sim.pd.down:
                sim.kill()
                sim.start()
            elif kind == 4:
                sim.cluster.tick()
                sim.seal()
            elif waiting:
                random.choice(waiting)()
        sim.check()

    # the cluster

    def do_sql(self, text: str) -> None:
        try:
            self.sim.session.execute(text)
        except TidemillError as error:
            self.out.append(f"refused: {error.message}")

    def do_ddl(self, text: str) -> None:
        self.steps = self.sim.session.steps(text)

    def do_step(self, text: str) -> None:
        for _ in range(int(text or 1)):
            if next(self.steps, True) is True:
                return

    def do_done(self, _: str) -> None:
        for _step in self.steps:
            pass

    def do_lock(self, text: str) -> None:
        name, handle = text.split()
        key = record_key(self.physical(name), int(handle))
        newest = self.sim.cluster.mvcc.tablet(key).newest(key)
        assert newest is not None
        assert newest[2] is not None
        self.pending = self.sim.cluster.prewrite([(key, newest[2])])

    def do_commit(self, _: str) -> None:
        assert self.pending is not None
        self.sim.cluster.commit(self.pending)

    def do_rollback(self, _: str) -> None:
        assert self.pending is not None
        self.sim.cluster.rollback(self.pending)

    def do_split(self, text: str) -> None:
        name, *handles = text.split()
        self.sim.cluster.split([record_key(self.physical(name), int(h)) for h in handles])

    def do_merge(self, text: str) -> None:
        region = self.sim.cluster.regions.at(record_key(self.physical(text), 0))
        left = self.sim.cluster.regions.before(region)
        if left is not None:
            self.sim.cluster.merge(left.id, region.id)

    def do_leader(self, text: str) -> None:
        region = self.sim.cluster.regions.at(record_key(self.physical(text), 0))
        other = next(p for p in region.peers if p.store_id != region.leader.store_id)
        self.sim.cluster.transfer_leader(region.id, other.store_id)

    def physical(self, name: str) -> int:
        """The id under which a table's (first) rows lie."""
        table = next(t for t in self.sim.database.catalog.tables.values() if t.name == name)
        return int(table.model.physical_ids[0])

    # the capture

    def do_begin(self, text: str) -> None:
        number, _, start = text.partition("from") if "from" in text else (text, "", "")
        self.sim.partitions = int(number or 2)
        try:
            self.sim.begin(self.mark if start else 0)
        except TidemillError as error:
            self.out.append(f"refused: {error.code}")
            assert self.sim.requests == 0
            return
        self.shown, self.started = self.sim.resolved, True

    def do_mark(self, _: str) -> None:
        self.mark = self.sim.cluster.oracle.next()

    def do_stop(self, _: str) -> None:
        self.sim.kill()
        self.away = True

    def do_start(self, _: str) -> None:
        try:
            self.sim.start()
        except TidemillError as error:
            self.out.append(f"refused: {error.code}")
            return
        self.away = False

    def do_pass(self, text: str) -> None:
        if self.away:
            self.sim.ms += int(text) * 1000
        else:
            self.sim.pass_time(int(text))

    def do_schema(self, text: str) -> None:
        jobs = [record_key(id_, 0) for id_ in self.sim.history.job_table_ids]
        regions = self.sim.cluster.regions
        self.sim.frozen = {r.id for r in regions if any(r.holds(key) for key in (b"mDB", *jobs))} if text == "slow" else set()

    def do_clock(self, text: str) -> None:
        self.sim.skew += int(text) * 1000

    def do_gc(self, _: str) -> None:
        self.sim.faults.gc = True
        self.sim.cluster.collect_garbage(0)
        kept = not self.started or self.sim.cluster.safe_points.collected <= self.sim.resolved
        self.out.append("the log's history is kept" if kept else "history is lost")

    def do_pd(self, text: str) -> None:
        self.sim.pd.down = text == "down"

    def do_keep(self, _: str) -> None:
        try:
            self.sim.keep_history()
        except TidemillError as error:
            self.out.append(f"refused: {error.code}")

    def do_forget(self, _: str) -> None:
        self.sim.cluster.safe_points.delete_barrier(SERVICE.encode())

    def do_drop(self, _: str) -> None:
        finish(self.sim.guard.remove())
        self.away = True
        services = [s.service_id.decode() for s in self.sim.cluster.safe_points.services()]
        self.out.append(f"services at PD: {', '.join(services)}")

    def do_zone(self, text: str) -> None:
        self.zone = parse_zone(text)

    def do_resumed(self, _: str) -> None:
        heads = [*self.sim._heads(), self.sim.writer.schema.head]
        assert all(span.checkpoint == heads[span.partition] for span in self.sim.wanted.values())
        self.out.append(f"{len(self.sim.wanted)} spans go on from their partitions' heads")

    def do_break(self, _: str) -> None:
        for connection in list(self.sim.connections.values()):
            self.sim.break_stream(connection)

    def do_kill(self, _: str) -> None:
        self.sim.kill()
        self.sim.start()

    def do_log(self, _: str) -> None:
        self.sim.catch_up()
        self.sim.check()
        if not self.sim.faults.gc:
            self.sim.check_log()
        self.do_look("")

    def do_look(self, _: str) -> None:
        for _round in range(3):
            self.sim.settle()
            self.sim.cluster.tick()
            self.sim.settle()
            self.sim.seal()
        history = load_history(LogReader(self.sim.folder / "log"))
        upto = self.sim.resolved
        events: list[tuple[int, int, str]] = [(e.ts, 1, f"ddl {e.query}") for e in history.ddl_events(self.shown, upto)]
        for rows in log_changes(self.sim.folder / "log").values():
            for i, row in enumerate(rows):
                if self.shown < row.commit_ts <= upto and (text := told(history, row, self.zone)):
                    events.append((row.commit_ts, -len(rows) + i, text))
        self.out += [text for _, _, text in sorted(events, key=lambda e: e[:2])]
        self.shown = upto

    def do_tables(self, _: str) -> None:
        self.sim.catch_up()
        history = load_history(LogReader(self.sim.folder / "log"))
        truth = {f"{s}.{t}": table for (s, t), table in tables_at(self.sim.cluster.mvcc, self.sim.resolved).items()}
        kept = self.materialized(history)
        for name in sorted(truth):
            rows = sorted(kept.get(name, []), key=repr)
            same = rows == sorted((dict(r) for r in truth[name].rows), key=repr)
            self.out.append(f"{name} {len(rows)} rows {'=' if same else '!='}")
            assert same, (name, rows, truth[name].rows)

    def materialized(self, history: SchemaHistory) -> dict[str, list[dict[str, Any]]]:
        """Apply the log to what the tables held at its start."""
        start, end = LogReader(self.sim.folder / "log").start_ts, self.sim.resolved
        state: dict[bytes, bytes] = {}
        for key, versions in self.sim.cluster.mvcc.items(b"t", b"u"):
            value = next((v for c, _, v in sorted(versions, reverse=True) if c <= start), None)
            if value is not None:
                state[key] = value
        for change in sorted((c for rows in log_changes(self.sim.folder / "log").values() for c in rows), key=lambda c: c.commit_ts):
            if change.value is None:
                state.pop(change.key, None)
            else:
                state[change.key] = change.value
        found: dict[str, list[dict[str, Any]]] = {}
        for version in history.snapshot(end).tables.values():
            reader = RowReader(version.info, UTC)
            names = [c.name for c in version.info.output_columns]
            rows = found.setdefault(f"{version.schema}.{version.table}", [])
            for physical in version.physical_ids:
                prefix = record_key(physical, 0)[:11]
                rows += [dict(zip(names, reader.read(k, v), strict=True)) for k, v in state.items() if k.startswith(prefix)]
        return found


def told(history: SchemaHistory, row: Change, zone: tzinfo = UTC) -> str:
    """A row of the log for people; empty where it is a copy, or of a table that is not in force."""
    version = history.snapshot(row.commit_ts - 1).by_physical.get(row.table_id)
    if version is None:
        return ""
    name = f"{version.schema}.{version.table}"
    if row.value is None:
        return f"delete {name} {cells(version, row.key, row.old_value, zone)}"
    if row.old_value is None:
        return f"insert {name} {cells(version, row.key, row.value, zone)}"
    return f"update {name} {cells(version, row.key, row.old_value, zone)} -> {cells(version, row.key, row.value, zone)}"


def cells(version: TableVersion, key: bytes, value: bytes | None, zone: tzinfo) -> str:
    """Columns and their values."""
    reader = RowReader(version.info, zone)
    names = [c.name for c in version.info.output_columns]
    pairs = zip(names, reader.read(key, value), strict=True)
    return "{" + ", ".join(f"{name}={_plain(cell)}" for name, cell in pairs) + "}"


def _plain(cell: object) -> str:
    if isinstance(cell, bytes):
        return repr(cell.decode()) if cell.isascii() else f"0x{cell.hex()}"
    return str(cell)
