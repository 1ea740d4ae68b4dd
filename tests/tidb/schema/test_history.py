"""What SchemaHistory makes of made-up streams: steps, rollbacks, old lists of jobs, odd orders."""

from __future__ import annotations

import pytest

from tests.support.schema import schemas as s
from tests.support.schema.histories import DB, DONE, RUNNING, T1, T2, begun, comment, events, named, pairs
from tidemill.errors import MalformedRow, SchemaError
from tidemill.protocols.simple.encode import ddl_message
from tidemill.tidb import keys
from tidemill.tidb.schema.codes import Action, JobState
from tidemill.tidb.schema.tracking.history import SchemaChange, SchemaHistory, job_table_id


def test_bootstrap_reads_users_tables_only() -> None:
    history = begun(s.table(T1, "t"), s.table(T2, "p", partition=s.partition([20, 21])))
    snapshot = history.snapshot(100)
    assert {version.name for version in snapshot.tables.values()} == {("d", "t"), ("d", "p")}
    assert set(snapshot.by_physical) == {T1, 20, 21}
    assert snapshot.by_name["d", "p"].table_id == T2
    assert snapshot.databases[DB].name == "d"
    assert snapshot.retired == set()
    assert (history.start_ts, history.resolved_ts, history.schema_version) == (100, 100, 5)
    assert history.job_table_ids == (keys.DDL_JOB_TABLE_ID,)


def test_a_table_without_its_database_is_an_error() -> None:
    with pytest.raises(SchemaError, match="database 9"):
        SchemaHistory.bootstrap(1, [(keys.table_key(9, 1), s.text(s.table(1, "t")))])


def test_a_snapshot_outside_the_history_is_an_error() -> None:
    history = begun()
    for ts in (99, 101):
        with pytest.raises(SchemaError, match="the history"):
            history.snapshot(ts)


def test_one_step() -> None:
    history = begun(comment("old"))
    done = named(1, Action.MODIFY_TABLE_COMMENT, DONE, "alter table t comment = 'new'")
    history.advance([s.put_table(105, 110, DB, comment("new")), s.put_job(105, 110, done)], 120)
    (event,) = events(history)
    assert (event.ts, event.done_ts, event.type, event.schema, event.table) == (110, 110, 17, "d", "t")
    assert event.query == "ALTER TABLE `t` COMMENT = 'new'"
    assert (event.before.info.comment, event.after.info.comment) == ("old", "new")  # type: ignore[union-attr]
    assert history.snapshot(109).tables[T1].info.comment == "old"
    assert history.snapshot(110).tables[T1].info.comment == "new"
    assert history.snapshot(109).tables[T1].to_ts == 110
    assert history.barriers(100, 109) == []
    assert history.barriers(100, 110) == history.barriers(109, 120) == [110]


def test_a_ddl_is_given_before_its_job_is_done() -> None:
    history = begun(s.table(T1, "t"))
    dropping = s.table(T1, "t", [s.column(1, "a", 0, flag=4099), s.column(2, "b", 1, state=2)], pk_is_handle=True)
    query = "alter table t drop column b"
    history.advance([s.put_job(101, 102, named(1, Action.DROP_COLUMN, JobState.QUEUEING, query))], 102)
    history.advance([s.put_table(103, 104, DB, dropping), s.put_job(103, 104, named(1, Action.DROP_COLUMN, RUNNING, query))], 105)
    (event,) = events(history)
    assert (event.ts, event.done_ts, event.query) == (104, 0, "ALTER TABLE `t` DROP COLUMN `b`")
    assert [c.name for c in event.after.info.output_columns] == ["a"]  # type: ignore[union-attr]
    history.advance([s.put_job(106, 107, named(1, Action.DROP_COLUMN, DONE, query))], 108)
    assert [(e.ts, e.done_ts) for e in events(history)] == [(104, 107)]


def test_a_job_that_rolls_back_sends_nothing() -> None:
    history = begun(s.table(T1, "t"))
    adding = s.table(T1, "t", index_info=[s.index(1, "u", [1], unique=True, state=1)])
    query = "alter table t add unique key u(b)"
    states = [JobState.QUEUEING, RUNNING, RUNNING, JobState.ROLLING_BACK, JobState.ROLLBACK_DONE]
    changes = [s.put_job(110 + i, 110 + i, named(1, Action.ADD_INDEX, state, query)) for i, state in enumerate(states)]
    changes += [s.put_table(111, 111, DB, adding), s.put_table(114, 114, DB, s.table(T1, "t")), s.drop_job(115, 115, 1)]
    history.advance(changes, 120)
    assert events(history) == []
    assert history.barriers(100, 120) == []


def test_a_cancelled_job_sends_nothing() -> None:
    history = begun(s.table(T1, "t"))
    history.advance([s.put_job(110, 110, named(1, Action.ADD_COLUMN, JobState.CANCELLED, "alter table t add column c int"))], 120)
    assert events(history) == []


def test_what_is_undone_while_rolling_back_changes_tables_only() -> None:
    """Not seen with TiDB: a step that is taken back makes no event of its own."""
    history = begun(comment("old"))
    change = s.put_table(110, 110, DB, comment("new"))
    history.advance([change, s.put_job(110, 110, named(1, Action.MODIFY_TABLE_COMMENT, JobState.ROLLING_BACK))], 120)
    assert events(history) == []
    assert history.snapshot(120).tables[T1].info.comment == "new"


def test_done_without_a_schema_version_did_nothing() -> None:
    history = begun(s.table(T1, "t"))
    history.advance([s.put_job(110, 110, named(1, Action.MODIFY_TABLE_COMMENT, DONE, schema_version=0))], 120)
    assert events(history) == []


@pytest.mark.parametrize("action", [Action.ALTER_SEQUENCE, Action.LOCK_TABLE, Action.CACHE_TABLE, Action.SHARD_ROW_ID, 230])
def test_ddls_that_are_not_delivered_change_tables_all_the_same(action: int) -> None:
    history = begun(comment("old"))
    done = named(1, action, DONE, "whatever")  # type: ignore[arg-type]
    history.advance([s.put_table(110, 110, DB, comment("new")), s.put_job(110, 110, done)], 120)
    assert events(history) == []
    assert history.snapshot(110).tables[T1].info.comment == "new"


def test_where_replicas_are_placed_begins_no_version() -> None:
    """The next DDL names the version before it, as TiCDC does, for which there was no such DDL."""
    before = s.table(T1, "t", partition=s.partition([20, 21]), update_timestamp=90)
    policy = {"policy_ref_info": {"id": 1, "name": {"O": "pp", "L": "pp"}}}
    definitions = [{**definition, **policy} for definition in before["partition"]["definitions"]]
    placed = {**before, **policy, "partition": {**before["partition"], "definitions": definitions}, "update_timestamp": 108}
    after = {**placed, "comment": "new", "update_timestamp": 118}
    history = begun(before)
    history.advance([s.put_table(108, 110, DB, placed), s.put_job(108, 110, named(1, Action.ALTER_PARTITION_PLACEMENT, DONE))], 112)
    done = named(2, Action.MODIFY_TABLE_COMMENT, DONE, "alter table t comment = 'new'", schema_version=7)
    history.advance([s.put_table(118, 120, DB, after), s.put_job(118, 120, done)], 122)
    (event,) = events(history)
    assert event.before is not None
    assert event.after is not None
    assert (event.before.info.update_ts, event.after.info.update_ts) == (90, 118)
    assert f'"preTableSchema":{{"schema":"d","table":"t","tableID":{T1},"version":90,' in ddl_message(event, 0).decode()
    assert history.barriers(100, 122) == [120]


def test_a_meta_change_without_a_job_is_a_version_without_an_event() -> None:
    history = begun(comment("old"))
    history.advance([s.put_table(105, 110, DB, comment("new"))], 120)
    assert events(history) == []
    assert history.barriers(100, 120) == [110]


def test_a_repeated_end_is_one_event() -> None:
    history = begun(comment("old"))
    done = named(1, Action.MODIFY_TABLE_COMMENT, DONE, "alter table t comment = 'new'")
    history.advance([s.put_table(110, 110, DB, comment("new")), s.put_job(110, 110, done), s.put_job(112, 112, done)], 120)
    assert len(events(history)) == 1


def test_ddls_of_one_commit_ts_are_ordered_by_schema_version() -> None:
    history = begun(comment("old"), s.table(T2, "u"))
    first = named(1, Action.MODIFY_TABLE_COMMENT, DONE, "alter table t comment = 'x'", schema_version=8)
    second = named(2, Action.MODIFY_TABLE_COMMENT, DONE, "alter table u comment = 'x'", schema_version=7, table_id=T2)
    changes = [s.put_table(105, 110, DB, comment("x")), s.put_job(105, 110, first)]
    changes += [s.put_table(106, 110, DB, s.table(T2, "u", comment="x")), s.put_job(106, 110, second)]
    history.advance(changes, 120)
    assert [event.table for event in events(history)] == ["u", "t"]
    (switch,) = history.next_table_changes(100, 120)
    assert {version.table for version in switch.begun} == {"t", "u"}


def test_two_versions_at_one_commit_ts_are_one_switch() -> None:
    history = begun(comment("0"))
    history.advance([s.put_table(105, 110, DB, comment("1")), s.put_table(106, 110, DB, comment("2"))], 120)
    (switch,) = history.next_table_changes(100, 120)
    assert [v.info.comment for v in switch.ended] == ["0"]
    assert [v.info.comment for v in switch.begun] == ["2"]
    assert history.snapshot(110).tables[T1].info.comment == "2"


def test_a_table_made_and_dropped_at_one_commit_ts_never_was() -> None:
    history = begun()
    history.advance([s.put_table(105, 110, DB, s.table(T1, "t")), s.drop_table(106, 110, DB, T1)], 120)
    assert history.snapshot(120).tables == {}
    assert history.next_table_changes(100, 120)[0].added == ()


def test_renames_that_swap() -> None:
    """RENAME TABLE a TO t, b TO a, t TO b."""
    history = begun(s.table(T1, "a"), s.table(T2, "b"))
    named_pair = {"old_schema_id": DB, "new_schema_id": DB, "old_schema_name": {"O": "d"}}
    args = {
        "rename_table_infos": [
            {**named_pair, "table_id": T1, "old_table_name": {"O": "a"}, "new_table_name": {"O": "b"}},
            {**named_pair, "table_id": T2, "old_table_name": {"O": "b"}, "new_table_name": {"O": "a"}},
        ]
    }
    running = named(1, Action.RENAME_TABLES, RUNNING, "rename table a to t, b to a, t to b", raw_args=args)
    changes = [s.put_table(110, 110, DB, s.table(T1, "b")), s.put_table(110, 110, DB, s.table(T2, "a")), s.put_job(110, 110, running)]
    history.advance(changes, 120)
    assert [(e.seq, e.type, e.pre_table, e.table, e.query) for e in events(history)] == [
        (0, 14, "a", "b", "RENAME TABLE `d`.`a` TO `d`.`b`"),
        (1, 14, "b", "a", "RENAME TABLE `d`.`b` TO `d`.`a`"),
    ]
    assert history.snapshot(110).by_name["d", "a"].table_id == T2


RENAMES = [
    ("a to tmp, b2 to a, tmp to b", ["a b", "b2 a"]),
    ("b to c, a to b", ["b c", "a b"]),
    ("a to tmp, b to c, tmp to b", ["b c", "a b"]),
    ("a to tmp1, b to tmp2, c to d, tmp2 to c, tmp1 to b", ["c d", "b c", "a b"]),
    ("a to tmp, b to a, tmp to b", ["a b", "b a"]),
    ("a to tmp, b to a, c to b, tmp to c", ["a c", "b a", "c b"]),
    ("a to tmp, tmp to a", []),
    ("a to tmp, tmp to a, b to x", ["b x"]),
    ("a to tmp, tmp to A", ["a A"]),
    ("a to x, b to y", ["a x", "b y"]),
]


@pytest.mark.parametrize(("pairs", "told"), RENAMES)
@pytest.mark.parametrize("meta", [True, False])
def test_renames_of_tables_that_change_places(pairs: str, told: list[str], meta: bool) -> None:
    """An event a table, from its first name to its last, each to a name that is free, but in a circle."""
    started = {"a": T1, "b": 12, "c": 13, "b2": 14}
    tables = dict(started)
    infos = []
    for pair in pairs.split(", "):
        old, new = pair.split(" to ")
        tables[new] = tables.pop(old)
        names = {"old_table_name": {"O": old}, "new_table_name": {"O": new}}
        infos.append({"old_schema_id": DB, "new_schema_id": DB, "old_schema_name": {"O": "d"}, "table_id": tables[new], **names})
    history = begun(*(s.table(i, name) for name, i in started.items()))
    after = [s.table(i, name) for name, i in tables.items()]
    job = named(1, Action.RENAME_TABLES, DONE, f"rename table {pairs}", raw_args={"rename_table_infos": infos}, table_infos=after)
    history.advance([*(s.put_table(110, 110, DB, info) for info in after if meta), s.put_job(110, 110, job)], 120)
    found = events(history)
    assert [f"{event.pre_table} {event.table}" for event in found] == told
    assert [event.query for event in found] == ["RENAME TABLE `d`.`{}` TO `d`.`{}`".format(*each.split()) for each in told]
    assert [event.seq for event in found] == list(range(len(told)))
    assert {event.table: event.table_id for event in found} == {each.split()[1]: tables[each.split()[1]] for each in told}
    assert history.snapshot(120).by_name.keys() == {("d", name) for name in tables}


@pytest.mark.parametrize(
    ("query", "printed"),
    [
        ("rename table t to e.t", "RENAME TABLE `d`.`t` TO `e`.`t`"),
        ("alter table t rename e.t", "RENAME TABLE `d`.`t` TO `e`.`t`"),
        ("rename table d.t to t", "RENAME TABLE `d`.`t` TO `t`"),
        ("alter table d.t rename to e.t", "ALTER TABLE `d`.`t` RENAME AS `e`.`t`"),
    ],
)
def test_a_rename_into_another_database_names_the_old_one(query: str, printed: str) -> None:
    history = begun(s.table(T1, "t"))
    changes = [s.put_database(105, 105, s.database(3, "e"))]
    changes += [s.drop_table(110, 110, DB, T1), s.put_table(110, 110, 3, s.table(T1, "t"))]
    changes += [s.put_job(110, 110, named(1, Action.RENAME_TABLE, RUNNING, query))]
    history.advance(changes, 120)
    (event,) = events(history)
    assert (event.pre_schema, event.schema, event.table_id) == ("d", "e", T1)
    assert (event.query, event.raw_query) == (printed, query)
    assert history.next_table_changes(100, 120)[0].added == ()


@pytest.mark.parametrize(
    ("query", "source", "printed"),
    [
        ("create table d.u like t", "e", "CREATE TABLE `d`.`u` LIKE `e`.`t`"),
        ("create table if not exists d.u like T", "e", "CREATE TABLE IF NOT EXISTS `d`.`u` LIKE `e`.`T`"),
        ("create table d.u like t", "d", "CREATE TABLE `d`.`u` LIKE `t`"),
        ("create table u like e.t", "e", "CREATE TABLE `u` LIKE `e`.`t`"),
    ],
)
def test_a_table_like_one_of_another_database_names_it(query: str, source: str, printed: str) -> None:
    history = begun(s.table(T1, "t"))
    job = named(1, Action.CREATE_TABLE, DONE, query, table_id=T2, table_infos=[s.table(T2, "u")])
    job["involving_schema_info"] = [{"database": "d", "table": "u"}, {"database": source, "table": "t", "mode": 1}]
    history.advance([s.put_table(110, 110, DB, s.table(T2, "u")), s.put_job(110, 110, job)], 120)
    (event,) = events(history)
    assert (event.schema, event.table, event.query, event.raw_query) == ("d", "u", printed, query)


def test_a_dropped_database_takes_its_tables() -> None:
    history = begun(s.table(T1, "t"), s.table(T2, "u"))
    dropped = named(1, Action.DROP_SCHEMA, DONE, "drop database d", table_id=0)
    history.advance([s.drop_database(110, 110, DB), s.drop_table(110, 110, DB, T1), s.put_job(110, 110, dropped)], 120)
    (event,) = events(history)
    assert (event.schema, event.table, event.table_id, event.before, event.query) == ("d", "", 0, None, "DROP DATABASE `d`")
    assert history.snapshot(110).tables == {}
    assert history.snapshot(110).databases.keys() == {1}
    assert history.snapshot(109).databases.keys() == {1, DB}
    assert history.snapshot(110).retired == {T1, T2}


def test_a_table_that_is_being_created_is_not_there_yet() -> None:
    """CREATE TABLE with a foreign key has a step before."""
    history = begun()
    query = "create table t (a int primary key, b int)"
    steps = [(110, 1, RUNNING), (112, 5, DONE)]
    for ts, state, of_job in steps:
        job = named(1, Action.CREATE_TABLE, of_job, query, table_info=s.table(T1, "t") if of_job == DONE else None)
        history.advance([s.put_table(ts, ts, DB, s.table(T1, "t", state=state)), s.put_job(ts, ts, job)], ts)
    assert history.snapshot(111).tables == {}
    (event,) = events(history)
    assert (event.ts, event.before, event.after.from_ts) == (112, None, 112)  # type: ignore[union-attr]


def test_tables_of_system_databases_are_left_out() -> None:
    history = begun()
    created = named(1, Action.CREATE_TABLE, DONE, "create table mysql.x (a int)", schema_id=1, schema_name="mysql", table_id=30)
    history.advance([s.put_table(110, 110, 1, s.table(30, "x")), s.put_job(110, 110, created)], 120)
    assert events(history) == []
    assert history.snapshot(120).tables == {}


def test_the_bdr_role_and_the_schema_version() -> None:
    history = begun()
    history.advance([SchemaChange(0, s.PUT, 105, 105, keys.BDR_ROLE_KEY, b"primary"), s.put_version(106, 106, 9)], 110)
    assert (history.bdr_role, history.schema_version) == ("primary", 9)
    history.advance([SchemaChange(0, s.DELETE, 115, 115, keys.BDR_ROLE_KEY, None)], 120)
    assert history.bdr_role == ""


@pytest.mark.parametrize("row_format", [1, 2])
def test_job_rows_of_both_formats(row_format: int) -> None:
    history = begun(comment("old"))
    done = named(1, Action.MODIFY_TABLE_COMMENT, DONE, "alter table t comment = 'new'")
    history.advance([s.put_table(110, 110, DB, comment("new")), s.put_job(110, 110, done, row_format=row_format)], 120)
    assert len(events(history)) == 1


def test_a_job_row_that_cannot_be_read() -> None:
    history = begun()
    key = keys.record_key(keys.DDL_JOB_TABLE_ID, 1)
    with pytest.raises(MalformedRow):
        history.advance([SchemaChange(keys.DDL_JOB_TABLE_ID, s.PUT, 105, 105, key, b"\x80\x00")], 120)
    with pytest.raises(SchemaError, match="column 5"):
        begun().advance([SchemaChange(keys.DDL_JOB_TABLE_ID, s.PUT, 105, 105, key, bytes.fromhex("800000000000"))], 120)


def test_the_column_of_jobs_is_found_by_name() -> None:
    columns = [s.column(1, "job_id", 0, flag=4099), s.column(2, "job_meta", 1, tp=251)]
    own = [*pairs(comment("old"), jobs=False), (keys.table_key(1, 50), s.text(s.table(50, "tidb_ddl_job", columns)))]
    assert job_table_id(own) == 50
    history = SchemaHistory.bootstrap(100, own)
    row = b"\x80\x00\x01\x00\x00\x00\x02"
    body = s.text(named(1, Action.MODIFY_TABLE_COMMENT, DONE, "alter table t comment = 'x'"))
    row += len(body).to_bytes(2, "little") + body
    history.advance([SchemaChange(50, s.PUT, 110, 110, keys.record_key(50, 1), row)], 120)
    assert len(events(history)) == 1
