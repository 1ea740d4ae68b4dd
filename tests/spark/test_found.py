"""Spark finds the formats by the names of modules, and loads nothing large for that."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource

from tests.support.changelog.sqllogs import SqlLog
from tidemill.spark.catalog.source import CatalogSource
from tidemill.spark.formats import bound
from tidemill.spark.source.ddl import DdlSource
from tidemill.spark.source.source import TidemillSource
from tidemill.spark.table.options import parse_table_options
from tidemill.spark.table.source import TableSource

ROOT = Path(__file__).parents[2]
MODULES: dict[str, type[DataSource]] = {
    "pyspark_tidemill": TidemillSource,
    "pyspark_tidemill_ddl": DdlSource,
    "pyspark_tidemill_table": TableSource,
    "pyspark_tidemill_catalog": CatalogSource,
}
LOOK = """
import sys, importlib, pkgutil
from pyspark.sql.datasource import DataSource
before = set(sys.modules)
for info in pkgutil.iter_modules():
    if info.name.startswith("pyspark_tidemill"):
        found = importlib.import_module(info.name).DefaultSource
        assert issubclass(found, DataSource)
        print(found.name())
print(*sorted(name for name in set(sys.modules) - before if not name.startswith("pyspark_")), file=sys.stderr)
"""
"""As pyspark.sql.worker.lookup_data_sources does it."""


def test_the_modules_are_found_and_load_little() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["tidemill", "tidemill.catalog", "tidemill.ddl", "tidemill.table"]
    assert done.stderr.split() == ["tidemill", "tidemill.spark", "tidemill.spark.found"]


@pytest.mark.parametrize("name", MODULES)
def test_each_is_the_source_of_its_name(name: str) -> None:
    found = importlib.import_module(name).DefaultSource
    assert found.name() == MODULES[name].name()
    assert type(found(options={})) is MODULES[name]


def test_the_wheel_has_each_of_them() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert set(wheel["py-modules"]) == set(MODULES) == {path.stem for path in ROOT.glob("pyspark_*.py")}


def test_what_a_session_says_is_taken_where_a_query_says_nothing(tmp_path: Path) -> None:
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY)")
    log, none = sql.write(tmp_path / "log"), str(tmp_path / "none")
    dumps: Any = cloudpickle.dumps  # which Spark sends classes by
    whole = TidemillSource({"log": log, "table": "app.t"}).schema()
    for session, query in (({"log": log}, {}), ({"log": none}, {"Log": log}), ({"log": log, "pd": "pd:1"}, {})):
        source = bound(TidemillSource, session)({"table": "app.t", **query})
        assert (source.name(), source.schema()) == ("tidemill", whole)
        assert cloudpickle.loads(dumps(type(source)))({"table": "app.t", **query}).schema() == whole
    table: Any = bound(TableSource, {"log": log, "pd": "pd:1"})({"table": "app.t"})
    assert parse_table_options(table.options).cluster.pd == ("pd:1",)
