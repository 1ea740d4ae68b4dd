"""`create-tables`: a consumer that starts with nothing has the upstream's tables in the end, through every protocol that sends DDLs."""

from __future__ import annotations

import json
from datetime import UTC
from pathlib import Path

import pytest

from tests.support.changelog.loads import BEFORE, Loaded
from tests.support.changelog.sqllogs import SqlLog
from tests.support.consumer.upstreams import truth
from tests.support.delivery.runs import audited
from tests.support.schema import schemas as s
from tests.support.servers.s3 import filesystem, make_bucket, s3_server  # noqa: F401
from tidemill.changefeed.replay import Delivered, replay
from tidemill.changelog.initial_load import Plan, PlannedTable
from tidemill.config.file import parse_config
from tidemill.consumer.tables.sqlite import MEMORY, SqliteTables
from tidemill.delivery.inputs.bootstrap_ddl import creating
from tidemill.delivery.inputs.table_router import Settings
from tidemill.delivery.zone import parse_zone
from tidemill.demo.audit import Audit
from tidemill.demo.compare import compare
from tidemill.demo.delivered import from_files, from_jsonl
from tidemill.errors import StartTsOutOfLog
from tidemill.protocols import simple
from tidemill.protocols.simple.events import DdlMessage, RowEvent
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.tracking.history import SchemaHistory
from tidemill.tidb.schema.tracking.versions import TableVersion


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return Loaded(tmp_path_factory.mktemp("loaded"))


def settings(uri: str, toml: str = "") -> Settings:
    config = parse_config(toml)
    return Settings("t", config.sink_uri(uri), config, parse_zone("+00:00"))


def rebuilt(audit: Audit) -> SqliteTables:
    tables = SqliteTables(MEMORY)
    audit.rebuild(tables)
    return tables


PROTOCOLS = {
    "open": "protocol=open-protocol&partition-num=3",
    "canal-json": "protocol=canal-json&enable-tidb-extension=true",
}


@pytest.mark.parametrize(("scheme", "protocol"), [("messages", "open"), ("messages", "canal-json"), ("file", "open")])
def test_a_consumer_that_starts_with_nothing_ends_equal(loaded: Loaded, tmp_path: Path, protocol: str, scheme: str) -> None:
    out = tmp_path / "out"
    done = replay(loaded.log, settings(f"{scheme}://{out}?{PROTOCOLS[protocol]}&create-tables=true"))
    assert done.from_ts == loaded.start - 2
    audit = audited(from_jsonl(out) if scheme == "messages" else from_files(out))
    assert audit.problems == [], "DDLs come before the rows that they are for, and nothing at or below a resolved ts after it"
    made = [(d.ts, d.query) for d in sorted(audit.ddls, key=lambda d: d.ts) if d.ts in (loaded.start - 1, loaded.again - 1)]
    first = {q for ts, q in made if ts == loaded.start - 1}
    assert {q.split("(")[0].strip() for q in first if q.startswith("CREATE TABLE")} == {
        f"CREATE TABLE IF NOT EXISTS {name}" for name in ("`app`.`t`", "`app`.`p`", "`app`.`empty`", "`other`.`u`")
    }
    again = {q for ts, q in made if ts == loaded.again - 1}
    assert again == {q for q in first if "EXISTS `app` " in q or "`app`.`t`" in q}, "the table that is read again, and its database"
    assert len(again) == 2
    tables = rebuilt(audit)
    expected = {name: rows for name, rows in truth(loaded.sql.tables_at(loaded.end)).items() if name[1] != "keyless"}
    assert [str(d) for d in compare(tables, expected)] == []  # type: ignore[arg-type]
    assert len(expected) == 4


def test_without_it_nothing_is_created(loaded: Loaded, tmp_path: Path) -> None:
    done = replay(loaded.log, settings(f"messages://{tmp_path}/out?protocol=open-protocol"))
    assert done.from_ts == loaded.start - 1
    audit = audited(from_jsonl(tmp_path / "out"))
    assert {d.ts for d in audit.ddls} & {loaded.start - 1, loaded.again - 1} == set()


def test_filters_and_routes_count_for_what_creates_tables_too(loaded: Loaded, tmp_path: Path) -> None:
    toml = """
    [filter]
    rules = ["app.*", "other.u", "!app.p"]
    [[filter.event-filters]]
    matcher = ["app.empty"]
    ignore-event = ["create table"]
    [sink]
    create-tables = true
    [[sink.dispatchers]]
    matcher = ["other.*"]
    topic = "{schema}_{table}"
    """
    replay(loaded.log, settings(f"messages://{tmp_path}/out?protocol=open-protocol", toml), target_ts=loaded.start)
    audit = audited(from_jsonl(tmp_path / "out"))
    assert audit.problems == []
    names = sorted(q.partition("(")[0].strip() for q in (d.query for d in audit.ddls) if q.startswith("CREATE TABLE"))
    assert names == ["CREATE TABLE IF NOT EXISTS `app`.`t`", "CREATE TABLE IF NOT EXISTS `other`.`u`"]
    homes = {source[0]: {d.table for d in p.ddls if d.table} for source, p in audit.partitions.items()}
    assert homes["other_u"] == {"u"}
    assert homes["tidemill"] == {"t"}
    assert {(r.table, len(r.after)) for r in audit.rows} == {("t", 3), ("u", 2)}


def test_simple_tells_the_definition(loaded: Loaded, tmp_path: Path) -> None:
    replay(loaded.log, settings(f"messages://{tmp_path}/out?protocol=simple&create-tables=true"), target_ts=loaded.start)
    found = [simple.decode(m.value or b"") for m in from_jsonl(tmp_path / "out")]
    made = [e for e in found if isinstance(e, DdlMessage) and e.query.startswith("CREATE TABLE")]
    told = {e.table.table: e.table.version for e in made if e.table is not None}
    assert told.keys() == {"t", "p", "empty", "u"}
    rows = [e for e in found if isinstance(e, RowEvent)]
    assert {(r.table, r.schema_version) for r in rows} == {(table, told[table]) for table in ("t", "p", "u")}


def test_files_of_tables_begin_with_their_schema_files(loaded: Loaded, tmp_path: Path) -> None:
    out = tmp_path / "files"
    replay(loaded.log, settings(f"file://{out}?protocol=csv&date-separator=none&create-tables=true"), target_ts=loaded.start)
    definitions = {tuple(f.relative_to(out).parts[:2]): json.loads(f.read_text()) for f in out.glob("*/*/meta/schema_*.json")}
    assert {d["TableVersion"] for d in definitions.values()} == {loaded.start - 1}
    assert set(definitions) == {("app", "t"), ("app", "p"), ("app", "empty"), ("other", "u")}
    assert all(d["Query"].startswith("CREATE TABLE IF NOT EXISTS") for d in definitions.values())
    rows = list(out.glob("app/t/*/*.csv"))
    assert [f.parent.name for f in rows] == [str(loaded.start - 1)], "the rows are under the version that was created"


def test_tables_are_created_before_their_rows_are_all_there(tmp_path: Path) -> None:
    """Delivery waits for the parts; what was not asked for starts there as well."""
    one = Loaded.__new__(Loaded)
    one.sql = SqlLog(*BEFORE)
    one.start = one.sql.start_ts
    one.log = one.sql.write(tmp_path / "log")
    one.load(one.start, None, parts=1)
    uri = f"messages://{tmp_path}/out?protocol=open-protocol&create-tables=true"
    with pytest.raises(StartTsOutOfLog, match="are not all in"):
        replay(one.log, settings(uri))
    assert {d.ts for d in audited(from_jsonl(tmp_path / "out")).ddls} == {one.start - 1}
    one.load(one.start, None)
    late: Delivered = replay(one.log, settings(uri), start_ts=one.start - 1)
    assert late.ddls == 0


def test_who_is_referenced_comes_first() -> None:
    def key(name: str) -> s.Json:
        return {"fk_name": {"O": "f"}, "ref_table": {"O": name}, "ref_cols": [{"O": "a"}], "cols": [{"O": "a"}], "state": 5}

    history = SchemaHistory.bootstrap(100, s.job_table_pairs())
    tables = [s.table(10, "a", fk_info=[key("b"), key("A")]), s.table(11, "b", fk_info=[key("C")]), s.table(12, "c", fk_info=[key("a")])]
    history.advance([s.put_database(101, 102, s.database(2, "d")), *(s.put_table(103, 104, 2, t) for t in tables)], 110)
    plan = Plan(200, tuple(PlannedTable(i, "", ()) for i in (10, 11, 12, 99)))
    events: list[DdlEvent] = creating(plan, history.snapshot(110), UTC, first=False)
    assert [(e.table, e.ts, e.seq) for e in events] == [("", 199, 0), ("c", 199, 1), ("b", 199, 2), ("a", 199, 3)]
    after: list[TableVersion | None] = [e.after for e in events]
    assert after[0] is None
    assert after[1] is history.snapshot(110).tables[12]


def test_a_log_in_an_object_store(loaded: Loaded, tmp_path: Path, s3_server: str) -> None:  # noqa: F811
    """Plans and parts are objects like segments; what is delivered is the same."""
    make_bucket(s3_server, "loaded")
    fs = filesystem(s3_server)
    root = Path(loaded.log)
    for file in root.rglob("*"):
        if file.is_file():
            with fs.open_output_stream(f"loaded/log/{file.relative_to(root)}") as out:
                out.write(file.read_bytes())
    url = f"s3://test:test@loaded/log?endpoint_override={s3_server.partition('://')[2]}&scheme=http&region=us-east-1"
    uri = f"messages://{tmp_path}/%s?protocol=open-protocol&create-tables=true"
    replay(url, settings(uri % "s3"))
    replay(loaded.log, settings(uri % "local"))
    assert sorted((tmp_path / "s3").read_text().splitlines()) == sorted((tmp_path / "local").read_text().splitlines())
