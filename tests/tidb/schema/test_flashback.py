"""What a history makes of FLASHBACK."""

from __future__ import annotations

import pytest

from tests.support.schema import schemas as s
from tests.support.schema.histories import DB, DONE, RUNNING, T1, begun, comment, named
from tidemill.errors import SchemaError
from tidemill.tidb.schema.codes import Action, JobState


def flashback(state: JobState, schema_state: int) -> s.Json:
    return named(1, Action.FLASHBACK_CLUSTER, state, "flashback cluster to timestamp '2026-01-01'", schema_state=schema_state)


def test_flashback_cluster_stops_with_an_error() -> None:
    history = begun(comment("old"))
    later = s.put_table(130, 130, DB, comment("new"))
    changes = [
        s.put_table(105, 105, DB, comment("mid")),
        s.put_job(108, 108, flashback(RUNNING, 1)),
        s.put_job(110, 110, flashback(RUNNING, 2)),
        later,
    ]
    with pytest.raises(SchemaError, match="FLASHBACK CLUSTER"):
        history.advance(changes, 140)
    assert history.resolved_ts == 109
    assert history.snapshot(109).tables[T1].info.comment == "mid"
    with pytest.raises(SchemaError, match="FLASHBACK CLUSTER"):
        history.advance([], 150)


def test_a_flashback_that_was_refused_stops_nothing() -> None:
    history = begun()
    steps = [flashback(JobState.QUEUEING, 0), flashback(RUNNING, 1), flashback(JobState.CANCELLED, 0)]
    history.advance([s.put_job(110 + i, 110 + i, step) for i, step in enumerate(steps)], 120)
    assert history.resolved_ts == 120


def test_flashback_database_without_meta_keys_is_an_error() -> None:
    history = begun()
    with pytest.raises(SchemaError, match="FLASHBACK DATABASE"):
        history.advance([s.put_job(110, 110, named(1, Action.RECOVER_SCHEMA, DONE, "flashback database d"))], 120)
