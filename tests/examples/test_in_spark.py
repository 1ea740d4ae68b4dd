"""The examples that need Spark, as they stand: a feature table, cache invalidation, and the notebook."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from examples import cache_invalidation, feature_table
from tests.support.changelog.sqllogs import SqlLog
from tests.support.spark.owners import until
from tests.support.spark.sessions import ROOT, spark_session
from tidemill.spark import register

pytestmark = [pytest.mark.spark, pytest.mark.slow]

session = spark_session()


def test_the_feature_table(session: Any, tmp_path: Path) -> None:
    before, after = (sorted(map(tuple, one.collect())) for one in feature_table.run(session, tmp_path))
    assert [(name, n, str(spent), products) for name, n, spent, _, products in before] == [("Ada", 1, "2.50", 1), ("Grace", 1, "1.00", 1)]
    assert [(name, n, str(spent), products) for name, n, spent, _, products in after] == [("Ada", 2, "6.50", 2)]


def test_cache_invalidation(session: Any, tmp_path: Path) -> None:
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY, n INT)", "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    sql.run("UPDATE t SET n = 5 WHERE id = 1", "DELETE FROM t WHERE id = 3")
    cache: dict[str, int] = {f"app.t:{i}": i for i in range(5)}
    log = sql.write(tmp_path / "log")
    query = cache_invalidation.follow(register(session), cache, "app.*", str(tmp_path / "checkpoint"), log=log)
    until(lambda: query.awaitTermination(1) or len(cache) == 3)  # Spark's processAllAvailable sleeps for ten seconds
    query.stop()
    assert sorted(cache) == ["app.t:0", "app.t:2", "app.t:4"]


@pytest.mark.thorough("what its cells read: tests/spark/source/test_source_in_spark.py")
def test_the_notebook(session: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cells = json.loads((ROOT / "examples/changes.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "changes.ipynb", "exec"), names)
    assert names["changes"].sparkSession.table("orders_changes").count() == 5
    said = capsys.readouterr().out
    assert "update_postimage" in said
    assert "Grace" in said
