"""Writes docs/options.md, every command with its options, from the command line itself: `make options`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from tidemill.cli.cdc.connection import OPTIONS
from tidemill.cli.main import PANELS, VERBS, build
from tidemill.cli.shared.help import options_of
from tidemill.cli.shared.panels import is_rare

PAGE = Path(__file__).parents[1] / "docs" / "options.md"
_HEAD = """# Every option

Made from the command line by `make options`: what `--help-all` prints, as a page. Options in *italics* are rare:
`--help` leaves them out. Each command takes `--help` too.

The commands of `tidemill changefeed` and `tidemill cli` also take [those of the connection](#connection).
"""


def _cell(text: str) -> str:
    return text.replace("\\[", "[").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("\n", " ")


def _rows(command: Any, ctx: Any, verb: str, leave: frozenset[str] = frozenset()) -> Iterator[str]:
    for one in options_of(command):
        if one.name in leave:
            continue
        names, text = one.get_help_record(ctx)
        shown = f"`{names}`".replace("|", "\\|")
        yield f"| {f'*{shown}*' if is_rare(one.opts[0], verb) and not one.required else shown} | {_cell(text)} |"


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", {})
    if not inner or command.invoke_without_command:
        yield name, command
    for word, one in inner.items():
        if not one.hidden:
            yield from _commands(f"{name} {word}", one)


def page() -> str:
    """The page."""
    lines, connection = [_HEAD], frozenset(OPTIONS)
    for panel, verbs in PANELS.items():
        lines.append(f"## {panel}\n")
        for verb in verbs.split():
            application: Any = typer.main.get_command(build([verb]))
            for name, command in _commands(verb, application.commands[verb]):
                ctx = typer.Context(command, info_name=verb)
                text = inspect.cleandoc(command.help or VERBS[verb]).split("\n\n")[0].replace("\n", " ")
                lines.append(f"### tidemill {name}\n\n| | {_cell(text)} |\n|---|---|")
                lines += [f"| `{one.get_help_record(ctx)[0]}` | {_cell(one.get_help_record(ctx)[1])} |" for one in _arguments(command)]
                lines += [*_rows(command, ctx, verb, connection if verb in ("changefeed", "cli") else frozenset()), ""]
    group: Any = typer.main.get_command(build(["cli"]))
    command = group.commands["cli"]
    lines.append("## Connection\n\n| | To the server |\n|---|---|")
    lines += [*_rows(command, typer.Context(command, info_name="cli"), "cli"), ""]
    return "\n".join(lines)


def _arguments(command: Any) -> list[Any]:
    return [one for one in command.params if one.param_type_name == "argument" and not one.hidden]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
