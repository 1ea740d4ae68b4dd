"""The page of all options is what the command line has."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_made_of_the_command_line() -> None:
    spec = importlib.util.spec_from_file_location("options", ROOT / "scripts/options.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), "run make options"
