"""The commands of the quick start run as they stand there, in a network and a /tmp of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pages.terminals import ROOT, Terminals, lines_of, needs_a_network, needs_its_tmp, text_with

PAGE = (ROOT / "docs" / "quick-start.md").read_text(encoding="utf-8")


def commands(heading: str) -> list[str]:
    """The commands of a section, one a line, without comments."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [line.command for line in lines_of(section) if line.command.startswith("tidemill ")]


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    made = Terminals(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.slow
@pytest.mark.spark
@needs_a_network
@needs_its_tmp
def test_by_hand(terminals: Terminals) -> None:
    playground, run, create, insert, status, show = commands("3. By hand")
    text_with(terminals.start(playground, "playground"), "PD is at 127.0.0.1:12379")
    log = terminals.start(run, "run")
    text_with(log, "the first batch since this start begins")
    terminals.run(create)
    terminals.run(insert)
    terminals.answer_with(show, "hello", log)
    said = terminals.answer_with(status, "normal (process", log)  # it is written behind the batch that has the row
    assert "running" in said
    assert terminals.interrupt(1) == 0
