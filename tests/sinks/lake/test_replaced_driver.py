"""A driver that sleeps right behind its check of the fence, while others go on, changes nothing; one that is killed repeats nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from tests.support.changelog.sqllogs import SqlLog
from tests.support.lake.lakes import Killed, assert_newest_equal, deliver, resume, version_of
from tidemill.config.uri import parse_sink_uri
from tidemill.errors import Fenced, SinkUnavailable
from tidemill.sinks.base import FenceCheck, no_fence_check
from tidemill.sinks.lake.base import Move, Stamp, Tables
from tidemill.sinks.lake.control import Do
from tidemill.sinks.lake.driver.dropped import DroppedTables
from tidemill.sinks.lake.driver.progress import BatchProgress
from tidemill.sinks.lake.driver.sink import LakeDriverSink
from tidemill.sinks.lake.manifest import TableAt
from tidemill.sinks.lake.open import store_of, tables_of
from tidemill.sinks.lake.shapes import OP, lake_table
from tidemill.sinks.storage.store import LocalStore

pytestmark = pytest.mark.slow
WANT = lake_table(version_of(SqlLog("CREATE TABLE t (k INT PRIMARY KEY, v INT)"), "t"))
LAKES = ["delta://{lake}", "iceberg://c/cdc?warehouse=file://{lake}&catalog-uri=sqlite:///{lake}.db"]


def rows(*pairs: tuple[int, int]) -> pa.Table:
    keys, values = zip(*pairs, strict=True)
    return pa.table({"k": pa.array(keys, pa.int32()), "v": pa.array(values, pa.int32()), OP: pa.array([0] * len(keys), pa.int8())})


def held(tables: Tables, name: str) -> list[tuple[int, int]]:
    return sorted((row["k"], row["v"]) for batch in tables.read(tables.place("app", name)) for row in batch.to_pylist())


def once(others: Callable[[], None]) -> FenceCheck:
    """The first check succeeds; then the driver sleeps, and others act."""
    calls = iter([others])
    return lambda *, now=False: next(calls, lambda: None)()


@pytest.fixture(params=LAKES)
def drivers(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Tables, Tables]:
    (tmp_path / "lake").mkdir()
    uri = parse_sink_uri(request.param.format(lake=tmp_path / "lake"))
    old, new = (tables_of(uri, store_of(uri)) for _ in range(2))
    stamp = Stamp("f", 100, 1, no_fence_check)
    place = old.place("app", "t")
    old.shape(place, WANT, stamp)
    old.merge(place, WANT, rows((1, 1), (2, 2)), stamp)
    return old, new


def _at(tables: Tables, name: str) -> TableAt:
    return tables.version("app", name, WANT.table_id, tables.place("app", name))


def test_a_late_rename_changes_nothing(drivers: tuple[Tables, Tables]) -> None:
    old, new = drivers
    moves = [Move(_at(old, "t"), old.place("app", "u"), WANT)]

    def others() -> None:
        new.rename(moves, Stamp("f", 200, 3, no_fence_check))
        new.merge(new.place("app", "u"), WANT, rows((3, 3), (1, 10)), Stamp("f", 300, 4, no_fence_check))
        new.begin(new.place("app", "t"), WANT, Stamp("f", 400, 5, no_fence_check))
        new.merge(new.place("app", "t"), WANT, rows((9, 9)), Stamp("f", 500, 6, no_fence_check))

    with pytest.raises(SinkUnavailable):
        old.rename(moves, Stamp("f", 200, 2, once(others)))
    assert held(new, "u") == [(1, 10), (2, 2), (3, 3)]
    assert held(new, "t") == [(9, 9)]


def test_a_late_drop_leaves_the_table_that_was_made_anew(drivers: tuple[Tables, Tables]) -> None:
    old, new = drivers
    at = _at(old, "t")

    def others() -> None:
        new.drop(at, Stamp("f", 200, 3, no_fence_check))
        new.begin(at.place, WANT, Stamp("f", 300, 4, no_fence_check))
        new.merge(at.place, WANT, rows((9, 9)), Stamp("f", 400, 5, no_fence_check))

    with pytest.raises(SinkUnavailable):
        old.drop(at, Stamp("f", 200, 2, once(others)))
    assert held(new, "t") == [(9, 9)]


@pytest.mark.parametrize(
    "step",
    [
        lambda tables, place, stamp: tables.begin(place, WANT, stamp),
        lambda tables, place, stamp: tables.empty(place, stamp),
        lambda tables, place, stamp: tables.compact(place, stamp),
        lambda tables, place, stamp: tables.merge(place, WANT, rows((1, 1)), stamp),
        lambda tables, place, stamp: tables.append(place, WANT, rows((1, 1)).drop_columns([OP]), stamp),
    ],
    ids=["begin", "empty", "compact", "merge", "append"],
)
def test_a_late_step_changes_no_rows(drivers: tuple[Tables, Tables], step: Callable[[Tables, str, Stamp], Any]) -> None:
    old, new = drivers
    place = old.place("app", "t")
    old.append(place, WANT, rows((4, 4)).drop_columns([OP]), Stamp("f", 150, 1, no_fence_check))  # a second file, to be joined

    def others() -> None:
        new.merge(place, WANT, rows((1, 10)), Stamp("f", 300, 4, no_fence_check))

    with pytest.raises(SinkUnavailable):
        step(old, place, Stamp("f", 200, 2, once(others)))
    assert held(new, "t") == [(1, 10), (2, 2), (4, 4)]
    assert new.delivered(place, "f") == 300


def test_a_table_that_is_made_late_does_not_stay(tmp_path: Path) -> None:
    """A later driver has made and dropped it: the name is free again."""
    (tmp_path / "lake").mkdir()
    uri = parse_sink_uri(LAKES[1].format(lake=tmp_path / "lake"))
    tables = tables_of(uri, store_of(uri))
    calls = iter([None])

    def check(*, now: bool = False) -> None:
        if next(calls, "over") == "over":
            raise Fenced("epoch 2 is over")

    with pytest.raises(Fenced):
        tables.shape("cdc.app.t", WANT, Stamp("f", 200, 2, check))
    assert not tables.exists("cdc.app.t")


def test_notes_do_not_go_back(tmp_path: Path, drivers: tuple[Tables, Tables]) -> None:
    old, _ = drivers
    store = LocalStore(tmp_path / "lake")
    at = _at(old, "t")
    dropped = DroppedTables(store, old)
    later = TableAt("app", "t", at.table_id, at.place, 424242)
    dropped.note(at, Stamp("f", 300, 3, no_fence_check))
    dropped.note(later, Stamp("f", 200, 2, no_fence_check))
    assert b"424242" not in (store.read(f".tidemill/dropped/{at.table_id}.json") or b"")

    mine, theirs = BatchProgress(store), BatchProgress(store)
    mine.claim(2, no_fence_check)
    theirs.claim(3, no_fence_check)
    with pytest.raises(SinkUnavailable, match="another driver, of epoch 3"):
        mine.note(Stamp("f", 200, 2, no_fence_check), 1, {})

    def fenced(*, now: bool = False) -> None:
        raise Fenced("epoch 2 is over")

    with pytest.raises(Fenced):
        mine.claim(2, fenced)
    theirs.note(Stamp("f", 200, 3, no_fence_check), 1, {})
    assert theirs.begin(200, {}) == {}
    assert theirs.begin(300, {}) is None


@pytest.mark.parametrize("uri", LAKES)
@pytest.mark.parametrize("ddl", ["DROP TABLE t", "RENAME TABLE t TO u", "TRUNCATE TABLE t", "DROP DATABASE app"])
def test_a_driver_killed_between_a_ddl_and_the_head_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ddl: str, uri: str
) -> None:
    """Without a note that the rows are there, they would be merged again: into a table that the catalog no longer has."""
    lake = tmp_path / "lake"
    lake.mkdir()
    sql = SqlLog("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
    sql.run(
        "CREATE DATABASE z",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        ddl,
        "CREATE TABLE z.z (k INT PRIMARY KEY)",
        "INSERT INTO z.z VALUES (1)",
    )
    log = sql.write(tmp_path / "log")

    publish = LakeDriverSink._publish

    def killed(self: LakeDriverSink, *given: Any) -> Any:
        if any(ddl.do is not Do.BEGIN for ddl in self._ddls):
            raise Killed
        return publish(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(LakeDriverSink, "_publish", killed)
        with pytest.raises(Killed):
            deliver(log, uri.format(lake=lake))
    resume(log, uri.format(lake=lake))
    assert_newest_equal(lake, sql)
    if uri.startswith("iceberg"):
        catalog = load_catalog("c", uri=f"sqlite:///{lake}.db", warehouse=f"file://{lake}")
        found = {
            name[-1]
            for schema in ("app", "z")
            if catalog.namespace_exists(f"cdc.{schema}")
            for name in catalog.list_tables(f"cdc.{schema}")
        }
        assert found == {table for _, table in sql.tables_at(sql.run())}
