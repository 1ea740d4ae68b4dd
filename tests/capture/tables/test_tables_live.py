"""Tables that come, go and change while they are written, in a capture over sockets: no row lost, none twice, each under the name and
the columns that it was written with; spans begin and end at the switches. Also when the capture is killed in between.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path

import psutil
import pytest

from tests.soak.judge import State, Truth
from tests.soak.processes import HELD
from tests.support.capture.captures import Change, caught_up, compare, config, log_changes, running, until
from tests.support.capture.live_tables import CASES, HIGH, Case, Write, Writer
from tidemill.capture.capture import Capture
from tidemill.capture.tikv.regions.actions import Span
from tidemill.changefeed.replay import replay
from tidemill.changelog.reader import LogReader
from tidemill.changelog.verify import verify
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings
from tidemill.demo.delivered import from_jsonl
from tidemill.playground.server import Playground
from tidemill.playground.store.dump import write_dump
from tidemill.tidb import keys
from tidemill.tidb.ddltext.synthesized import rename_table
from tidemill.tidb.keys import from_encoded, physical_table_id, record_key
from tidemill.tidb.rows import RowReader
from tidemill.tidb.schema.tracking.history import SchemaHistory
from tidemill.tidb.schema.tracking.versions import PhysicalChange

Told = tuple[int, str, str, int, str, tuple[str, ...]]
"""commit_ts, schema.table, op, id, v, columns."""
PATIENCE_S = 300.0  # compiling kernels included


@dataclass
class Spans:
    """What a capture subscribed: (physical id, checkpoint) of each span, and the head of its partition when the span ended."""

    capture: Capture
    begun: list[tuple[int, int]] = field(default_factory=list)
    ended: dict[int, list[int]] = field(default_factory=dict)  # physical id → heads
    _of: dict[int, tuple[int, int]] = field(default_factory=dict)  # span id → physical id, partition

    def __post_init__(self) -> None:
        spans = self.capture.spans
        for physical, of_table in spans._spans_of.items():
            for span in of_table:
                self._of[span.id] = physical, span.partition
        self._add, self._remove = spans._add, spans._remove
        spans._add, spans._remove = self.add, self.remove

    def add(self, span: Span) -> None:
        physical = physical_table_id(from_encoded(span.start))
        self._of[span.id] = physical, span.partition
        self.begun.append((physical, span.checkpoint))
        self._add(span)

    def remove(self, id_: int) -> None:
        physical, partition = self._of[id_]
        self.ended.setdefault(physical, []).append(self.capture.heads()[partition])
        self._remove(id_)


@dataclass
class World:
    """All cases, captured into one log."""

    log: Path
    dump: Path
    writes: list[Write]
    ddls: list[str]
    history: SchemaHistory
    spans: Spans | None
    live: set[int]  # physical ids of the upstream at the end

    def of(self, case: Case) -> list[Write]:
        return [w for w in self.writes if _belongs(w.name, case)]


def _belongs(name: str, case: Case) -> bool:
    return case.owns(name.partition(".")[0])


def churn(playground: Playground, random_: random.Random) -> None:
    """Something happens to the regions, or to a stream."""
    cluster = playground.cluster
    regions = list(cluster.regions)
    kind = random_.choice(("split", "merge", "leader", "streams"))
    if kind == "split":
        table = random_.choice(list(playground.database.catalog.tables.values()))
        cluster.split([record_key(table.model.physical_ids[0], random_.randrange(HIGH))])
    elif kind == "merge":
        i = random_.randrange(len(regions) - 1)
        cluster.merge(regions[i].id, regions[i + 1].id)
    elif kind == "leader":
        region = random_.choice(regions)
        cluster.transfer_leader(region.id, random_.choice(region.peers).store_id)
    else:
        playground.feeds[random_.choice(sorted(playground.feeds))].break_streams()


def finished(playground: Playground, folder: Path, writer: Writer, spans: Spans | None) -> World:
    """The cluster and captured log when all cases have run."""
    write_dump(playground.cluster.mvcc, str(folder / "dump.arrow"))
    _, history = compare(playground.cluster, folder / "log")
    catalog = playground.database.catalog
    users = [t for t in catalog.tables.values() if not keys.is_system_schema(catalog.schema_name(t.schema_id))]
    live = {p for t in users for p in t.model.physical_ids}
    return World(folder / "log", folder / "dump.arrow", writer.writes, writer.ddls, history, spans, live)


async def _captured(folder: Path) -> World:
    """By a capture in this process, while regions change and streams break."""
    random_ = random.Random(5)
    async with asyncio.timeout(600), Playground(5, stores=3, resolved_interval=0.1) as playground:
        writer = Writer(playground, random_)
        writer.prepare(CASES)
        writer.writes.clear()
        async with running(config(playground, folder / "log")) as capture:
            spans = Spans(capture)
            for case in CASES:
                await writer.run(case)
                churn(playground, random_)
            await caught_up(capture, playground.cluster.oracle.next())
            await until(lambda: not capture.spans._retired)
        return finished(playground, folder, writer, spans)


async def _killed(folder: Path) -> World:
    """A capture in two groups whose processes are killed repeatedly: all of them, or one group's."""
    random_ = random.Random(6)
    async with asyncio.timeout(600), Playground(6, stores=2, resolved_interval=0.1) as playground:
        writer = Writer(playground, random_, pause=0.05)
        writer.prepare(CASES)
        writer.writes.clear()
        process = await started(playground, folder, flags=GROUPS)
        try:
            for i, case in enumerate(CASES):
                await writer.run(case)
                if i % 10 == 4:
                    process.kill()
                    process.wait()
                    process = await started(playground, folder, flags=GROUPS, ready=random_.random() < 0.5)
                elif i % 10 == 9:
                    for worker in psutil.Process(process.pid).children()[:1]:
                        worker.kill()
            await complete(folder / "log", playground.cluster.oracle.next(), process)
        finally:
            process.kill()
            process.wait()
        return finished(playground, folder, writer, None)


GROUPS = ("--workers", "2")


async def started(
    playground: Playground, folder: Path, program: Iterable[str] = (), *, flags: Iterable[str] = (), ready: bool = True
) -> subprocess.Popen[bytes]:
    """A `tidemill capture`; `ready`: it runs when this returns."""
    command = [*(program or ("-m", "tidemill.cli.main")), "capture", "--pd", playground.pd_address, "--log", str(folder / "log"), *flags]
    command = [sys.executable, *command, "--log-file", str(folder / "capture.log")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=os.environ | HELD)
    status = folder / "log.capture" / "status.json"

    def runs() -> bool:
        assert process.poll() is None, "the capture ended by itself"
        return status.exists() and (told := json.loads(status.read_text()))["pid"] == process.pid and told["state"] == "running"

    if ready:
        await until(runs, PATIENCE_S)
    return process


async def complete(log: Path, ts: int, process: subprocess.Popen[bytes]) -> None:
    """The log has everything up to `ts`."""

    def reached() -> bool:
        assert process.poll() is None, "the capture ended by itself"
        return (log / "log.json").exists() and LogReader(log).resolved_ts() >= ts

    await until(reached, PATIENCE_S)


KILLED = pytest.mark.thorough(
    "each case in a capture that goes on is in `make test`, and so are captures that die between a CREATE and its rows"
)


@pytest.fixture(scope="module", params=["captured", pytest.param("killed", marks=KILLED)])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    make = {"captured": _captured, "killed": _killed}[request.param]
    return asyncio.run(make(tmp_path_factory.mktemp(request.param)))


# what the log tells


def _told(history: SchemaHistory, change: Change) -> Told | None:
    """A row of the log by the schema that is in force for it; None for a copy."""
    version = history.snapshot(change.commit_ts - 1).by_physical.get(change.table_id)
    if version is None:
        return None
    op = "delete" if change.value is None else "insert" if change.old_value is None else "update"
    names = [c.name for c in version.info.output_columns]
    image = change.old_value if change.value is None else change.value
    assert image is not None
    row = dict(zip(names, RowReader(version.info, UTC).read(change.key, image), strict=True))
    name, v = f"{version.schema}.{version.table}", row["v"]
    assert isinstance(row["id"], int)
    return change.commit_ts, name, op, row["id"], v.decode() if isinstance(v, bytes) else str(v), tuple(sorted(names))


@pytest.fixture(scope="module")
def told(world: World) -> list[Told]:
    found = (_told(world.history, change) for rows in log_changes(world.log).values() for change in rows)
    return [t for t in found if t is not None]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_each_row_is_there_once_as_it_was_written(world: World, told: list[Told], case: Case) -> None:
    written, logged = Counter(tuple(w) for w in world.of(case)), Counter(t for t in told if _belongs(t[1], case))
    assert sorted((written - logged).elements()) == [], "lost"
    assert sorted((logged - written).elements()) == [], "there twice, or as something else"
    assert sum(written.values()) > 5


def test_the_log_is_whole_and_makes_the_tables(world: World) -> None:
    assert verify(str(world.log)).is_whole
    truth, end = Truth(world.dump), world.history.resolved_ts
    state = State(truth, world.history, world.history.start_ts)
    rows = sorted((r for rows in log_changes(world.log).values() for r in rows), key=lambda r: (r.commit_ts, r.start_ts, r.key))
    state.run(rows, end)
    for physical in world.live:
        assert physical in state.in_force
        assert state.rows[physical] == truth.rows_at(physical, end, told=True)


def _moves(switch: PhysicalChange) -> bool:
    """Whether a physical table belongs to another logical one afterwards: EXCHANGE PARTITION, the last step of PARTITION BY."""
    before = {p: v.table_id for v in switch.ended for p in v.physical_ids}
    return any(before.get(p, v.table_id) != v.table_id for v in switch.begun for p in v.physical_ids)


def test_spans_begin_and_end_at_the_switches(world: World) -> None:
    if world.spans is None:
        pytest.skip("of the capture in this process")
    spans = world.spans
    switches = world.history.next_table_changes(world.history.start_ts, world.history.resolved_ts)
    begun, wanted = Counter(spans.begun), Counter((p, switch.ts) for switch in switches for p in switch.added)
    assert wanted - begun == Counter()
    assert {ts for _, ts in (begun - wanted)} <= {s.ts for s in switches if _moves(s)}, "spans move only with the logical table"
    for switch in switches:
        for physical in switch.removed:
            assert any(head >= switch.ts for head in spans.ended[physical]), f"the span of {physical} did not end behind {switch.ts}"
    assert set(spans.capture.spans._spans_of) == world.live


# what is delivered


def _canal_json(message: bytes) -> Iterable[Told | str]:
    """Rows, or the text of a DDL."""
    o = json.loads(message)
    if o["isDdl"]:
        yield o["sql"]
    elif o["type"] != "TIDB_WATERMARK":
        [row] = o["data"]
        yield o["_tidb"]["commitTs"], f"{o['database']}.{o['table']}", o["type"].lower(), int(row["id"]), row["v"], tuple(sorted(row))


def _open(key: bytes, value: bytes) -> Iterable[Told | str]:
    from tidemill.protocols.open import DdlMessage, RowEvent, decode

    for event in decode(key, value):
        if isinstance(event, DdlMessage):
            yield event.query
        elif isinstance(event, RowEvent):
            image = event.after or event.before
            assert image
            op = "delete" if not event.after else "update" if event.before else "insert"
            cells = {c.name: c.value for c in image}
            v = cells["v"]
            yield (
                event.ts,
                f"{event.schema}.{event.table}",
                op,
                int(str(cells["id"])),
                v.decode() if isinstance(v, bytes) else str(v),
                tuple(sorted(cells)),
            )


PROTOCOLS: dict[str, Callable[[bytes, bytes], Iterable[Told | str]]] = {
    "canal-json&enable-tidb-extension=true": lambda key, value: _canal_json(value),
    "open-protocol": _open,
}


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: p.partition("&")[0])
def test_each_row_is_delivered_once_under_its_name(world: World, tmp_path: Path, protocol: str) -> None:
    """With the DDLs between: rows up to a DDL's ts before it, the others behind it. A RENAME of several tables comes pair by pair."""
    changefeed = parse_config("force-replicate = true\n")
    uri = f"messages://{tmp_path / 'out.jsonl'}?partition-num=1&protocol={protocol}"
    replay(str(world.log), Settings("test", changefeed.sink_uri(uri), changefeed, UTC))
    events = [e for m in from_jsonl(tmp_path / "out.jsonl") for e in PROTOCOLS[protocol](m.key or b"", m.value or b"")]
    rows = Counter(e for e in events if not isinstance(e, str))
    written = Counter(tuple(w) for w in world.writes)
    assert sorted((written - rows).elements()) == [], "lost"
    assert sorted((rows - written).elements()) == [], "delivered twice, or as something else"
    ddls = sorted(
        (ddl.ts, place, query)
        for ddl in world.history.ddl_events(world.history.start_ts, world.history.resolved_ts)
        for place, query in [(step.place, rename_table(step.old, step.new)) for step in ddl.steps] or [(ddl.seq, ddl.query)]
    )
    assert [e for e in events if isinstance(e, str)] == [query for _, _, query in ddls]
    places, behind = iter(ddls), 0
    for event in events:
        if isinstance(event, str):
            behind, _, _ = next(places)
        else:
            assert event[0] > behind, f"{event} comes behind a DDL that stands at {behind}"


# a table that is created and filled at once, and a capture that dies in between

POINTS = (
    "schema sealed", "schema followed", "span added", "span placed", "subscribed", "scanned", "rows sealed", "head set", "retired",
)  # fmt: skip
FEW_POINTS = ("schema sealed", "span added", "scanned", "rows sealed", "head set")
FILLED = (
    "create table d.{n} (id bigint primary key, v varchar(100))",
    "create table d.{n} (id bigint primary key, v varchar(100)) partition by hash (id) partitions 3",
    "create table d.{n} like d.model",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "points", [FEW_POINTS, pytest.param(POINTS, marks=pytest.mark.thorough("more points beside the few"))], ids=["few points", "all points"]
)
def test_a_table_that_is_created_and_filled_at_once_when_the_capture_dies_in_between(tmp_path: Path, points: tuple[str, ...]) -> None:
    """kill -9 at each point between the CREATE in the log and the rows in it, and at random moments."""

    async def main() -> None:
        random_ = random.Random(7)
        async with asyncio.timeout(800), Playground(7, stores=2, resolved_interval=0.1) as playground:
            playground.execute(
                "create database d; create table d.model (id bigint primary key, v varchar(100)) partition by hash (id) partitions 2"
            )
            arm = tmp_path / "arm"
            process = await started(playground, tmp_path, ("-m", "tests.support.faults.dying", str(arm)))
            died = []
            for i, point in enumerate(points):
                arm.write_text(point)
                for j, sql in enumerate(FILLED):
                    playground.execute(sql.format(n=f"t{i}_{j}"))
                    fill(playground, f"d.t{i}_{j}")
                    await asyncio.sleep(random_.random() * 0.05)
                    fill(playground, f"d.t{i}_{j}")
                playground.execute(f"truncate table d.t{i}_1")
                fill(playground, f"d.t{i}_1")
                await until(lambda: process.poll() is not None, PATIENCE_S)  # noqa: B023
                died.append(point)
                fill(playground, f"d.t{i}_0")
                process = await started(playground, tmp_path, ("-m", "tests.support.faults.dying", str(arm)))
            await complete(tmp_path / "log", playground.cluster.oracle.next(), process)
            process.kill()
            process.wait()
            assert died == list(points)
            n, _ = compare(playground.cluster, tmp_path / "log")
            assert n == sum(c for c in COUNTS)
        assert verify(str(tmp_path / "log")).is_whole

    COUNTS.clear()
    asyncio.run(main())


COUNTS: list[int] = []


def fill(playground: Playground, name: str) -> None:
    """Rows in one transaction."""
    first = 1000 * len(COUNTS)
    playground.execute(f"insert into {name} values " + ",".join(f"({first + k}, 'v{k}')" for k in range(50)))
    COUNTS.append(50)
