"""The page for users of TiCDC names every key of TiCDC's that does nothing here or is refused, and flags that there are."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import typer

from tidemill.cli.main import VERBS, build
from tidemill.config import ticdc_keys

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "coming-from-ticdc.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def keys_of(text: str) -> list[str]:
    """The keys of the first column of the tables."""
    return [key for row in re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE) for key in re.findall(r"`([^`]+)`", row)]


def is_listed(key: str, listed: list[str]) -> bool:
    return key in listed or any(one.endswith("*") and key.startswith(one[:-1]) for one in listed)


def test_every_key_without_effect_is_named() -> None:
    without_effect, _, refused = section("Keys of the TOML file").partition("These are refused")
    assert [key for key in ticdc_keys.IGNORED if not is_listed(key, keys_of(without_effect))] == []
    assert [key for key in ticdc_keys.REFUSED if not is_listed(key, keys_of(refused))] == []


def test_no_other_key_is_named() -> None:
    without_effect, _, refused = section("Keys of the TOML file").partition("These are refused")
    known = [*ticdc_keys.IGNORED, *ticdc_keys.REFUSED]
    for key in keys_of(without_effect) + keys_of(refused):
        stem = key.removesuffix("*")
        assert key in known or (key.endswith("*") and any(one.startswith(stem) for one in known)) or key == "level", key


@cache
def options_of(verb: str) -> set[str]:
    """Flags of a verb and its commands."""
    application: Any = typer.main.get_command(build([verb]))

    def below(command: Any) -> set[str]:
        found = {flag for one in command.params if one.param_type_name == "option" for flag in one.opts}
        return found.union(*(below(inner) for inner in getattr(command, "commands", {}).values()))

    return below(application.commands[verb])


def test_commands_that_docs_show_have_their_flags() -> None:
    """Each `tidemill VERB … --flag` of README and docs, in code or in a block of it."""
    wrong = []
    for path in [*DOCS.rglob("*.md"), DOCS.parent / "README.md"]:
        text = re.sub(r"\\\n\s*", " ", path.read_text(encoding="utf-8"))
        for verb, rest in re.findall(r"\btidemill ([a-z]+)\b([^\n`|]*)", text):
            if verb not in VERBS:
                continue
            flags = re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", rest.partition("  #")[0].partition("$(")[0])
            wrong += [
                f"{path.name}: tidemill {verb}{rest}: {flag}" for flag in flags if flag not in options_of(verb) | {"--help", "--help-all"}
            ]
    assert wrong == []
