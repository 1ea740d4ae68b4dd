"""`tidemill view`, from creating a view to dropping it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.spark.sessions import spark_session
from tidemill.cli.main import main
from tidemill.cli.shared.served import served
from tidemill.cli.views.view import watched
from tidemill.testing import Upstream
from tidemill.views import View

pytestmark = [pytest.mark.spark, pytest.mark.slow]
session = spark_session()


@pytest.fixture(scope="module", autouse=True)
def _spark(session: Any) -> None:
    """Spark analyses the queries of views that are created: here the one that runs for all."""


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["view", *arguments])
    out = capsys.readouterr()
    assert ended.value.code == 0, out.err
    return out.out


def test_what_a_view_that_runs_tells(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with Upstream() as upstream:
        upstream.sql("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1), (2)")
        said(capsys, "create", "all", "--log", upstream.log, "--sql", "SELECT id FROM d.t", "--into", "memory", "--dir", str(tmp_path))
        with View(tmp_path, "all") as view, served("127.0.0.1:0", watched([view])) as address:
            view.catch_up()
            view.figures.away = "mysql://root:s3cret@db/ is away"
            told = httpx.get(f"http://{address}/status").json()["all"]
            assert (told["resolved_ts"], told["changes"], told["away"]) == (view.resolved_ts, 2, "mysql://root:xxxxx@db/ is away")
            lines = httpx.get(f"http://{address}/metrics").text.splitlines()
    assert 'tidemill_view_changes_total{view="all"} 2.0' in lines
    assert 'tidemill_view_away{view="all"} 1.0' in lines


def test_a_view_from_create_to_drop(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = ("--dir", str(tmp_path / "views"))
    with Upstream() as upstream:
        upstream.sql(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY, k VARCHAR(9), v INT)",
            "INSERT INTO shop.t VALUES (1, 'a', 2), (2, 'a', 3)",
        )
        sql = "SELECT k, sum(v) AS total FROM shop.t GROUP BY k"
        told = said(capsys, "create", "totals", "--log", upstream.log, "--sql", sql, "--into", "memory", *place)
        assert "sums and counts are kept" in told
        assert "never ran" in said(capsys, "list", *place)
        assert "RECOMPUTED" in said(capsys, "explain", "--log", upstream.log, "--sql", "SELECT id FROM shop.t ORDER BY v LIMIT 1")
        assert "is at" in said(capsys, "run", "--target-ts", "now", "--interval", "0.05", *place)
        assert json.loads(said(capsys, "read", "totals", *place)) == {"k": "a", "total": 5}
        (listed,) = json.loads(said(capsys, "list", "--output", "json", *place))
        shown = json.loads(said(capsys, "show", "totals", "-o", "json", *place))
        assert listed["resolved_ts"] == shown["resolved_ts"] > 0
        assert all(step["incremental"] for step in shown["steps"])
        assert "columns: k string, total bigint" in said(capsys, "explain", "totals", *place)
        assert "is dropped" in said(capsys, "drop", "totals", *place)
        assert said(capsys, "list", "--json", *place).strip() == "[]"
        with pytest.raises(SystemExit):
            main(["view", "show", "totals", *place])
        assert "there is no view totals" in capsys.readouterr().err
