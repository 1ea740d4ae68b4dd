"""The page of Canal's clients lists every property that is taken, and none more; its client code names what the protocol has."""

from __future__ import annotations

import re
from pathlib import Path

from tidemill.canal.server.properties import refusal, taken

PAGE = Path(__file__).parents[2] / "docs" / "canal.md"


def listed() -> list[str]:
    """The names in the first column of the table of properties."""
    table = PAGE.read_text(encoding="utf-8").partition("| property | default | meaning |")[2].partition("\n\n")[0]
    return [name for line in table.splitlines()[2:] for name in re.findall(r"`([^`]+)`", line.split("|")[1])]


def test_every_property_is_listed_and_none_more() -> None:
    assert sorted(listed()) == sorted(taken())


def test_nothing_is_both_taken_and_refused() -> None:
    assert [name for name in taken() if refusal(name) is not None] == []
