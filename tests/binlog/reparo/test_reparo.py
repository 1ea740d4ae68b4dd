"""A Drainer's files brought into a real MariaDB, and printed."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone
from pathlib import Path

import pytest

from tests.support.binlog.effects import differing, entries, rows_of, upstream
from tests.support.servers.mariadb import MariaDb
from tidemill import tso
from tidemill.binlog.drainer.records.files import RecordFiles
from tidemill.binlog.filters import TableName
from tidemill.binlog.outputs import pb
from tidemill.binlog.reparo.reparo import Result, reparo
from tidemill.binlog.reparo.settings import DestDb, ReparoSettings, read_file
from tidemill.cli.main import main
from tidemill.errors import ConfigError, MalformedMessage, SchemaError
from tidemill.secret import Secret
from tidemill.wire import pb_binlog_pb2


def written(folder: Path, stamps: set[int] | None = None, zone: timezone = UTC) -> Path:
    """The entries as files."""
    files, found = RecordFiles(folder, full=200_000), entries()[1]
    for ts in sorted(stamps if stamps is not None else found):
        files.append(pb.encode(found[ts], zone))
    files.close()
    return folder


def applied(db: MariaDb, folder: Path, zone: timezone = UTC, **more: object) -> Result:
    to = DestDb("127.0.0.1", db.port)
    settings = ReparoSettings(str(folder), dest_type="mysql", dest_db=to, **more)  # type: ignore[arg-type]
    return reparo(settings.checked(zone), zone, print)


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "batch", "hours"), [(16, 20, 0), (1, 1000, 8)])
def test_a_drainers_files_give_the_rows_that_the_real_drainer_wrote(
    mariadb: MariaDb, tmp_path: Path, workers: int, batch: int, hours: int
) -> None:
    """In safe mode, as the recording is: rows that it updates may come from before it began."""
    zone = timezone(timedelta(hours=hours))
    want, taken = upstream(mariadb)
    result = applied(mariadb, written(tmp_path, taken, zone), zone, worker_count=workers, txn_batch=batch, safe_mode=True)
    got = rows_of(mariadb)
    assert differing(want, got) == set()
    assert len(want) > 45
    assert result.transactions + result.ddls == len(taken)
    assert result.last_ts == max(taken)


def small(folder: Path) -> list[int]:
    """Files with a database and two tables. Returns the commit ts: database, t, u, and the rows 1 to 4 of t, row 1 of u in between."""
    files = RecordFiles(folder)
    for ts, text in ((10, "create database d;"), (20, "use `d`; create table t (id int primary key, v varchar(9));")):
        files.append(pb_binlog_pb2.Binlog(tp=pb_binlog_pb2.DDL, commit_ts=ts, ddl_query=text.encode()).SerializeToString())
    files.append(
        pb_binlog_pb2.Binlog(
            tp=pb_binlog_pb2.DDL, commit_ts=30, ddl_query=b"use `d`; create table u (id int primary key);;"
        ).SerializeToString()
    )
    for ts, table, key in ((40, "t", 1), (50, "t", 2), (60, "u", 1), (70, "t", 3), (80, "t", 4)):
        files.append(inserted(ts, table, key))
    files.close()
    return [10, 20, 30, 40, 50, 60, 70, 80]


def inserted(ts: int, table: str, key: int) -> bytes:
    message = pb_binlog_pb2.Binlog(tp=pb_binlog_pb2.DML, commit_ts=ts)
    event = message.dml_data.events.add(schema_name="d", table_name=table, tp=pb_binlog_pb2.Insert)
    event.row.append(pb_binlog_pb2.Column(name="id", tp=b"\x03", mysql_type="int", value=bytes([8, 2 * key])).SerializeToString())
    if table == "t":
        event.row.append(pb_binlog_pb2.Column(name="v", tp=b"\x0f", mysql_type="varchar", value=b"\x02\x02a").SerializeToString())
    return message.SerializeToString()


def test_only_what_lies_between_start_and_stop_is_applied_both_included(mariadb: MariaDb, tmp_path: Path) -> None:
    mariadb.clear()
    small(tmp_path)
    assert applied(mariadb, tmp_path, stop_tso=50) == Result(2, 3, 50)
    assert mariadb.rows("SELECT id, v FROM d.t ORDER BY id") == [(1, "a"), (2, "a")]
    assert applied(mariadb, tmp_path, start_tso=51, stop_tso=79) == Result(2, 0, 70)
    assert mariadb.rows("SELECT id FROM d.t ORDER BY id") == [(1,), (2,), (3,)]
    assert mariadb.rows("SELECT id FROM d.u") == [(1,)]


def test_in_safe_mode_files_may_be_applied_again(mariadb: MariaDb, tmp_path: Path) -> None:
    mariadb.clear()
    small(tmp_path)
    for _ in range(2):
        applied(mariadb, tmp_path, safe_mode=True)
    assert mariadb.rows("SELECT COUNT(*) FROM d.t") == [(4,)]


def keyless(folder: Path) -> Path:
    """Files with two rows of a table with a key, and three of one without, of which two are the same."""
    files = RecordFiles(folder)
    for ts, text in (
        (10, "create database d"),
        (20, "use `d`; create table t (id int primary key, v varchar(9))"),
        (30, "create table d.u (id int)"),
    ):
        files.append(pb_binlog_pb2.Binlog(tp=pb_binlog_pb2.DDL, commit_ts=ts, ddl_query=text.encode()).SerializeToString())
    for ts, table, key in ((40, "t", 1), (50, "u", 7), (60, "u", 7), (70, "t", 2), (80, "u", 8)):
        files.append(inserted(ts, table, key))
    files.close()
    return folder


@pytest.mark.parametrize("safe", [False, True])
def test_rows_without_a_key_are_not_applied_twice(mariadb: MariaDb, tmp_path: Path, safe: bool) -> None:
    mariadb.clear()
    keyless(tmp_path)
    applied(mariadb, tmp_path, safe_mode=safe, stop_tso=60)
    with pytest.raises(SchemaError, match=r"rows of d\.u up to .* were applied before, and it has no key") as refused:
        applied(mariadb, tmp_path, safe_mode=safe)
    assert "-start-tso 61" in refused.value.hint
    assert mariadb.rows("SELECT id FROM d.u") == [(7,), (7,)]
    applied(mariadb, tmp_path, safe_mode=safe, start_tso=61)
    assert mariadb.rows("SELECT id FROM d.u ORDER BY id") == [(7,), (7,), (8,)]
    mariadb.run("DELETE FROM d.u")
    applied(mariadb, tmp_path, safe_mode=True)
    assert mariadb.rows("SELECT id FROM d.u ORDER BY id") == [(7,), (7,), (8,)]
    with pytest.raises(SchemaError, match="would be there twice") as refused:
        applied(mariadb, tmp_path, safe_mode=True)
    mariadb.run(refused.value.hint[refused.value.hint.index("DELETE FROM") :].rstrip("."))
    applied(mariadb, tmp_path, safe_mode=True)
    assert mariadb.rows("SELECT COUNT(*) FROM d.u") == [(6,)]  # who says so gets them


def test_what_a_drainer_wrote_again_after_a_crash_is_left_out(mariadb: MariaDb, tmp_path: Path) -> None:
    mariadb.clear()
    small(tmp_path)
    files = RecordFiles(tmp_path)
    for ts, key in ((70, 3), (80, 4), (90, 5)):
        files.append(inserted(ts, "t", key))
    files.close()
    assert applied(mariadb, tmp_path) == Result(6, 3, 90)


@pytest.mark.parametrize(
    ("filters", "want"),
    [
        ({"do_tables": (TableName("d", "t"),)}, {40, 50, 70, 80, 20}),
        ({"do_schemas": ("~^D$",), "ignore_tables": (TableName("d", "~^t"),)}, {10, 30, 60}),
        ({"ignore_schemas": ("d",)}, set()),
    ],
)
def test_filters_count_for_rows_and_ddls(tmp_path: Path, filters: dict[str, object], want: set[int]) -> None:
    small(tmp_path)
    shown: list[str] = []
    reparo(ReparoSettings(str(tmp_path), **filters).checked(UTC), UTC, shown.append)  # type: ignore[arg-type]
    assert {int(line.split()[1]) for line in shown if line.startswith("commit")} == want


def test_a_broken_record_is_told_with_file_and_offset_and_what_lies_before_is_applied(mariadb: MariaDb, tmp_path: Path) -> None:
    mariadb.clear()
    small(tmp_path)
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(bytes(data))
    place = len(data) - len(inserted(80, "t", 4)) - 16
    with pytest.raises(MalformedMessage, match=rf"{path.name}: the record at byte {place} does not fit its checksum"):
        applied(mariadb, tmp_path)
    assert mariadb.rows("SELECT id FROM d.t ORDER BY id") == [(1,), (2,), (3,)]


@pytest.mark.parametrize(("cut", "text"), [(-3, r"ends at byte \d+, within the record at byte \d+"), (0, r"no record begins at byte 0")])
def test_a_file_that_ends_too_early_or_is_another_is_told(tmp_path: Path, cut: int, text: str) -> None:
    small(tmp_path)
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    path.write_bytes(data[:cut] if cut else b"x" * 100)
    with pytest.raises(MalformedMessage, match=f"{path.name}.*{text}"):
        reparo(ReparoSettings(str(tmp_path)).checked(UTC), UTC, lambda line: None)


def test_rows_of_a_table_that_is_not_there_are_told_with_its_name(mariadb: MariaDb, tmp_path: Path) -> None:
    mariadb.clear()
    small(tmp_path)
    with pytest.raises(SchemaError, match=r"d\.t, which is not there"):
        applied(mariadb, tmp_path, start_tso=40)


def test_the_command_prints_and_reads_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "data"
    small(folder)
    config = tmp_path / "reparo.toml"
    config.write_text(f'data-dir = "{folder}"\nstop-tso = 40\n[[replicate-do-table]]\ndb-name = "d"\ntbl-name = "t"\n')
    with pytest.raises(SystemExit) as ended:
        main(["reparo", "-config", str(config)])
    assert ended.value.code == 0
    out = capsys.readouterr().out.splitlines()
    assert [line for line in out if not line.startswith("commit")] == [
        "  DDL in d: create table t (id int primary key, v varchar(9))",
        "  INSERT d.t (id=1, v='a')",
    ]


def test_the_real_files_keys_are_read_and_others_stop_the_start(tmp_path: Path) -> None:
    path = tmp_path / "reparo.toml"
    path.write_text(
        'data-dir = "x"\nlog-rotate = "hour"\nstart-datetime = "2018-02-28 12:12:12"\ndest-type = "mysql"\n'
        "txn-batch = 5\nworker-count = 3\n"
        'safe-mode = true\nreplicate-do-db = ["~^b.*", "s1"]\nreplicate-ignore-db = ["c"]\n[dest-db]\nhost = "h"\nport = 3309\n'
        'user = "u"\npassword = "secret"\n[[replicate-ignore-table]]\ndb-name = "d"\ntbl-name = "~^a.*"\n'
    )
    found = ReparoSettings(**read_file(path)).checked(timezone(timedelta(hours=8)))
    assert (found.dest_db, found.do_schemas, found.ignore_schemas) == (
        DestDb("h", 3309, "u", Secret("password", "secret")),
        ("~^b.*", "s1"),
        ("c",),
    )
    assert (found.txn_batch, found.worker_count, found.safe_mode, found.ignore_tables) == (5, 3, True, (TableName("d", "~^a.*"),))
    assert tso.physical_ms(found.start_tso) == 1_519_791_132_000
    assert "secret" not in repr(found)
    for text in ("x = 1", "txn-batch = 'a'", "[dest-db]\npassword = 5", "replicate-do-db = 5"):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"reparo\.toml"):
            read_file(path)


def test_a_folder_without_files_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "missing"):
        with pytest.raises(ConfigError, match=name):
            reparo(ReparoSettings(str(tmp_path / name)), UTC, print)
