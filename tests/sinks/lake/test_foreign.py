"""Who may write a table's metadata, or answers for a catalog, neither runs code here nor touches files of this machine."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.lake.lakes import version_of
from tidemill.config.lake import LakeOptions
from tidemill.errors import SinkError
from tidemill.sinks.base import no_fence_check
from tidemill.sinks.lake import foreign
from tidemill.sinks.lake.base import Stamp
from tidemill.sinks.lake.foreign import open_catalog
from tidemill.sinks.lake.iceberg import IcebergTables
from tidemill.sinks.lake.manifest import TableAt
from tidemill.sinks.lake.shapes import OP, lake_table

STAMP = Stamp("f", 5, 1, no_fence_check)


@pytest.mark.parametrize("name", ["write.py-location-provider.impl", "py-io-impl", "s3.retry-strategy-impl"])
def test_a_tables_metadata_runs_no_code(tmp_path: Path, name: str) -> None:
    tables = IcebergTables(
        LakeOptions(catalog="c", catalog_uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake"), None
    )
    want = lake_table(version_of(SqlLog("CREATE TABLE a (id INT PRIMARY KEY)"), "a"))
    tables.shape("app.a", want, STAMP)
    at = tables.version("app", "a", 1, "app.a")
    file = Path(at.metadata.removeprefix("file://"))
    found = json.loads(file.read_text())
    found["location"] = f"open({str(tmp_path / 'ran')!r}, 'w')"
    found["properties"][name] = "builtins.exec"
    file.write_text(json.dumps(found))
    rows = pa.table({"id": pa.array([1], pa.int32()), OP: pa.array([0], pa.int8())})
    with pytest.raises(SinkError, match=f"{name}, which names a class"):
        tables.merge("app.a", want, rows, STAMP)
    with pytest.raises(SinkError, match=f"{name}, which names a class"):
        [*tables.read("app.a", TableAt("app", "a", 1, "app.a", 1, at.metadata))]
    assert not (tmp_path / "ran").exists()


def test_tables_of_a_bucket_have_no_files_of_this_machine(tmp_path: Path) -> None:
    catalog = open_catalog("c", {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}, remote=True)
    catalog.create_namespace("app")
    with pytest.raises(PermissionError, match="a file of this machine"):
        catalog.create_table("app.a", pa.schema([("id", pa.int32())]))
    assert not (tmp_path / "lake").exists()


def test_a_catalogs_answer_names_no_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str, **given: Any) -> Any:
        return SimpleNamespace(properties={"py-io-impl": "subprocess.Popen"})

    monkeypatch.setattr(foreign, "load_catalog", load)
    with pytest.raises(SinkError, match="py-io-impl, which names a class"):
        open_catalog("c", {}, remote=False)


def test_a_configured_catalogs_credentials_go_to_its_own_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TOKEN", "secret")
    given = {"warehouse": f"file://{tmp_path}/lake"}
    with pytest.raises(SinkError, match="catalog-uri is not that of the catalog prod"):
        open_catalog("prod", {**given, "uri": "http://127.0.0.1:9"}, remote=False)
    assert open_catalog("prod", {**given, "uri": f"sqlite:///{tmp_path}/catalog.db/"}, remote=False).properties["token"] == "secret"
