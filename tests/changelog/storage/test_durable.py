"""Files that are there whole, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidemill.changelog.storage import durable


def test_durable_files(tmp_path: Path) -> None:
    path = tmp_path / "a/b.json"
    assert durable.read_json(path) is None
    durable.write_json(path, {"x": 1})
    durable.write_json(path, {"x": 2}, sync=False)
    assert durable.read_json(path) == {"x": 2}
    assert [p.name for p in path.parent.iterdir()] == ["b.json"]
    path.write_text(json.dumps([1]))
    with pytest.raises(ValueError, match="no JSON object"):
        durable.read_json(path)
