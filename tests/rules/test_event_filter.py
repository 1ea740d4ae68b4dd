"""Event filters: which DDLs and which changes of a table are left out."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from tests.support.schema.tables import column, table
from tidemill.config.file import parse_config
from tidemill.errors import ConfigError
from tidemill.records import KIND_DELETE, KIND_INSERT, KIND_UPDATE
from tidemill.rules.event_filter import DDL_WORDS, WORDS, EventFilters, RowFilter, event_word
from tidemill.tidb.schema.codes import Action, MySQLType
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.tracking.tracker import SENT_ACTIONS
from tidemill.tidb.schema.tracking.versions import TableVersion


def filters(text: str, *, more: str = "") -> EventFilters:
    return parse_config(f"{more}\n[[filter.event-filters]]\n{text}").event_filters()


def ddl(kind: int, raw: str = "x", name: str = "a.b", **parts: object) -> DdlEvent:
    schema, _, table_name = name.partition(".")
    plain = {"ts": 1, "done_ts": 1, "job_id": 1, "schema_version": 1, "seq": 0, "pre_schema": "", "pre_table": "", "table_id": 1}
    query = str(parts.pop("query", raw))
    return DdlEvent(type=kind, schema=schema, table=table_name, query=query, raw_query=raw, reprinted=True, **(plain | parts))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        (["all ddl"], set(DDL_WORDS)),
        (["create table"], {Action.CREATE_TABLE, Action.CREATE_TABLES}),
        (["create schema"], {Action.CREATE_SCHEMA}),
        (["drop database", "Drop Table"], {Action.DROP_SCHEMA, Action.DROP_TABLE}),
        (["add column"], {Action.ADD_COLUMN, Action.ADD_COLUMNS}),
        (["create index", "drop index"], {Action.ADD_INDEX, Action.DROP_INDEX}),
        (["truncate table partition"], {Action.TRUNCATE_TABLE_PARTITION}),
        (["rename table"], {Action.RENAME_TABLE, Action.RENAME_TABLES}),
        (["insert", "all dml"], set()),
    ],
)
def test_ddls_by_their_kind(words: list[str], kinds: set[int]) -> None:
    found = filters(f"matcher = ['*.*']\nignore-event = {words}")
    assert {kind for kind in DDL_WORDS if found.ignores_ddl(ddl(kind))} == kinds


def test_alter_table_is_what_alters_one() -> None:
    found = filters("matcher = ['*.*']\nignore-event = ['alter table']")
    kept = {kind for kind in DDL_WORDS if not found.ignores_ddl(ddl(kind))}
    assert kept == {
        *(Action.CREATE_SCHEMA, Action.DROP_SCHEMA, Action.MODIFY_SCHEMA_CHARSET, Action.RECOVER_SCHEMA, Action.CREATE_TABLE),
        *(Action.CREATE_TABLES, Action.DROP_TABLE, Action.TRUNCATE_TABLE, Action.RECOVER_TABLE, Action.CREATE_VIEW, Action.DROP_VIEW),
    }


TICDC = (Path(__file__).parents[1] / "golden/peers/ticdc_event_words.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("word", TICDC)
def test_every_word_of_ticdc_is_taken(word: str) -> None:
    event_word(word)
    event_word(word.upper())


def test_indexes_without_an_action_of_their_own_go_by_the_text() -> None:
    fulltext, hybrid = "alter table t add fulltext index (b) with parser standard", " CREATE hybrid INDEX i ON t(b, c) PARAMETER 'x'"
    for word, text in (("add fulltext index", fulltext), ("create hybrid index", hybrid)):
        ignoring = filters(f'matcher = ["*.*"]\nignore-event = ["{word}"]')
        assert ignoring.ignores_ddl(ddl(Action.ADD_INDEX, text))
        assert not ignoring.ignores_ddl(ddl(Action.ADD_INDEX, "alter table t add index (b)"))
        assert not filters('matcher = ["*.*"]\nignore-event = ["create index"]').ignores_ddl(ddl(Action.ADD_INDEX, text)), "as in TiCDC"
        assert filters('matcher = ["*.*"]\nignore-event = ["alter table"]').ignores_ddl(ddl(Action.ADD_INDEX, text))


def test_every_ddl_that_is_sent_has_a_word() -> None:
    assert set(map(int, SENT_ACTIONS)) <= set(map(int, DDL_WORDS)) | {Action.DROP_INDEXES}


@pytest.mark.parametrize("word", ["insrt", "all", "none", "incompatible ddl changes", "alter schema", ""])
def test_words_that_ticdc_refuses(word: str) -> None:
    with pytest.raises(ValueError, match="no such event"):
        event_word(word)


def test_the_nearest_word_is_named() -> None:
    with pytest.raises(ValueError, match="did you mean `truncate table`"):
        event_word("truncate_table")
    assert all(event_word(word.upper()) for word in WORDS)


def test_ddls_by_their_text() -> None:
    found = filters(r"""matcher = ['a.*', '!a.keep']
ignore_sql = ['^DROP', 'add\s+column']""")
    assert found.ignores_ddl(ddl(Action.DROP_TABLE, "drop table b"))
    assert found.ignores_ddl(ddl(Action.ADD_COLUMN, "ALTER TABLE b ADD  COLUMN c INT"))
    assert not found.ignores_ddl(ddl(Action.ADD_COLUMN, "ALTER TABLE b ADD c INT", query="ALTER TABLE `b` ADD COLUMN `c` INT"))
    assert not found.ignores_ddl(ddl(Action.DROP_TABLE, "/* */ drop table b"))
    assert not found.ignores_ddl(ddl(Action.DROP_TABLE, "drop table keep", "a.keep"))
    assert found.ignores_ddl(ddl(Action.DROP_SCHEMA, "drop database a", "a."))
    assert not found.ignores_ddl(ddl(Action.DROP_SCHEMA, "drop database z", "z."))


def test_one_of_several_renames_is_known_by_its_own_text() -> None:
    found = filters("matcher = ['*.*']\nignore-sql = ['TO `a`.`c`']")
    event = ddl(Action.RENAME_TABLE, "rename table a.b to a.c, a.d to a.e", query="RENAME TABLE `a`.`b` TO `a`.`c`")
    assert found.ignores_ddl(event)


def test_ddls_by_the_start_of_their_job() -> None:
    found = parse_config("[filter]\nignore-txn-start-ts = [7, 9]").event_filters()
    assert found.ignores_ddl(ddl(Action.DROP_TABLE, start_ts=9))
    assert not found.ignores_ddl(ddl(Action.DROP_TABLE, start_ts=8))


def version(name: str = "a.b") -> TableVersion:
    columns = [column(MySQLType.LONGLONG, name="id"), column(MySQLType.LONG, name="Age"), column(MySQLType.VARCHAR, name="note")]
    return TableVersion(name.partition(".")[0], 1, table(columns, pk_is_handle=True), (100,), 0)


def test_a_tables_filter_joins_all_rules_that_match_it() -> None:
    found = parse_config(
        """
        [[filter.event-filters]]
        matcher = ["a.*"]
        ignore-event = ["delete", "create table"]
        ignore-insert-value-expr = "age < 18"
        [[filter.event-filters]]
        matcher = ["*.t"]
        ignore-update-new-value-expr = "age = 1"
        ignore-update-old-value-expr = "age = 2"
        ignore-delete-value-expr = "note = 'x'"
        ignore-update-only-columns = ["NOTE", "id"]
        [[filter.event-filters]]
        matcher = ["z.*"]
        ignore-event = ["all dml"]
        """
    ).event_filters()
    assert found.row_filter(version()) == RowFilter(
        kinds=frozenset({KIND_DELETE}),
        insert=("age < 18",),
        update_new=("age = 1",),
        update_old=("age = 2",),
        delete=("note = 'x'",),
        unless_changed=(frozenset({1, 2}),),  # the key column counts, although it is listed
    )
    assert found.row_filter(version("z.t")) == RowFilter(
        kinds=frozenset({KIND_DELETE, KIND_INSERT, KIND_UPDATE}),
        update_new=("age = 1",),
        update_old=("age = 2",),
        delete=("note = 'x'",),
        unless_changed=(frozenset({1, 2}),),
    )
    assert filters("matcher = ['y.*']\nignore-event = ['insert']").row_filter(version()) is None
    assert filters("matcher = ['a.*']\nignore-event = ['drop table']").row_filter(version()) is None


def test_an_expression_that_does_not_fit_a_table_names_both() -> None:
    found = filters("matcher = ['a.*']\nignore-insert-value-expr = 'agee > 1'")
    with pytest.raises(ConfigError, match=re.escape("event filter for a.t: 'agee > 1': there is no column 'agee'; did you mean `Age`?")):
        found.row_filter(version())
    assert found.row_filter(version("other.t")) is None


def test_a_listed_column_that_is_not_there_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    found = filters("matcher = ['a.*']\nignore-update-only-columns = ['agee', 'note']")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            row_filter = found.row_filter(version())
            assert row_filter is not None
            assert row_filter.unless_changed == (frozenset({1, 2}),)
    assert [r.getMessage() for r in caplog.records] == ["ignore-update-only-columns: a.t has no stored column 'agee'; did you mean `Age`?"]
    assert filters("matcher = ['a.*']\nignore-update-only-columns = ['agee']").row_filter(version()) is None


def test_case_counts_where_it_is_asked_to() -> None:
    found = filters("matcher = ['a.*']\nignore-update-only-columns = ['age']", more="case-sensitive = true")
    assert found.row_filter(version()) is None


@pytest.mark.parametrize(
    ("old", "new", "left_out"),
    [("a1", "b1", True), ("a2", "c2", True), ("b3", "a3", False), ("A4", "a4", True)],
)
def test_a_rename_is_judged_by_the_old_name(old: str, new: str, left_out: bool) -> None:
    rules = filters("matcher = ['x.a*']\nignore-event = ['all ddl']")
    for kind in (Action.RENAME_TABLE, Action.RENAME_TABLES):
        renamed = ddl(kind, name=f"x.{new}", pre_schema="x", pre_table=old)
        assert rules.ignores_ddl(renamed) is left_out
    exchanged = ddl(Action.EXCHANGE_PARTITION, name=f"x.{new}", pre_schema="x", pre_table=old)
    assert rules.ignores_ddl(exchanged) is new.startswith("a"), "only of a RENAME is the other name one before it"
