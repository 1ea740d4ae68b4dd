"""Tables read at a ts while their regions split, merge and move, stores go away, locks stand in the way, and writers go on."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from tests.support.capture.captures import until
from tests.support.capture.loops import run
from tests.support.servers.s3 import make_bucket, s3_server  # noqa: F401
from tidemill.capture.tikv.client import channels
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.model import Region
from tidemill.capture.tikv.read import tables
from tidemill.capture.tikv.read.pages import TARGET, PageSize
from tidemill.capture.tikv.read.snapshot import Snapshot
from tidemill.capture.tikv.read.tables import RowScan, plan_tables
from tidemill.changelog import initial_load
from tidemill.changelog.initial_load import Plan, Range
from tidemill.changelog.storage.open import Storage, open_storage
from tidemill.errors import UpstreamError, UpstreamUnavailable
from tidemill.playground.server import Playground
from tidemill.spark.capture.snapshot import Upstream, load_parts
from tidemill.tidb.keys import record_key, record_range
from tidemill.tidb.schema.tracking.history import SchemaHistory
from tidemill.tidb.schema.tracking.versions import TableVersion

ROWS = 400


def filled(playground: Playground) -> int:
    """A table d.t with rows; its id."""
    playground.execute("create database d; create table d.t (id int primary key, v varchar(20))")
    for i in range(0, ROWS, 50):
        playground.execute("insert into d.t values " + ", ".join(f"({n}, 'v{n}')" for n in range(i, i + 50)))
    (table,) = [t for t in playground.database.catalog.tables.values() if t.name == "t"]
    return int(table.model.id)


def stored(playground: Playground, table_id: int, ts: int) -> list[tuple[bytes, bytes]]:
    return [(k, v) for k, v in playground.cluster.mvcc.scan(*record_range(table_id), ts) if isinstance(v, bytes)]


def disturb(playground: Playground, table_id: int, random_: random.Random, step: int) -> None:
    """Anything that a region may do between two pages."""
    cluster = playground.cluster
    regions = list(cluster.regions.between_encoded(b"t", b"u", 0))
    match step % 4:
        case 0:
            cluster.split([record_key(table_id, random_.randrange(ROWS))])
        case 1 if len(regions) > 2:
            one = regions[random_.randrange(1, len(regions))]
            before = cluster.regions.before(one)
            if before is not None:
                cluster.merge(one.id, before.id)
        case 2:
            cluster.transfer_leader(cluster.regions.at(record_key(table_id, random_.randrange(ROWS))).id, 1 + random_.randrange(2))
        case _:
            playground.execute(f"update d.t set v = 'later{step}' where id = {random_.randrange(ROWS)}")


@pytest.mark.parametrize("seed", range(4))
def test_regions_change_between_any_two_pages(seed: int) -> None:
    async def main() -> None:
        async with Playground(seed, stores=2) as playground:
            table_id = filled(playground)
            pd = await PdClient.connect(playground.pd_address)
            ts = playground.cluster.oracle.next()
            expected = stored(playground, table_id, ts)
            random_ = random.Random(seed)
            found: list[tuple[bytes, bytes]] = []
            steps = 0
            async for pairs in RowScan(pd, ts, 60).pages(*record_range(table_id), page=7):
                found += [(pairs.key(i), v) for i, v in enumerate(pairs.column(1).to_pylist())]
                disturb(playground, table_id, random_, steps)
                steps += 1
            assert found == expected
            assert len(found) == ROWS
            assert steps > ROWS / 7
            assert stored(playground, table_id, playground.cluster.oracle.next()) != expected, "writers went on"
            await pd.close()

    run(main())


def test_a_store_that_goes_away_is_waited_for() -> None:
    async def main() -> None:
        async with Playground(3, stores=2) as playground:
            table_id = filled(playground)
            playground.cluster.split([record_key(table_id, ROWS // 2)])
            for region in playground.cluster.regions.between_encoded(b"t", b"u", 0):
                playground.cluster.transfer_leader(region.id, 2)
            pd = await PdClient.connect(playground.pd_address)
            ts = playground.cluster.oracle.next()
            count, stopped = 0, False
            async for pairs in RowScan(pd, ts, 60).pages(*record_range(table_id), page=50):
                count += len(pairs)
                if not stopped:
                    stopped = True
                    await playground.stop_store(2)
                    back = asyncio.ensure_future(playground.restart_store(2))
            await back
            assert count == ROWS
            await pd.close()

    run(main())


@pytest.mark.parametrize("fate", ["committed above", "committed below", "rolled back"])
def test_a_lock_in_the_way_is_waited_for(fate: str) -> None:
    """The fate of the transaction decides whether its rows are there. A transaction that began after the ts does not block."""

    async def main() -> None:
        async with Playground(3) as playground:
            table_id = filled(playground)
            cluster = playground.cluster
            (value, *_) = [v for _, v in stored(playground, table_id, cluster.oracle.next())]
            new = record_key(table_id, ROWS + 7)
            pending = cluster.prewrite([(new, value)])
            below = cluster.oracle.next()
            ts = cluster.oracle.next()
            cluster.prewrite([(record_key(table_id, ROWS + 9), value)])
            pd = await PdClient.connect(playground.pd_address)
            found: list[bytes] = []

            async def read() -> None:
                async for pairs in RowScan(pd, ts, 60).pages(*record_range(table_id), page=100):
                    found.extend(pairs.key(i) for i in range(len(pairs)))

            reading = asyncio.ensure_future(read())
            await until(lambda: len(found) >= ROWS - 100)
            assert not reading.done()
            if fate == "rolled back":
                cluster.rollback(pending)
            else:
                cluster.commit(pending, below if fate == "committed below" else 0)
            await reading
            assert (new in found) == (fate == "committed below")
            assert len(found) == ROWS + (new in found)
            await pd.close()

    run(main())


def test_a_lock_that_nobody_resolves_ends_the_part_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "LOCK_WAIT_S", 0.2)

    async def main() -> None:
        async with Playground(3) as playground:
            table_id = filled(playground)
            playground.cluster.prewrite([(record_key(table_id, ROWS), b"x")])
            pd = await PdClient.connect(playground.pd_address)
            part = initial_load.Part(playground.cluster.oracle.next(), table_id, 1, 1, *record_range(table_id))
            with pytest.raises(UpstreamUnavailable, match="is locked by the transaction with start_ts"):
                _ = [batch async for batch in tables.batches(pd, part)]
            await pd.close()

    run(main())


# ---- parts in the log, local and on S3


async def planned(playground: Playground, storage: Storage) -> Plan:
    """Three regions, three parts."""
    table_id = filled(playground)
    playground.cluster.split([record_key(table_id, 100), record_key(table_id, 300)])
    ts = playground.cluster.oracle.next()
    pairs = [(k, v) for k, v in playground.cluster.mvcc.scan(b"m", b"n", ts) if isinstance(v, bytes)]
    version = SchemaHistory.bootstrap(ts, pairs).snapshot(ts).by_name["d", "t"]
    pd = await PdClient.connect(playground.pd_address)
    plan = await plan_tables(pd, ts, [version])
    await pd.close()
    initial_load.write_plan(storage, plan)
    return plan


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        (tmp_path / "log").mkdir()
        return str(tmp_path / "log")
    endpoint = request.getfixturevalue("s3_server")
    bucket = f"parts-{os.getpid()}-{abs(hash(tmp_path.name)) % 10**8}"
    make_bucket(endpoint, bucket)
    return f"s3://test:test@{bucket}/one?endpoint_override={endpoint.partition('://')[2]}&scheme=http&region=us-east-1"


def test_a_reader_that_dies_leaves_whole_parts_and_only_what_is_missing_is_read_again(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends in the middle of the second part: that part has no name yet, and the first is not touched again."""

    async def main() -> None:
        async with Playground(3, stores=2) as playground:
            storage = open_storage(place)
            plan = await planned(playground, storage)
            assert [p.k for p in initial_load.missing(storage, plan)] == [1, 2, 3]
            upstream = Upstream((playground.pd_address,))
            batches, asked = tables.batches, []

            async def dying(pd: PdClient, part: initial_load.Part) -> Any:
                asked.append(part.k)
                async for batch in batches(pd, part):
                    yield batch.slice(0, 10)
                    if part.k == 2 and asked.count(2) == 1:
                        raise KeyboardInterrupt
                    yield batch.slice(10)

            monkeypatch.setattr("tidemill.spark.capture.snapshot.batches", dying)

            def load() -> list[Any]:
                return list(load_parts(upstream, place, "lz4", initial_load.missing(storage, plan)))

            def killed() -> None:
                with pytest.raises(KeyboardInterrupt):
                    load()

            await asyncio.to_thread(killed)
            assert [p.k for p in initial_load.missing(storage, plan)] == [2, 3]
            first = storage.entries(plan.parts()[0].folder)
            outcomes = await asyncio.to_thread(load)
            assert [(o.part.k, o.code) for o in outcomes] == [(2, ""), (3, "")]
            assert asked == [1, 2, 2, 3]
            assert initial_load.missing(storage, plan) == []
            kept = {e.name: e for e in storage.entries(plan.parts()[0].folder)}
            assert all(kept[e.name] == e for e in first if e.name == "1of3.arrow")
            (files,) = initial_load.paths(storage, plan).values()
            rows: list[tuple[bytes, bytes]] = []
            for path in files:
                table: pa.Table = storage.open(storage.name(path)).read_all()
                rows += zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)
                assert set(table["commit_ts"].to_pylist()) == {plan.ts}
            assert rows == stored(playground, plan.tables[0].table_id, plan.ts)

    run(main())


@pytest.fixture
def small_messages(monkeypatch: pytest.MonkeyPatch) -> int:
    """gRPC accepts no message above this size."""
    limit = 64 << 10
    options = dict(channels.OPTIONS) | {"grpc.max_receive_message_length": limit}
    monkeypatch.setattr(channels, "OPTIONS", tuple(options.items()))
    return limit


def test_pages_become_smaller_where_an_answer_is_too_large_for_a_message(small_messages: int) -> None:
    async def main() -> None:
        async with Playground(5) as playground:
            table_id = 900
            sizes = [10] * 200 + [small_messages // 3] * 20 + [10] * 200
            rows = [(record_key(table_id, i), b"v" * size) for i, size in enumerate(sizes)]
            playground.cluster.transact(rows)
            ts = playground.cluster.oracle.next()
            pd = await PdClient.connect(playground.pd_address)
            pages = [len(pairs) async for pairs in RowScan(pd, ts, 20).pages(*record_range(table_id), page=128)]
            assert sum(pages) == len(rows)
            assert min(pages[:-1]) <= 2, "of the large rows"
            assert pages[0] == 128
            assert max(pages[pages.index(min(pages)) :]) >= 32, "they become larger again"
            found = [pair async for pair in Snapshot(pd, ts, 20).scan(*record_range(table_id), page=128)]
            assert found == rows
            await pd.close()

    run(main())


def test_a_row_that_is_too_large_for_a_message_is_named(small_messages: int) -> None:
    async def main() -> None:
        async with Playground(5) as playground:
            large = record_key(900, 7)
            playground.cluster.transact([(record_key(900, 6), b"v"), (large, b"v" * small_messages)])
            ts = playground.cluster.oracle.next()
            pd = await PdClient.connect(playground.pd_address)
            with pytest.raises(
                UpstreamError, match=f"a row of table 900 at or after key {record_key(900, 6).hex()}00 .*larger than max"
            ) as e:
                [pairs async for pairs in RowScan(pd, ts, 20).pages(*record_range(900))]
            assert not e.value.retryable
            with pytest.raises(UpstreamError, match="a row of table 900"):
                await Snapshot(pd, ts, 20).get(large)
            await pd.close()

    run(main())


def test_pages_follow_the_size_of_rows() -> None:
    size = PageSize(1024)
    for _ in range(3):
        size.came(TARGET + 1)
    assert size.rows == 128
    size.came(TARGET // 2)
    assert size.rows == 128
    for _ in range(5):
        size.came(0)
    assert size.rows == 1024


def test_tables_are_planned_with_few_questions_to_pd(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Playground(5) as playground:
            ids = [900 + 2 * i for i in range(600)]
            playground.cluster.split([record_key(table_id, 50) for table_id in ids])
            pd = await PdClient.connect(playground.pd_address)
            asked: list[int] = []
            scan = pd.scan_ranges

            async def counted(ranges: Sequence[Range], limit: int = 1024) -> list[Region]:
                asked.append(len(ranges))
                return await scan(ranges, min(limit, 100))

            monkeypatch.setattr(pd, "scan_ranges", counted)
            monkeypatch.setattr(tables, "REGIONS", 100)
            versions = [SimpleNamespace(schema="d", table=f"t{i}", table_id=i, physical_ids=(i,)) for i in ids]
            plan = await plan_tables(pd, 5, cast(list[TableVersion], versions))
            assert [table.ranges for table in plan.tables] == [
                ((record_range(i)[0], record_key(i, 50)), (record_key(i, 50), record_range(i)[1])) for i in ids
            ]
            assert len(asked) < 20, "one a table would be 600"
            await pd.close()

    run(main())
