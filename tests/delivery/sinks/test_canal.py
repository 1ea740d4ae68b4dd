"""Logs replayed into an entry store: one order over all tables, whole transactions, the bytes of the plain writer, however many tasks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from itertools import groupby
from pathlib import Path

import pytest

from tests.support.canal.client import PlainClient
from tests.support.canal.server_runs import ServerThread
from tests.support.changelog.loads import Loaded
from tests.support.changelog.logs import START
from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.feeds import NAMES, PARTITION_IDS, PARTITIONED, PLAIN, UNIQUE, World
from tidemill.changefeed.replay import replay
from tidemill.config.file import parse_config
from tidemill.delivery import plan
from tidemill.delivery.inputs.table_router import Settings
from tidemill.delivery.task import chunker
from tidemill.errors import ConfigError
from tidemill.protocols.canal.codes import EntryType, EventType
from tidemill.protocols.canal.entries import Change, EntryTable, transaction_entries
from tidemill.protocols.canal.parse import parse_entry
from tidemill.sinks.canal.store.position import Position, StoredEntry
from tidemill.sinks.canal.store.reader import EntryStoreReader
from tidemill.tidb.schema.model import TableInfo


@pytest.fixture
def several_items(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Divide even the smallest batch by every few rows, run its items here, in small chunks."""
    from tidemill.changefeed import replay as module
    from tidemill.delivery.inputs import log_source
    from tidemill.spark.local import LocalRunner

    def local(*_: object) -> LocalRunner:
        runner = LocalRunner()
        runner.parallelism = 5
        return runner

    monkeypatch.setattr(plan, "SMALL_BYTES", -1)
    monkeypatch.setattr(log_source, "SAMPLE_ROWS", 3)
    monkeypatch.setattr(chunker.Chunker.__init__, "__defaults__", (16, 32 << 20))
    monkeypatch.setattr(module, "EitherRunner", local)
    return iter(())


def settings(folder: Path, config: str = "") -> Settings:
    parsed = parse_config(config)
    return Settings("replay", parsed.sink_uri(f"canal://{folder}"), parsed, UTC)


def entries(folder: Path) -> list[StoredEntry]:
    reader = EntryStoreReader(str(folder))
    found = reader.read(Position(reader.begins(), 1 << 40), 1 << 30, 1 << 40)
    assert [entry.position for entry in found] == sorted({entry.position for entry in found})
    return found


def logical(info: int) -> int:
    return PARTITIONED if info in PARTITION_IDS else info


def wanted(world: World) -> list[bytes]:
    """The entries of all transactions, by the plain writer."""
    ids = [PLAIN, UNIQUE, PARTITIONED]
    tables = [EntryTable("app", NAMES[i], TableInfo.from_json(world.infos[i]), UTC) for i in ids]
    made: list[bytes] = []
    for (commit, start), rows in groupby(world.rows, key=lambda c: (c.commit_ts, c.start_ts)):
        mine = [c for c in rows if logical(c.table_id) in ids]
        mine.sort(key=lambda c: 0 if c.value is None else 1 if c.old_value is not None else 2)
        changes = [Change(ids.index(logical(c.table_id)), c.key, c.value, c.old_value) for c in mine]
        if changes:
            made += [m.data for m in transaction_entries(tables, changes, server_id=1, start_ts=start, commit_ts=commit)]
    return made


def rows_in(found: list[StoredEntry]) -> list[tuple[int, str, int, str]]:
    """commit_ts, table, type and images of all rows."""
    rows = []
    for one in found:
        change = parse_entry(bytes(one.data)).change
        if change is not None:
            rows += [(one.position.commit_ts, one.table, one.event_type, repr(row)) for row in change.rows]
    return rows


def check_transactions(found: list[StoredEntry]) -> None:
    """Each entry but a DDL's stands between the begin and the end of its transaction."""
    inside = None
    for one in found:
        props = parse_entry(bytes(one.data)).header.props
        mine = (one.position.commit_ts, dict(props).get("start_ts"))
        match one.kind:
            case EntryType.TRANSACTIONBEGIN:
                assert inside is None
                inside = mine
            case EntryType.TRANSACTIONEND:
                assert inside == mine
                inside = None
            case _:
                assert one.is_ddl == (inside is None)
                assert one.is_ddl or inside == mine
    assert inside is None


@pytest.mark.parametrize("affinity", ["table", "key"])
@pytest.mark.usefixtures("several_items")
def test_the_entries_of_the_plain_writer(tmp_path: Path, affinity: str) -> None:
    world = World.make(seed=5)
    log = world.log(tmp_path / "log", partitions=3, segments=3, affinity=affinity)
    done = replay(log, settings(tmp_path / "store"))
    found = entries(tmp_path / "store")
    assert [bytes(one.data) for one in found] == wanted(world)
    check_transactions(found)
    assert sum(one.rows for one in found) == done.rows
    assert done.messages == len(found)


def test_as_many_tasks_as_one(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    world = World.make(seed=6, transactions=300, huge=100)
    log = world.log(tmp_path / "log", partitions=2, segments=2)
    replay(log, settings(tmp_path / "one"))
    request.getfixturevalue("several_items")
    replay(log, settings(tmp_path / "many"))
    one, many = entries(tmp_path / "one"), entries(tmp_path / "many")
    check_transactions(many)
    assert [one.position.commit_ts for one in one] == sorted(one.position.commit_ts for one in one)
    small = [e for e in one if e.position.commit_ts < START + 100]
    assert small
    assert many[: len(small)] == small
    assert sorted(rows_in(one)) == sorted(rows_in(many))
    assert len(list((tmp_path / "many" / "entries").glob("*/*.seg"))) > len(list((tmp_path / "one" / "entries").glob("*/*.seg")))


@pytest.mark.usefixtures("several_items")
def test_ddls_stand_behind_the_rows_of_their_ts(tmp_path: Path) -> None:
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE u (id INT PRIMARY KEY)")
    sql.run("INSERT INTO t VALUES (1, 1), (2, 2)", "INSERT INTO u VALUES (7)", "UPDATE t SET id = 3 WHERE id = 1")
    sql.run("ALTER TABLE t ADD COLUMN w INT", "INSERT INTO t VALUES (9, 9, 9)", "DROP TABLE u", "DELETE FROM t")
    done = replay(sql.write(tmp_path / "log", partitions=2), settings(tmp_path / "store"))
    found = entries(tmp_path / "store")
    check_transactions(found)
    told = [(e.table, EventType(e.event_type).name, e.rows) for e in found if e.kind is EntryType.ROWDATA]
    assert told == [
        ("t", "INSERT", 2),
        ("u", "INSERT", 1),
        ("t", "DELETE", 1),
        ("t", "INSERT", 1),
        ("t", "ALTER", 0),
        ("t", "INSERT", 1),
        ("u", "ERASE", 0),
        ("t", "DELETE", 3),
    ]
    assert done.ddls == 2
    assert EntryStoreReader(str(tmp_path / "store")).head() == done.to_ts


def test_filters_and_a_second_replay(tmp_path: Path) -> None:
    log = World.make(seed=7).log(tmp_path / "log")
    for _ in range(2):
        replay(log, settings(tmp_path / "store", "[filter]\nrules = ['app.t1']\n"))
        assert {e.table for e in entries(tmp_path / "store") if e.rows} == {"t1"}


def test_addresses(tmp_path: Path) -> None:
    config = parse_config("")
    uri = config.sink_uri("canal://127.0.0.1:11111/example?store=/data/c&start-ts=470616264291647489&get.wait=any&store-age=1h")
    assert uri.canal is not None
    assert (uri.canal.listen, uri.canal.destination, uri.canal.store) == ("127.0.0.1:11111", "example", "/data/c")
    assert (uri.canal.start_ts, uri.canal.any_wait, uri.canal.age_ms) == (470616264291647489, True, 3_600_000)
    for text in (
        "canal:///",
        "canal://h:1/",
        "canal://h:1/a/b",
        "canal://h:1,i:2/a",
        "canal:///x?store=/y",
        "canal:///x?get.wait=soon",
        "canal:///x?protocol=avro",
        "canal:///x?start-ts=never",
    ):
        with pytest.raises(ConfigError, match="sink URI"):
            config.sink_uri(text)
    with pytest.raises(ConfigError, match="store="):
        replay(World.make(transactions=3).log(tmp_path / "log"), Settings("replay", config.sink_uri("canal://h:1/a"), config, UTC))
    with pytest.raises(ConfigError, match="progress"):
        parse_config('progress = "table"').sink_uri("canal:///x")


@pytest.mark.usefixtures("several_items")
def test_tables_that_were_there_at_the_start(tmp_path: Path) -> None:
    loaded = Loaded(tmp_path)
    config = parse_config("force-replicate = true")
    uri = config.sink_uri(f"canal://{tmp_path}/store?create-tables=true")
    done = replay(loaded.log, Settings("replay", uri, config, UTC))
    found = entries(tmp_path / "store")
    check_transactions(found)
    assert sum(one.rows for one in found) == done.rows
    assert {one.table for one in found if one.is_ddl} >= {"t", "p", "empty"}
    first = [one.table for one in found if one.is_ddl].index("t")
    assert first < next(i for i, one in enumerate(found) if one.table == "t" and one.rows)
    with ServerThread(f"{tmp_path}/store") as server, PlainClient(server.address) as fresh:  # a new client begins with them
        assert fresh.get(1 << 20)[1] == [bytes(one.data) for one in found]
