"""The pages of the server's API and command line: what they list is what there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer

from tests.support.server.apis import Api
from tests.support.server.fake_service import FakeService
from tidemill.changefeed.changes import SETTINGS
from tidemill.cli.main import build

DOCS = Path(__file__).parents[2] / "docs"
API, CLI = ((DOCS / name).read_text(encoding="utf-8") for name in ("api.md", "cli.md"))


def test_the_table_of_changes_is_the_codes() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \| (at once|from the checkpoint|never) \| ([^|]+) \|$", CLI, re.MULTILINE)
    found = {name: (when, why) for names, when, why in rows for name in re.findall(r"`([^`]+)`", names)}
    wanted = {name: (str(rule.when), rule.why) for name, rule in SETTINGS.items() if " " not in name}
    assert found == wanted


def test_every_route_is_named() -> None:
    paths = Api(FakeService()).get("/openapi.json").json()["paths"]
    last = {re.sub(r"\{changefeed_id\}", "ID", path).replace("{capture_id}", "CAPTURE") for path in paths}
    lost = [
        path
        for path in sorted(last)
        if path not in API and f"…/{path.rpartition('/')[2]}" not in API and f"`{path.rpartition('/')[2]}`" not in API
    ]
    assert lost == []


def test_every_command_is_named() -> None:
    def below(command: Any, prefix: str = "") -> list[str]:
        found = getattr(command, "commands", None)
        return [name for key, one in found.items() for name in below(one, key)] if found else [prefix]

    for verb in ("cli", "changefeed"):
        application: Any = typer.main.get_command(build([verb]))
        for name in below(application.commands[verb]):
            assert re.search(rf"`[^`]*\b{name}\b", CLI) or name.endswith("-table") or name.startswith("split-"), name
