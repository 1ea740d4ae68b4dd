"""Tables take each other's names: every manifest has the right rows under each name, whatever driver is killed at which step."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from tests.support.changelog.sqllogs import SqlLog
from tests.support.lake.lakes import FORCED, Killed, assert_equal, assert_newest_equal, deliver, killed_at, resume, rows_at
from tidemill.errors import SinkError
from tidemill.sinks.lake import iceberg
from tidemill.sinks.lake.delta import DeltaTables
from tidemill.sinks.lake.driver import LakeDriverSink
from tidemill.sinks.lake.manifest import manifest_at, times
from tidemill.sinks.storage.store import LocalStore

pytestmark = pytest.mark.slow
DELTA = "delta://{lake}?compact-every=2"
ICEBERG = "iceberg://c/cdc?warehouse=file://{lake}&catalog-uri=sqlite:///{lake}.db&compact-every=2"
SWAP = "RENAME TABLE a TO x, b TO a, x TO b"
RENAMES = [
    (SWAP,),
    (SWAP, SWAP),
    ("RENAME TABLE a TO x, b TO a, c TO b, x TO c",),
    ("RENAME TABLE c TO d, b TO c, a TO b",),
    ("RENAME TABLE a TO x, b TO a", "RENAME TABLE x TO b"),
    ("RENAME TABLE a TO x", "DROP TABLE b", "CREATE TABLE a (z INT PRIMARY KEY)", "INSERT INTO a VALUES (5)", "RENAME TABLE x TO b"),
    ("DROP TABLE a", "RENAME TABLE b TO a, c TO b", "CREATE TABLE c (z INT PRIMARY KEY)", "INSERT INTO c VALUES (5)"),
    ("CREATE DATABASE o", "RENAME TABLE a TO o.b, b TO a, o.b TO b, c TO o.c"),
    ("DELETE FROM a", SWAP),
]


def _made(*statements: str) -> SqlLog:
    sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY, v INT)", "CREATE TABLE b (id INT, w VARCHAR(9), PRIMARY KEY (id))")
    sql.run("CREATE TABLE c (k VARCHAR(9) PRIMARY KEY, v INT)")
    sql.run("BEGIN", "INSERT INTO a VALUES (1, 1), (2, 2)", "INSERT INTO b VALUES (1, 'b')", "INSERT INTO c VALUES ('c', 1)", "COMMIT")
    sql.run("UPDATE a SET v = 7 WHERE id = 2", *statements)
    return sql


BOTH = pytest.mark.thorough("all but the first are tried with one of the two formats, in turn")


@pytest.mark.parametrize(
    ("statements", "uri"),
    [
        pytest.param(statements, uri, marks=[BOTH] * (number > 0 and number % 2 == other))
        for number, statements in enumerate(RENAMES)
        for other, uri in enumerate((DELTA, ICEBERG))
    ],
)
def test_every_manifest_has_the_right_rows_under_each_name(tmp_path: Path, statements: tuple[str, ...], uri: str) -> None:
    sql, lake = _made(*statements), tmp_path / "lake"
    lake.mkdir()
    deliver(sql.write(tmp_path / "log"), uri.format(lake=lake))
    assert sum(assert_equal(lake, sql, ts) for ts in times(LocalStore(lake)))
    newest = manifest_at(LocalStore(lake), None)
    assert newest.tables.keys() == sql.tables_at(newest.resolved_ts).keys()
    if uri == ICEBERG:
        catalog = load_catalog("c", uri=f"sqlite:///{lake}.db", warehouse=f"file://{lake}")
        names = [
            name for schema in ("app", "o") if catalog.namespace_exists(f"cdc.{schema}") for name in catalog.list_tables(f"cdc.{schema}")
        ]
        assert sorted(".".join(name) for name in names) == sorted(at.place for at in newest.tables.values())


@pytest.mark.parametrize("uri", [DELTA, ICEBERG])
def test_tables_go_on_after_a_swap(tmp_path: Path, uri: str) -> None:
    sql, lake = (
        _made(SWAP, "INSERT INTO a VALUES (5, 'five')", "UPDATE b SET v = 9", "DROP TABLE a", "INSERT INTO b VALUES (7, 7)"),
        tmp_path / "lake",
    )
    lake.mkdir()
    deliver(sql.write(tmp_path / "log"), uri.format(lake=lake))
    assert sum(assert_equal(lake, sql, ts) for ts in times(LocalStore(lake)))


@pytest.mark.parametrize("uri", [DELTA, ICEBERG])
def test_a_table_of_changes_does_not_take_the_place_of_another(tmp_path: Path, uri: str) -> None:
    """A dropped table's changes stay, so its name is not free."""
    sql, lake = _made("DROP TABLE b", "RENAME TABLE a TO b", "INSERT INTO b VALUES (9, 9)"), tmp_path / "lake"
    lake.mkdir()
    log, place = sql.write(tmp_path / "log"), f"{uri}&mode=changes".format(lake=lake)
    with pytest.raises(SinkError, match=r"app\.a becomes app\.b, whose changes stay") as refused:
        deliver(log, place)
    assert "event filter" in refused.value.hint
    ignored = '[filter]\n[[filter.event-filters]]\nmatcher = ["*.*"]\nignore-event = ["rename table"]\n'
    deliver(log, place, toml=FORCED + ignored)
    rows = rows_at(lake, manifest_at(LocalStore(lake), None).tables["app", "b"])
    assert sorted(row["id"] for row in rows if row["_change_type"] == "insert") == [1, 9]


@pytest.mark.parametrize("step", range(1, 7))
@pytest.mark.parametrize("uri", [DELTA, ICEBERG])
def test_a_driver_killed_in_a_swap_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, step: int) -> None:
    sql, lake = _made("BEGIN", "INSERT INTO a VALUES (3, 3)", "INSERT INTO b VALUES (3, 'c')", "COMMIT", SWAP), tmp_path / "lake"
    lake.mkdir()
    log = sql.write(tmp_path / "log")
    swap = (
        [(DeltaTables, "_take_over"), (DeltaTables, "version")]
        if uri == DELTA
        else [(iceberg, "rename_exactly"), (iceberg.IcebergTables, "version")]
    )
    rename = LakeDriverSink._rename

    def dying(self: LakeDriverSink, *given: object) -> None:
        with monkeypatch.context() as inner:
            killed_at(inner, step, swap)
            rename(self, *given)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(LakeDriverSink, "_rename", dying)
        with pytest.raises(Killed):
            deliver(log, uri.format(lake=lake))
    resume(log, uri.format(lake=lake))
    assert_newest_equal(lake, sql)
