"""The texts of DDLs as a history gives them."""

from __future__ import annotations

import logging

import pytest

from tests.support.schema import schemas as s
from tests.support.schema.histories import DB, DONE, T1, T2, begun, comment, events, named
from tidemill.errors import DdlTextError, SchemaError
from tidemill.tidb import keys
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.tracking.history import SchemaHistory


def test_a_text_that_cannot_be_printed_goes_out_as_written(caplog: pytest.LogCaptureFixture) -> None:
    history = begun(comment("old"))
    query = "alter table t some brand new syntax"
    done = named(1, Action.MODIFY_TABLE_COMMENT, DONE, query)
    history.advance([s.put_table(110, 110, DB, comment("new")), s.put_job(110, 110, done)], 120)
    with caplog.at_level(logging.WARNING):
        (event,) = events(history)
        events(history)
    assert (event.query, event.raw_query, event.reprinted) == (query, query, False)
    assert history.unprintable == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert query in caplog.text


def test_strictly_a_text_that_cannot_be_printed_is_an_error() -> None:
    history = begun(comment("old"), strict=True)
    done = named(1, Action.MODIFY_TABLE_COMMENT, DONE, "alter table t some brand new syntax")
    history.advance([s.put_table(110, 110, DB, comment("new")), s.put_job(110, 110, done)], 120)
    with pytest.raises(DdlTextError, match="job 1"):
        events(history)
    assert history.ddl_events(110, 120) == []


def test_only_what_is_wanted_is_printed() -> None:
    history = begun(comment("old"), s.table(T2, "u"), strict=True)
    odd = named(1, Action.MODIFY_TABLE_COMMENT, DONE, "alter table t some brand new syntax")
    fine = named(2, Action.MODIFY_TABLE_COMMENT, DONE, "alter table u comment = 'x'", table_id=T2)
    history.advance([s.put_job(110, 110, odd), s.put_job(112, 112, fine)], 120)
    seen: list[tuple[str, str]] = []

    def wants(event: DdlEvent) -> bool:
        seen.append((event.table, event.query))
        return event.table == "u"

    assert [event.query for event in history.ddl_events(100, 120, wants)] == ["ALTER TABLE `u` COMMENT = 'x'"]
    assert seen == [("t", "alter table t some brand new syntax"), ("u", "alter table u comment = 'x'")]


def test_a_schema_version_that_is_no_number() -> None:
    with pytest.raises(SchemaError, match="schema version"):
        SchemaHistory.bootstrap(1, [(keys.SCHEMA_VERSION_KEY, b"x")])


def test_names_with_backquotes() -> None:
    history = begun(s.table(T1, "a`b"))
    dropped = named(1, Action.DROP_TABLE, DONE, "drop table `a``b`", table_info=s.table(T1, "a`b"))
    history.advance([s.drop_table(110, 110, DB, T1), s.put_job(110, 110, dropped)], 120)
    assert [event.query for event in events(history)] == ["DROP TABLE `d`.`a``b`"]


def test_create_tables_whose_statements_do_not_fit_them() -> None:
    history = begun()
    created = named(1, Action.CREATE_TABLES, DONE, "create table t (a int)", table_infos=[s.table(T1, "t"), s.table(T2, "u")])
    changes = [s.put_table(110, 110, DB, s.table(T1, "t")), s.put_table(110, 110, DB, s.table(T2, "u")), s.put_job(110, 110, created)]
    history.advance(changes, 120)
    assert [(event.table, event.reprinted) for event in events(history)] == [("t", False), ("u", False)]
    assert history.unprintable == 2
