"""`tidemill demo` as a newcomer runs it, and what it says to do next."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tests.support.delivery.runs import await_that
from tidemill.cli.main import build
from tidemill.cli.playground.next_steps import PAGE, next_commands
from tidemill.cli.playground.playground_ctl import ADDRESS
from tidemill.config.uri import parse_sink_uri
from tidemill.demo.delivered import from_jsonl
from tidemill.demo.first import STATEMENTS
from tidemill.process.ports import free_ports

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

PROGRAM = f"{shlex.quote(sys.executable)} -m tidemill.cli.main"


def number(said: str, before: str, after: str) -> int:
    [found] = re.findall(rf"{before}\s*([\d,]+) {after}", said)
    return int(found.replace(",", ""))


def test_the_demo_shows_changes_and_figures_that_add_up(tmp_path: Path) -> None:
    done = subprocess.run(
        [*shlex.split(PROGRAM), "demo", "--seconds", "3", "--dir", str(tmp_path / "demo")], capture_output=True, text=True, check=False
    )
    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    places = [said.index(word) for word in (*STATEMENTS, "The page of this run", "upstream wrote", "Equal:", "What next")]
    assert places == sorted(places)
    shown = said[places[0] : said.index("The page of this run")]
    assert re.findall(r'value  {"(\w+)"', shown) == ["q", "u", "u", "d"]
    flat = re.sub(r"\s+", " ", said)
    changes, events = number(flat, "upstream wrote", "row changes"), number(flat, "delivered", "row events")
    assert events == changes + number(flat, "", "updates that change a unique key")
    assert "rows/s" not in said


@pytest.mark.thorough("the next test reads them; tests/docs/test_quick_start.py runs the same by hand")
def test_the_next_commands_work_as_printed(tmp_path: Path) -> None:
    port, page = free_ports(2)
    changes = tmp_path / "first" / "changes.jsonl"
    playground, run, show = next_commands(PROGRAM, pd=f"127.0.0.1:{port}", page=f"127.0.0.1:{page}", folder=tmp_path / "first")
    with (tmp_path / "said").open("w") as said, subprocess.Popen(shlex.split(playground), stdout=said, stderr=said) as upstream:
        await_that(lambda: "PD is at" in (tmp_path / "said").read_text(), "the playground serves")
        with subprocess.Popen(shlex.split(run), stdout=said, stderr=said) as running:

            def is_written() -> bool:
                assert running.poll() is None, (tmp_path / "said").read_text()
                return changes.exists() and any(b'"INSERT"' in (message.value or b"") for message in from_jsonl(changes))

            await_that(is_written, "rows are delivered")
            shown = subprocess.run(shlex.split(show), capture_output=True, text=True, check=True).stdout
            assert "shop.users" in shown
            with urllib.request.urlopen(f"http://127.0.0.1:{page}/", timeout=30) as answer:
                assert b"<title>" in answer.read()
            running.terminate()
        upstream.terminate()


def test_the_command_line_takes_the_next_commands(tmp_path: Path) -> None:
    """With all their options; what one writes the next one reads."""
    playground, run, show = (shlex.split(line) for line in next_commands("tidemill", folder=tmp_path))
    for _, verb, *arguments in (playground, run, show):
        application: Any = typer.main.get_command(build([verb]))
        application.commands[verb].make_context(verb, arguments)
    given = dict(zip(run[2::2], run[3::2], strict=True))
    assert given["--pd"] == ADDRESS
    assert given["--status-addr"] == PAGE
    assert given["--sink-uri"].startswith(f"messages://{show[-1]}?")
    parse_sink_uri(given["--sink-uri"])
