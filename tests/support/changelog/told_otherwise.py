"""DDLs whose text has parts that the playground's SQL does not know: it runs one statement, and its job tells of another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tidemill.playground.sql import session


def telling(monkeypatch: pytest.MonkeyPatch, sql: SqlLog) -> Callable[[str, str], int]:
    """Return a function that runs a DDL and lets its job have another text; a ts past it."""
    texts: dict[str, str] = {}
    plain = session.DdlContext

    def context(*given: object) -> session.DdlContext:
        made = plain(*given)  # type: ignore[arg-type]
        return replace(made, query=texts.get(made.query, made.query))

    monkeypatch.setattr(session, "DdlContext", context)

    def run(statement: str, told: str) -> int:
        texts[statement] = told
        return sql.run(statement)

    return run
