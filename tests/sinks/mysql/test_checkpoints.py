"""The checkpoint in the database's books never goes back unasked: attempts over other intervals than the one that was begun."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.delivery.database_sinks import CREATE, LATER, made_of
from tests.support.servers.mariadb import MariaDb
from tidemill.errors import SinkError

pytestmark = pytest.mark.slow

GLOBAL = "transaction-atomicity=global"


@pytest.fixture
def db(mariadb: MariaDb) -> MariaDb:
    mariadb.clear()
    mariadb.run(*CREATE)
    return mariadb


@pytest.fixture
def sinks(db: MariaDb) -> Iterator[Any]:
    with made_of(db) as make:
        sink = make(GLOBAL)
        sink.batch(1, from_ts=LATER, to_ts=LATER + 10)
        sink.begin(2, LATER + 20, LATER + 30)
        db.run(f"UPDATE tidb_cdc.tidemill_feed_v1 SET checkpoint_ts = {LATER + 25}")  # as transactions up to there do
        yield make


def checkpoint(db: MariaDb) -> int:
    return int(db.rows("SELECT checkpoint_ts FROM tidb_cdc.tidemill_feed_v1")[0][0])


def test_an_attempt_that_begins_before_an_interval_written_in_part_is_refused(db: MariaDb, sinks: Any) -> None:
    with pytest.raises(SinkError, match="rows of tables without a key would come twice") as caught:
        sinks(GLOBAL).begin(3, LATER + 10, LATER + 30)
    assert f"--overwrite-checkpoint-ts {LATER + 20}" in caught.value.hint
    assert checkpoint(db) == LATER + 25


@pytest.mark.parametrize("end", [28, 40])
def test_an_attempt_over_the_same_begin_goes_on_behind_what_is_written(db: MariaDb, sinks: Any, end: int) -> None:
    again = sinks(GLOBAL)
    again.begin(3, LATER + 20, LATER + end)
    assert again.driver._attempt.checkpoint_ts == checkpoint(db) == LATER + 25


def test_what_was_done_is_written_again_where_somebody_wants_it_with_a_warning(
    db: MariaDb, sinks: Any, caplog: pytest.LogCaptureFixture
) -> None:
    sink = sinks(GLOBAL)
    sink.batch(3, from_ts=LATER + 20, to_ts=LATER + 30)
    with caplog.at_level(logging.WARNING):
        sink.begin(4, LATER + 5, LATER + 40)
    assert checkpoint(db) == LATER + 5
    assert "its checkpoint_ts goes back" in caplog.text
