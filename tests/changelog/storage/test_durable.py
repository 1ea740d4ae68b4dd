"""Files that are there whole, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

from tidemill.changelog.storage import durable


def test_durable_files(tmp_path: Path) -> None:
    path = tmp_path / "a/b.json"
    assert durable.read(path) is None
    durable.write_json(path, {"x": 1})
    durable.write_json(path, {"x": 2}, sync=False)
    assert json.loads(durable.read(path) or b"") == {"x": 2}
    assert [p.name for p in path.parent.iterdir()] == ["b.json"]
