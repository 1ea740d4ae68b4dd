"""What `--help` prints: options in panels, each with its name in full however narrow the terminal is; `--help-all` shows rare ones too."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from tidemill.cli.shared.panels import FEW, OWN, PANELS, is_rare, panel_of

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LEFT = 30
"""Columns for names. A longer one has its line for itself."""
COMMANDS = "Commands"


def _all_of(ctx: typer.Context, asked: bool) -> None:
    if asked:
        print_help(ctx.command, ctx, everything=True)
        raise typer.Exit


def _help_all() -> Any:
    """The option `--help-all`, made by Typer as any other one."""
    app = typer.Typer(add_completion=False)

    @app.command()
    def command(
        help_all: Annotated[
            bool,
            typer.Option("--help-all", is_eager=True, expose_value=False, callback=_all_of, help="Show rare options too."),
        ] = False,
    ) -> None:
        """Has the option."""

    return typer.main.get_command(app).params[0]


def options_of(command: Any) -> list[Any]:
    """The options of a command that help may show."""
    return [one for one in command.params if one.param_type_name == "option" and not one.hidden]


def _verb(ctx: Any) -> str:
    """The verb that a command belongs to; nothing for the command line itself."""
    while ctx.parent is not None and ctx.parent.parent is not None:
        ctx = ctx.parent
    return str(ctx.info_name) if ctx.parent is not None else ""


def _has_rare(command: Any, ctx: Any) -> bool:
    return any(is_rare(one.opts[0], _verb(ctx)) and not one.required for one in options_of(command))


class Command(TyperCommand):
    """A command that prints its help so."""

    def get_params(self, ctx: Any) -> list[Any]:
        found = super().get_params(ctx)
        return [*found, _help_all()] if _has_rare(self, ctx) else found

    def format_help(self, ctx: Any, formatter: Any) -> None:
        print_help(self, ctx)


class Group(TyperGroup):
    """A group of commands that prints its help so."""

    def get_params(self, ctx: Any) -> list[Any]:
        found = super().get_params(ctx)
        return [*found, _help_all()] if _has_rare(self, ctx) else found

    def format_help(self, ctx: Any, formatter: Any) -> None:
        print_help(self, ctx)


def dress(app: typer.Typer) -> None:
    """Let all commands and groups of an application, down to the last, print their help so."""
    for command in app.registered_commands:
        if command.cls is TyperCommand:
            command.cls = Command
    for group in app.registered_groups:
        inner = group.typer_instance
        assert inner is not None
        if not isinstance(inner.info.cls, type) and not isinstance(group.cls, type):
            group.cls = Group
        dress(inner)


def print_help(command: Any, ctx: Any, *, everything: bool = False) -> None:
    """Print the help of a command."""
    from tidemill.cli.shared.terminal import console

    out = console(wraps=True)
    out.print()
    out.print(f" {command.get_usage(ctx)}", style="bold")
    out.print()
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        for line in _wrapped(out, paragraph.replace("\n", " "), out.width - 2):
            out.print(" ", line, sep="")
        out.print()
    arguments = [one for one in command.params if one.param_type_name == "argument" and not one.hidden]
    _print_panel(out, "Arguments", (one.get_help_record(ctx) for one in arguments))
    verb = _verb(ctx)
    options = [one for one in command.get_params(ctx) if one.param_type_name == "option" and not one.hidden]
    shown = [one for one in options if everything or one.required or not is_rare(one.opts[0], verb)]
    for title, ones in _by_panel(shown, few=len(options) < FEW).items():
        _print_panel(out, title, (one.get_help_record(ctx) for one in ones))
    if len(shown) < len(options):
        out.print(f" {len(options) - len(shown)} rare options are shown by --help-all.\n")
    _print_commands(out, command, ctx)


def _by_panel(options: list[Any], *, few: bool) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {OWN: []} | {panel.title: [] for panel in PANELS}
    for one in options:
        panel = None if few or one.required else panel_of(one.opts[0])
        found[panel.title if panel is not None else OWN].append(one)
    return {title: ones for title, ones in found.items() if ones}


def _print_commands(out: Console, command: Any, ctx: Any) -> None:
    if not isinstance(command, TyperGroup):
        return
    panels: dict[str, list[tuple[str, str]]] = {}
    for name in command.list_commands(ctx):
        one: Any = command.get_command(ctx, name)
        if one is not None and not one.hidden:
            text = inspect.cleandoc(one.short_help or one.help or "").split("\n\n")[0].replace("\n", " ")
            title = one.rich_help_panel if isinstance(one.rich_help_panel, str) else COMMANDS
            panels.setdefault(title, []).append((name, text))
    for title, commands in panels.items():
        _print_panel(out, title, commands)


def _print_panel(out: Console, title: str, records: Iterable[tuple[str, str] | None]) -> None:
    from rich.console import Group as Lines
    from rich.panel import Panel
    from rich.text import Text

    rows = [(names, text) for record in records if record is not None for names, text in [record]]
    if not rows:
        return
    left = min(LEFT, max(len(names) for names, _ in rows) + 2)
    lines: list[RenderableType] = []
    for names, text in rows:
        wrapped = _wrapped(out, text, out.width - 4 - left)
        if len(names) + 2 > left:
            lines.append(Text(names, style="cyan", no_wrap=True))
        else:
            lines.append(Text.assemble((names.ljust(left), "cyan"), wrapped.pop(0) if wrapped else ""))
        lines += [Text.assemble(" " * left, line) for line in wrapped]
    out.print(Panel(Lines(*lines), title=title, title_align="left", border_style="dim"))


def _wrapped(out: Console, text: str, width: int) -> list[Any]:
    """Lines of a text. What marks a bracket as none of Rich's markup is left out."""
    from rich.text import Text

    return list(Text(text.replace("\\[", "[")).wrap(out, max(width, 20)))
