"""Initial loads: the tables as of a log's start, with changes while they are read; a later load of one table; crashes in between."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from google.protobuf.message import DecodeError

from tests.support.capture.captures import caught_up, config, running, until
from tests.support.capture.progress import physical_ids
from tests.support.changelog.memory_storage import Bucket, MemoryStorage
from tests.support.servers.s3 import filesystem, make_bucket, s3_server
from tidemill.capture.capture import Capture
from tidemill.capture.initial_load import READER, Loading, LoadOrder, MovedOn, ask, plan_at_the_head, requests
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.model import Region
from tidemill.changefeed.replay import replay
from tidemill.changelog import initial_load
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.storage.open import RemoteStorage, open_storage
from tidemill.changelog.verify import verify
from tidemill.changelog.writer import LogWriter
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings
from tidemill.delivery.zone import parse_zone
from tidemill.errors import StartTsOutOfLog
from tidemill.kernels.load import BadAnswer, locate_pairs
from tidemill.playground.server import Playground
from tidemill.process import children
from tidemill.protocols.open import RowEvent, RowKind, decode
from tidemill.tidb.keys import record_key
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.wire import kvrpcpb_pb2 as kvrpcpb

NOTHING = LoadOrder((), "", Path())

__all__ = ["s3_server"]

Tables = dict[str, dict[Any, dict[str, Any]]]


def delivered(log: Path, out: Path) -> tuple[list[RowEvent], list[int]]:
    """All row events of a replay in the order of delivery, and the resolved timestamps."""
    settings = Settings("t", parse_config("").sink_uri(f"messages://{out}?protocol=open-protocol"), parse_config(""), parse_zone("+00:00"))
    replay(str(log), settings)
    rows, resolved = [], []
    for line in out.read_text().splitlines():
        message = json.loads(line)
        key, value = (base64.b64decode(message[name]) if message[name] else b"" for name in ("key", "value"))
        for event in decode(key, value):
            if isinstance(event, RowEvent):
                rows.append(event)
            elif not hasattr(event, "query"):
                resolved.append(event.ts)
    return rows, resolved


def applied(rows: list[RowEvent]) -> Tables:
    tables: Tables = {}
    for row in rows:
        table = tables.setdefault(row.table, {})
        for image, there in ((row.before, False), (row.after, True)):
            if image:
                columns = {c.name: c.value for c in image}
                if there:
                    table[columns["id"]] = columns
                else:
                    table.pop(columns["id"], None)
    return tables


def truth(playground: Playground, ts: int) -> Tables:
    found = playground.tables_at(ts)
    return {name[1]: {row["id"]: dict(row) for row in table.rows} for name, table in found.items() if table.rows}


def fill(playground: Playground, tables: tuple[str, ...] = ("a", "p"), first: int = 0, count: int = 300) -> None:
    for table in tables:
        for i in range(first, first + count, 20):
            values = ", ".join(f"({n}, 'v{n}')" for n in range(i, i + 20))
            playground.execute(f"insert into d.{table} values {values}")


def change(playground: Playground, step: int) -> None:
    playground.execute(f"update d.a set v = 'new{step}' where id = {step}")
    playground.execute(f"delete from d.p where id = {step}")
    playground.execute(f"insert into d.a values ({1000 + step}, 'later')")


def prepared(playground: Playground) -> None:
    playground.execute("create database d; create table d.a (id int primary key, v varchar(100))")
    playground.execute("create table d.p (id int primary key, v varchar(100)) partition by hash (id) partitions 3")
    playground.execute("create table d.empty (id int primary key)")
    fill(playground)
    table = playground.cluster
    ids = [region.start for region in table.regions.between_encoded(b"t", b"u", 0)]
    assert ids
    physical, *_ = physical_ids(playground, "d", "a")
    table.split([record_key(physical, 100), record_key(physical, 200)])


async def loaded(capture: Capture) -> None:
    storage = capture.writer.storage

    def is_there() -> bool:
        plans = initial_load.plans(storage)
        return not capture.loading.waiting and bool(plans) and not any(initial_load.missing(storage, plan) for plan in plans)

    await until(is_there, 120)


BY_SPARK = [
    pytest.mark.spark,
    pytest.mark.thorough("its tasks run the same code; a load by Spark is in integration/test_initial_load.py"),
]


@pytest.mark.parametrize(
    "reader",
    [children.program("tests.support.capture.sparkless_reader"), pytest.param(READER, marks=BY_SPARK)],
    ids=["one process", "spark"],
)
def test_rows_that_are_there_come_first_and_no_change_is_lost_at_the_seam(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: Sequence[str]
) -> None:
    monkeypatch.setattr("tidemill.capture.initial_load.READER", reader)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))  # where a reader of the tests lies
    monkeypatch.setattr("tidemill.capture.initial_load.POLL_S", 0.1)
    log, ends = tmp_path / "log", []

    async def main() -> None:
        async with Playground(3, resolved_interval=0.1) as playground:
            prepared(playground)
            async with running(config(playground, log, snapshot=True, partitions=2)) as capture:
                start = capture.writer.identity.start_ts
                for step in range(5):
                    change(playground, step)
                await caught_up(capture, playground.cluster.oracle.next())
                with pytest.raises(StartTsOutOfLog, match="are not all in"):
                    await asyncio.to_thread(delivered, log, tmp_path / "early.jsonl")
                assert playground.cluster.safe_points.advance_gc(playground.cluster.oracle.next()) <= start, "TiKV can still read there"
            # The capture ended while tables were being read, and goes on with what is missing.
            plan = initial_load.plans(open_storage(str(log)))[0]
            assert {t.name: len(t.ranges) for t in plan.tables} == {"d.a": 3, "d.p": 3, "d.empty": 1}
            async with running(config(playground, log)) as capture:
                await loaded(capture)
                for step in range(5, 10):
                    change(playground, step)
                await caught_up(capture, playground.cluster.oracle.next())
                ask(capture.writer.storage, "again", "d.A")
                ask(capture.writer.storage, "wrong", "d.nothing")
                await until(lambda: len(initial_load.plans(capture.writer.storage)) == 2, 60)
                await loaded(capture)
                change(playground, 11)
                await caught_up(capture, playground.cluster.oracle.next())
                ends.append(capture.writer.resolved_ts)
            again = initial_load.plans(open_storage(str(log)))[1].ts
            rows, resolved = delivered(log, tmp_path / "out.jsonl")
            assert applied(rows) == truth(playground, ends[0])
            loads = [r for r in rows if r.ts == start]
            assert rows[: len(loads)] == loads, "what was there comes first"
            assert {r.kind for r in loads} == {RowKind.INSERT}
            assert {(r.table, r.after[0].value) for r in loads} == {(t, i) for t in ("a", "p") for i in range(300)}
            assert len(loads) == 600
            assert start in resolved
            second = [r for r in rows if r.ts == again]
            assert {(r.table, r.after[0].value) for r in second} == {("a", n) for n in truth(playground, again)["a"]}
            order = [r.ts for r in rows if r.table == "a"]
            assert order == sorted(order)

    asyncio.run(main())
    report = verify(str(log))
    assert report.is_whole, report.problems
    assert initial_load.missing(open_storage(str(log)), initial_load.plans(open_storage(str(log)))[0]) == []
    assert json.loads((log / "snapshot" / "requests" / "wrong.json.done").read_text())["error"] == "there is no table d.nothing"


@pytest.mark.slow
def test_answers_are_read_as_protobuf_reads_them() -> None:
    pairs = [kvrpcpb.KvPair(key=b"k%d" % i, value=b"v" * i) for i in range(300)]
    answer = kvrpcpb.ScanResponse(pairs=pairs).SerializeToString()
    found = locate_pairs(answer, 300)
    assert [found.key(i) for i in range(300)] == [p.key for p in pairs]
    assert found.column(0).to_pylist() == [p.key for p in pairs]
    assert found.column(1).to_pylist() == [p.value for p in pairs]
    assert len(locate_pairs(b"", 10)) == 0
    for strange in (
        kvrpcpb.ScanResponse(error=kvrpcpb.KeyError(abort="x")),
        kvrpcpb.ScanResponse(pairs=[kvrpcpb.KvPair(error=kvrpcpb.KeyError(abort="x"))]),
    ):
        with pytest.raises(BadAnswer):
            locate_pairs(strange.SerializeToString(), 10)
    with pytest.raises(BadAnswer):
        locate_pairs(answer, 299)
    for cut in range(1, len(answer), 7):
        try:
            whole = kvrpcpb.ScanResponse.FromString(answer[:cut])
        except DecodeError:
            with pytest.raises(BadAnswer):
                locate_pairs(answer[:cut], 300)
        else:
            assert len(locate_pairs(answer[:cut], 300)) == len(whole.pairs)


def test_a_plan_is_kept_as_it_was(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    plan = initial_load.Plan(
        77, (initial_load.PlannedTable(5, "d.t", ((b"a", b"m"), (b"m", b"z"))), initial_load.PlannedTable(6, "d.u", ((b"z", b"zz"),)))
    )
    initial_load.write_plan(storage, plan)
    assert initial_load.plans(storage) == [plan]
    assert initial_load.plans(storage, 78) == []
    assert initial_load.next_plan(storage, 76) == plan
    assert initial_load.next_plan(storage, 77) is None
    assert [(p.table_id, p.k, p.n) for p in initial_load.missing(storage, plan)] == [(5, 1, 2), (5, 2, 2), (6, 1, 1)]
    initial_load.write_part(storage, plan.parts()[1], [])
    assert [(p.table_id, p.k) for p in initial_load.missing(storage, plan)] == [(5, 1), (6, 1)]
    initial_load.remove(storage, 77)
    assert initial_load.plans(storage) == []


def many_tables(bucket: Bucket, parts: int) -> initial_load.Plan:
    """A plan of 300 tables, with some of its parts present."""
    tables = tuple(initial_load.PlannedTable(i, f"d.t{i}", ((b"a", b"m"), (b"m", b"z"))) for i in range(300))
    plan = initial_load.Plan(77, tables)
    initial_load.write_plan(MemoryStorage(bucket), plan)
    for part in plan.parts()[:parts]:
        bucket.put(f"{part.folder}/{part.name}", b"rows")
    return plan


def test_a_look_costs_one_listing_and_what_is_complete_none(tmp_path: Path) -> None:
    bucket, asked = Bucket(), list[tuple[str, str]]()
    threads = set[bool]()

    def gate(what: str, name: str) -> None:
        asked.append((what, name))
        threads.add(threading.current_thread() is threading.main_thread())

    loading = Loading(MemoryStorage(bucket, gate), NOTHING)
    plan = many_tables(bucket, 598)
    folder = initial_load.folder_of(77)
    asyncio.run(loading.look())
    assert (loading.waiting, loading.parts_missing, loading.oldest_ts) == ([plan], 2, 77)
    assert asked == [("list", "snapshot"), ("get", f"{folder}/complete.json"), ("get", f"{folder}/plan.json"), ("list", folder)]
    many_tables(bucket, 600)
    asyncio.run(loading.look())
    assert (loading.waiting, loading.parts_missing, loading.oldest_ts) == ([], 0, None)
    asked.clear()
    asyncio.run(loading.look())
    assert asked == [("list", "snapshot")], "what is complete stays so"
    asked.clear()
    asyncio.run(Loading(MemoryStorage(bucket, gate), NOTHING).look())
    assert asked == [("list", "snapshot"), ("get", f"{folder}/complete.json")], "and the next capture knows it"
    assert initial_load.unfinished(MemoryStorage(bucket)) == []
    assert threads == {False}, "the event loop waits for no storage"


def test_a_part_that_is_gone_from_complete_tables_is_told(tmp_path: Path) -> None:
    identity = LogIdentity(cluster_id="1", start_ts=70, partitions=1)
    LogWriter.create(tmp_path, identity, snapshot={}).close()
    storage = open_storage(tmp_path)
    plan = initial_load.Plan(77, (initial_load.PlannedTable(5, "d.t", ((b"a", b"m"), (b"m", b"z"))),))
    initial_load.write_plan(storage, plan)
    for part in plan.parts():
        initial_load.write_part(storage, part, [])
    asyncio.run(Loading(storage, NOTHING).look())
    assert verify(str(tmp_path)).is_whole
    storage.delete(f"{plan.parts()[0].folder}/{plan.parts()[0].name}")
    [problem] = verify(str(tmp_path)).problems
    assert "complete.json: 1 parts are missing" in str(problem)


@pytest.mark.parametrize("seed", range(5))
def test_all_files_below_a_folder(tmp_path: Path, seed: int, s3_server: str) -> None:
    make_bucket(s3_server, f"below{seed}")
    random = Random(seed)
    names = {"/".join(random.choice("abc") * random.randint(1, 2) for _ in range(random.randint(2, 4))) + ".x" for _ in range(12)}
    storages = [open_storage(tmp_path), RemoteStorage(filesystem(s3_server), f"below{seed}/log"), MemoryStorage(Bucket())]
    for storage in storages:
        for name in sorted(names):
            storage.replace(name, b"-")
    for folder in ("a", "b", "none"):
        expected = sorted(name[len(folder) + 1 :] for name in names if name.startswith(f"{folder}/"))
        assert [sorted(storage.below(folder)) for storage in storages] == [expected] * 3


def test_tables_that_are_about_to_be_planned_hold_garbage_collection(tmp_path: Path) -> None:
    loading = Loading(open_storage(tmp_path), NOTHING)
    initial_load.write_plan(loading.storage, initial_load.Plan(77, (initial_load.PlannedTable(5, "d.t", ((b"a", b"z"),)),)))

    async def work() -> None:
        seen: asyncio.Queue[int | None] = asyncio.Queue()

        async def asked() -> None:
            seen.put_nowait(loading.oldest_ts)
            loading.planning.append(66)
            seen.put_nowait(loading.oldest_ts)

        life = asyncio.create_task(loading.run(asked))
        async with asyncio.timeout(600):
            assert [await seen.get() for _ in range(4)] == [None, 66, 77, 66]
        life.cancel()
        with pytest.raises(asyncio.CancelledError):
            await life

    asyncio.run(work())


def test_who_asks_is_answered_while_tables_are_read_or_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.capture.initial_load.POLL_S", 0.01)
    storage = open_storage(str(tmp_path))
    initial_load.write_plan(storage, initial_load.Plan(77, (initial_load.PlannedTable(5, "d.t", ((b"a", b"z"),)),)))
    endless = [sys.executable, "-c", "import sys; sys.stdin.read()"]

    async def work() -> None:
        rounds: asyncio.Queue[None] = asyncio.Queue()

        async def asked() -> None:
            rounds.put_nowait(None)

        loading = Loading(storage, NOTHING, endless)
        life = asyncio.create_task(loading.run(asked))
        async with asyncio.timeout(600):
            for _ in range(2):  # plans are looked for behind the first
                await rounds.get()
            assert loading.parts_missing == 1
            loading.begin.set()
            for _ in range(3):
                await rounds.get()
        life.cancel()
        with pytest.raises(asyncio.CancelledError):
            await life

    asyncio.run(work())


def test_what_is_no_request_does_no_harm(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    for name, data in (("a", b"\xff{"), ("b", b"[]"), ("c", b"{}")):
        storage.replace(f"{initial_load.REQUESTS}/{name}.json", data)
    ask(storage, "d", "d.t")
    assert [(r.name, r.table) for r in requests(storage)] == [("d.json", "d.t")]
    assert [name for name in storage.names(initial_load.REQUESTS) if name.endswith(".json")] == ["d.json"]


@pytest.mark.parametrize(("head", "planned"), [(90, True), (99, False), (1000, False)])
def test_a_table_is_planned_at_a_ts_that_is_asked_for_behind_its_regions(head: int, planned: bool, tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))

    class Pd:
        regions = 0

        async def scan_ranges(self, ranges: Sequence[tuple[bytes, bytes]], limit: int) -> list[Region]:
            self.regions += 1
            return []

        async def tso(self) -> int:
            assert self.regions == 1
            return 100

    version = cast(TableVersion, SimpleNamespace(schema="d", table="t", table_id=5, physical_ids=(5,)))
    planning = plan_at_the_head(storage, cast(PdClient, Pd()), version, lambda: [5, head])
    if planned:
        assert asyncio.run(planning) == initial_load.plans(storage)[0]
        return
    with pytest.raises(MovedOn, match=r"too fast to plan d\.t"):
        asyncio.run(planning)
    assert initial_load.plans(storage) == []
