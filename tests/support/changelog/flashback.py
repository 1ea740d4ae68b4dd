"""A log with a FLASHBACK CLUSTER, which the playground does not do: its job is put among the DDL jobs."""

from __future__ import annotations

import pytest

from tests.support.changelog.logs import Change
from tests.support.changelog.sqllogs import SqlLog
from tests.support.schema.histories import RUNNING, named
from tests.support.schema.schemas import put_job
from tidemill.tidb.schema.codes import Action

JOB = 1 << 30
SQL = "FLASHBACK CLUSTER TO TIMESTAMP '2026-01-01'"


def flash_back(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Logs that are written from now on have such a job at a ts, as far as they go."""
    job = named(JOB, Action.FLASHBACK_CLUSTER, RUNNING, SQL, schema_state=2)
    real = SqlLog._schema

    def schema(self: SqlLog, start: int, end: int) -> list[Change]:
        found = real(self, start, end)
        return [*found, Change(*put_job(at, at, job), None)] if start < at <= end else found

    monkeypatch.setattr(SqlLog, "_schema", schema)
