"""CONTRIBUTING.md has a chapter for each thing that is added, and names places that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PLACES = sorted(set(re.findall(r"`((?:tidemill|tests|docs|bench|scripts)/[\w./-]+)`", PAGE)))


@pytest.mark.parametrize("chapter", ["Set-up and tests", "Adding a protocol", "Adding a sink", "Adding a source", "Kernels", "Golden data"])
def test_every_chapter_is_there(chapter: str) -> None:
    _, _, text = PAGE.partition(f"\n## {chapter}\n")
    assert len(text.partition("\n## ")[0].split()) > 20


def test_places_are_there() -> None:
    assert len(PLACES) > 20
    named = [place for place in PLACES if "NAME" not in place]
    assert [place for place in named if not (ROOT / place).exists()] == []


def test_targets_of_make_are_there() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"make ([a-z][\w-]*)", PAGE)) - targets - {"sure"} == set()
