"""Names of databases on a terminal: no markup, nothing that moves the cursor; and all that is printed passes one place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.table import Table

from tidemill.cli.changefeeds.status import _stuck_table
from tidemill.cli.shared.console import as_text
from tidemill.cli.shared.terminal import add_row, console, echo
from tidemill.consumer.shown import Shown

CLI = Path(__file__).parents[3] / "tidemill" / "cli"
HOSTILE = "[/x][red]\x1b[2J\x9b31m:warning:\r\n\u202e"
SHOWN = r"[/x][red]\u001b[2J\u009b31m:warning:"


def test_names_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("NAME")
    add_row(table, [HOSTILE])
    console(width=200).print(table)
    stuck = {"table": HOSTILE, "cause": HOSTILE, "seconds": 1, "resolved_time": "", "lock": {"key": HOSTILE}}
    console(width=200).print(_stuck_table([stuck]))
    console(width=200).print(as_text(Shown("10:00", HOSTILE, "insert", HOSTILE)))
    echo(HOSTILE)
    printed = capsys.readouterr().out
    assert printed.count(SHOWN) == 7
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", printed)


def test_what_verbs_print_passes_one_place() -> None:
    """The playground prints what its own workload named; `top` draws frames of its own."""
    others = {"terminal.py", "top.py", "main.py"}
    wrong = [
        f"{path.name}: {found}"
        for path in CLI.rglob("*.py")
        if "playground" not in path.parts and path.name not in others
        for found in re.findall(r"typer\.echo|\bConsole\((?=\w+=)(?!stderr)|\.add_row\(", path.read_text(encoding="utf-8"))
    ]
    assert wrong == []
