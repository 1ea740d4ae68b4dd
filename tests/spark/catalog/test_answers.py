"""What the catalog answers of a log, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tidemill.errors import ConfigError
from tidemill.spark.catalog.answers import Answer, answer
from tidemill.spark.catalog.questions import parse_question


@pytest.fixture
def log(tmp_path: Path) -> str:
    return SqlLog("CREATE TABLE t (id INT PRIMARY KEY, price INT)").write(tmp_path / "log")


def ask(log: str, question: str, **about: str) -> Answer:
    return answer(parse_question({"log": log, "question": question, **about}))


def test_tables_of_a_database_in_any_case(log: str) -> None:
    assert ask(log, "tables", database="APP").names == ("t",)
    assert not ask(log, "tables", database="nope").exists
    assert not ask(log, "changes", database="app", name="nope").exists


def test_columns_of_changes(log: str) -> None:
    whole = ask(log, "changes", database="app", name="T")
    assert (whole.name, whole.key, whole.columns.names[:2]) == ("app.t", ("id",), ["id", "price"])
    assert ask(log, "changes", database="app", name="t", columns="price").columns.names[0] == "price"
    with pytest.raises(ConfigError, match=r"app\.t has no column prise; did you mean `price`"):
        ask(log, "changes", database="app", name="t", columns="prise")
