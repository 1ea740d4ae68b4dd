"""Batches of a stream: whole transactions, limits, restarts at the same rows, and DDLs by policy. Without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.spark.frames import Stream, needs_streams, read
from tidemill.errors import SchemaChanged, StartTsOutOfLog
from tidemill.spark.source import source as source_module
from tidemill.spark.source.ddl import DdlSource


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Twenty transactions of one, two or three rows."""
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY, n INT)", "CREATE TABLE o (id INT)")
    for i in range(20):
        rows = ", ".join(f"({10 * i + k}, {i})" for k in range(1 + i % 3))
        sql.run(f"INSERT INTO t VALUES {rows}")
    sql.run("INSERT INTO o VALUES (1)")
    return sql.write(tmp_path_factory.mktemp("stream") / "log", partitions=2)


def test_a_stream_reads_what_a_batch_reads(log: str) -> None:
    stream = Stream(log, table="app.t")
    assert stream.batches() == [read(log, table="app.t")]
    assert stream.batch() is None


def test_limits_keep_transactions_whole(log: str) -> None:
    batches = Stream(log, table="app.t", maxRowsPerTrigger="4").batches()
    assert [row for batch in batches for row in batch] == read(log, table="app.t")
    assert all(len(batch) <= 4 for batch in batches)
    ends = [batch[-1]["n"] for batch in batches]
    assert ends == sorted(set(ends)), "no transaction is in two batches"
    one = Stream(log, table="app.t", maxRowsPerTrigger="1").batches()
    assert len(one) == 20, "a transaction with more rows is read as a whole"
    every = Stream(log, table="app.t", maxRowsPerTrigger="1").everything()
    assert every == read(log, table="app.t"), "a trigger without limits reads all"


def test_a_restart_goes_on_exactly_where_it_was(log: str) -> None:
    want = read(log, table="app.t")
    stream = Stream(log, table="app.t", maxRowsPerTrigger="7")
    begin = stream.at
    first = stream.batch()
    assert first is not None
    again = Stream(log, stream.at, table="app.t")
    assert again.rows(begin, stream.at) == first, "a batch that is run again has the same rows"
    assert first + [row for batch in again.batches() for row in batch] == want


def test_available_now_stops_where_the_log_was(tmp_path: Path) -> None:
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY)")
    sql.run("INSERT INTO t VALUES (1)")
    sql.run("INSERT INTO t VALUES (2)")
    log = sql.write(tmp_path / "log")
    stream = Stream(log, table="app.t", available_now=True, maxRowsPerTrigger="1")
    sql.run("INSERT INTO t VALUES (3)")
    sql.write(tmp_path / "log")
    assert [[row["id"] for row in batch] for batch in stream.batches()] == [[1], [2]]


def test_a_stream_from_the_log_s_end_and_one_that_ends(log: str) -> None:
    assert Stream(log, table="app.t", startingTs="latest").batches() == []
    ts = read(log, table="app.t")[2]["_commit_ts"]
    assert Stream(log, table="app.t", endingTs=str(ts)).batches() == [read(log, table="app.t")[:3]]


def test_time_without_rows_moves_the_offset_now_and_then(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(log, table="app.o")
    assert [len(batch) for batch in stream.batches()] == [1]
    stream = Stream(log, stream.at, tables="app.none")
    assert stream.batches() == []
    monkeypatch.setattr(source_module, "QUIET_MS", -1)
    stream = Stream(log, tables="app.none")
    assert stream.batches() == [[]]


def test_several_streams_of_one_log_do_not_disturb_each_other(log: str) -> None:
    one, two = Stream(log, table="app.t", maxRowsPerTrigger="5"), Stream(log, tables="app.*")
    one.batch()
    assert [len(batch) for batch in two.batches()] == [len(read(log, table="app.t")) + 1]


# DDLs


@pytest.fixture
def altered(tmp_path: Path) -> tuple[SqlLog, Path]:
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    sql.run("INSERT INTO t VALUES (1, 1)")
    return sql, tmp_path / "log"


def test_fail_ends_a_query_until_somebody_accepts(altered: tuple[SqlLog, Path]) -> None:
    sql, folder = altered
    stream = Stream(sql.write(folder), table="app.t")
    assert [[row["id"] for row in batch] for batch in stream.batches()] == [[1]]
    sql.run("INSERT INTO t VALUES (2, 2)")
    sql.run("ALTER TABLE t ADD COLUMN b INT", "INSERT INTO t VALUES (3, 3, 3)")
    log = sql.write(folder)
    stream.reader._stream.planner.reader.refresh()
    assert [row["id"] for row in stream.batch() or ()] == [2], "what lies before the DDL is read"
    fault = r"the columns of app\.t changed at \d+ .*ALTER TABLE .*ADD COLUMN .*b.*: column b was added\n +All changes before it were read"
    with pytest.raises(SchemaChanged, match=fault):
        stream.batch()
    again = Stream(log, stream.at, table="app.t")
    with pytest.raises(SchemaChanged, match=r"columns of app\.t are others than when this query ran last.*ADD COLUMN.*\n.*schemaTs=latest"):
        again.batch()
    accepted = Stream(log, stream.at, table="app.t", schemaTs="latest")
    assert [(row["id"], row["b"]) for row in accepted.batch() or ()] == [(3, 3)]
    assert Stream(log, accepted.at, table="app.t").batches() == [], "the new columns are known now"


def test_restart_goes_on_with_the_new_columns(altered: tuple[SqlLog, Path]) -> None:
    sql, folder = altered
    stream = Stream(sql.write(folder), table="app.t", schemaChangePolicy="restart")
    stream.batches()
    sql.run("ALTER TABLE t DROP COLUMN a", "INSERT INTO t VALUES (3)")
    log = sql.write(folder)
    stream.reader._stream.planner.reader.refresh()
    with pytest.raises(SchemaChanged, match=r"column a was dropped\n.*Start the query again"):
        stream.batches()
    again = Stream(log, stream.at, table="app.t", schemaChangePolicy="restart")
    assert [row["id"] for batch in again.batches() for row in batch] == [3]


def test_add_columns_goes_on_without_them(altered: tuple[SqlLog, Path]) -> None:
    sql, folder = altered
    log = sql.write(folder)
    stream = Stream(log, table="app.t", schemaChangePolicy="addColumns")
    stream.batches()
    sql.run("ALTER TABLE t ADD COLUMN b INT", "INSERT INTO t VALUES (3, 3, 3)")
    sql.run("ALTER TABLE t MODIFY COLUMN a VARCHAR(9)")
    sql.write(folder)
    stream.reader._stream.planner.reader.refresh()
    rows = [row for row in stream.batch() or () if row["_change_type"] == "insert"]  # the DDL writes all rows again
    assert [(row["id"], row["a"], "b" in row) for row in rows] == [(3, 3, False)]
    with pytest.raises(SchemaChanged, match="column a became string"):
        stream.batches()
    with pytest.raises(SchemaChanged, match="schemaTs=latest"):
        Stream(log, stream.at, table="app.t", schemaChangePolicy="addColumns").batches()
    sql.run("INSERT INTO t VALUES (4, 'x', 4)")
    sql.write(folder)
    accepted = Stream(log, stream.at, table="app.t", schemaChangePolicy="addColumns", schemaTs="latest")
    assert [row["a"] for batch in accepted.batches() for row in batch][-1:] == ["x"]
    sql.run("ALTER TABLE t ADD COLUMN c INT", "INSERT INTO t VALUES (5, 'y', 5, 5)")
    sql.write(folder)
    again = Stream(log, accepted.at, table="app.t", schemaChangePolicy="addColumns")
    assert [(row["id"], row["a"], row["c"]) for batch in again.batches() for row in batch] == [(5, "y", 5)]


@pytest.mark.parametrize("policy", ["fail", "addColumns"])
def test_another_column_of_the_name_ends_a_query_until_somebody_accepts(altered: tuple[SqlLog, Path], policy: str) -> None:
    """Names and types are the same, the column is not."""
    sql, folder = altered
    stream = Stream(sql.write(folder), table="app.t", schemaChangePolicy=policy)
    stream.batches()
    sql.run("BEGIN", "INSERT INTO t VALUES (2, 2)", "COMMIT", "ALTER TABLE t DROP COLUMN a", "ALTER TABLE t ADD COLUMN a INT")
    sql.run("INSERT INTO t VALUES (3, 3)")
    log = sql.write(folder)
    stream.reader._stream.planner.reader.refresh()
    assert [row["id"] for row in stream.batch() or ()] == [2]
    with pytest.raises(SchemaChanged, match="column a was dropped"):
        stream.batch()
    with pytest.raises(SchemaChanged, match=r"columns of app\.t are others.*DROP COLUMN.*ADD COLUMN"):
        Stream(log, stream.at, table="app.t", schemaChangePolicy=policy).batch()
    accepted = Stream(log, stream.at, table="app.t", schemaChangePolicy=policy, schemaTs="latest")
    assert [(row["id"], row["a"]) for row in accepted.batch() or ()] == [(3, 3)]
    assert Stream(log, accepted.at, table="app.t", schemaChangePolicy=policy).batches() == []


def test_a_ddl_that_changes_no_column_ends_nothing(altered: tuple[SqlLog, Path]) -> None:
    sql, folder = altered
    stream = Stream(sql.write(folder), table="app.t")
    stream.batches()
    sql.run("ALTER TABLE t ADD INDEX i (a)", "ALTER TABLE t COMMENT = 'x'", "INSERT INTO t VALUES (2, 7)")
    sql.write(folder)
    stream.reader._stream.planner.reader.refresh()
    assert [[row["a"] for row in batch] for batch in stream.batches()] == [[7]]


@needs_streams
def test_ddls_as_rows(altered: tuple[SqlLog, Path]) -> None:
    sql, folder = altered
    sql.run("ALTER TABLE t ADD COLUMN b INT", "CREATE TABLE o (id INT)", "RENAME TABLE t TO u")
    log = sql.write(folder)

    def ddls(**options: str) -> list[tuple[str, str, str]]:
        source = DdlSource({"log": log, **options})
        reader = source.reader(source.schema())
        rows = [row for p in reader.partitions() for batch in reader.read(p) for row in batch.to_pylist()]
        return [(row["_table"], row["type"], row["query"]) for row in rows]

    assert [one[:2] for one in ddls()] == [("t", "ADD COLUMN"), ("o", "CREATE TABLE"), ("u", "RENAME TABLE")]
    assert [one[:2] for one in ddls(table="app.t")] == [("t", "ADD COLUMN"), ("u", "RENAME TABLE")]
    assert ddls(table="app.o")[0][2].startswith("CREATE TABLE")
    source = DdlSource({"log": log})
    stream = source.streamReader(source.schema())
    stream.prepareForTriggerAvailableNow()
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert sum(batch.num_rows for p in stream.partitions(start, end) for batch in stream.read(p)) == 3
    assert stream.latestOffset(end, stream.getDefaultReadLimit()) == end


def test_a_checkpoint_that_the_log_s_retention_has_overtaken(tmp_path: Path) -> None:
    """What is lost is not passed over in silence."""
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY)")
    sql.run("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)")
    log = sql.write(tmp_path / "log")
    stream = Stream(log, table="app.t", maxRowsPerTrigger="1")
    assert [row["id"] for row in stream.batch() or ()] == [1]
    late = Stream(log, {"ts": sql.start_ts - 10}, table="app.t")
    for work in (late.batch, lambda: late.rows({"ts": sql.start_ts - 10}, stream.at)):
        with pytest.raises(StartTsOutOfLog, match="lies before it") as lost:
            work()
        assert "lost" in lost.value.hint
    source = DdlSource({"log": log})
    ddls = source.streamReader(source.schema())
    with pytest.raises(StartTsOutOfLog, match="lies before it"):
        ddls.latestOffset({"ts": sql.start_ts - 10}, ddls.getDefaultReadLimit())
