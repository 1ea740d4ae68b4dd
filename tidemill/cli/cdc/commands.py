"""How a command of `tidemill cli` is made: with the flags of the connection, with TiCDC's errors, and with its spellings of flags."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Container
from typing import Any, Concatenate, ParamSpec

import typer

from tidemill.cli.cdc.client import Client
from tidemill.cli.cdc.connection import OPTIONS, Connection
from tidemill.cli.cdc.output import Aborted
from tidemill.cli.shared import help
from tidemill.cli.shared.terminal import echo
from tidemill.errors import TidemillError, redact

P = ParamSpec("P")
SWITCHES = frozenset({"--no-confirm", "--all", "--simple", "--verbose", "--disable-gc-check"})
"""Flags without a value. TiCDC also takes `--flag=true`."""
_TRUE, _FALSE = {"1", "t", "T", "TRUE", "true", "True"}, {"0", "f", "F", "FALSE", "false", "False"}


def spelled(arguments: list[str]) -> list[str]:
    """Return arguments as this command line reads them: `--flag=true` is `--flag`, `-c=id` is `-c id`."""
    result: list[str] = []
    for place, word in enumerate(arguments):
        if word == "--":
            return result + arguments[place:]
        name, mark, value = word.partition("=")
        if mark and name in SWITCHES and value in _TRUE | _FALSE:
            result += [name] if value in _TRUE else []
        elif mark and len(name) == 2 and name[0] == "-" and name[1].isalpha():
            result += [name, value]
        else:
            result.append(word)
    return result


class Group(help.Group):
    """A group of commands that takes TiCDC's spellings."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spelled(args))


def with_flags(
    function: Callable[..., None], call: Callable[[Connection, dict[str, Any]], None], given: Container[str] = ()
) -> Callable[..., None]:
    """Return a command with a function's parameters, but for its first and those in `given`, and with those of the connection.

    `call` gets both."""
    hints = typing.get_type_hints(function, include_extras=True)
    own = [one for one in list(inspect.signature(function).parameters.values())[1:] if one.name not in given]
    parameters = [one.replace(annotation=hints[one.name]) for one in own]
    parameters.insert(0, inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context))
    parameters += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in OPTIONS.items()]

    def command(ctx: typer.Context, **values: Any) -> None:
        flags = Connection.of({name: values.pop(name) for name in OPTIONS}).over(ctx.obj)
        if ctx.invoked_subcommand is not None:
            ctx.obj = flags
        else:
            call(flags, values)

    command.__doc__, command.__name__ = function.__doc__, function.__name__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def verb(app: typer.Typer, name: str, *, hidden: bool = False) -> Callable[[Callable[Concatenate[Client, P], None]], Any]:
    """Return a decorator that makes a command of a function whose first parameter is the client. Errors are printed as TiCDC does:
    `Error: [CODE]message`, and the command ends with 1. One that the user has aborted ends with 0."""

    def made(function: Callable[Concatenate[Client, P], None]) -> Any:
        def call(connection: Connection, given: dict[str, Any]) -> None:
            with said_as_ticdc(), connection.client() as client:
                function(client, **given)  # type: ignore[call-arg]

        app.command(name, hidden=hidden)(with_flags(function, call))
        return function

    return made


class said_as_ticdc:
    """Turns errors into TiCDC's output and exit code."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Aborted):
            raise typer.Exit(0) from None
        if isinstance(error, TidemillError):
            hint = f". {error.hint}" if error.hint else ""
            echo(redact(f"Error: [{error.code}]{error.message}{hint}"), err=True)
            raise typer.Exit(1) from None


def group_callback() -> Callable[..., None]:
    """Return the callback of the group, which takes the connection's flags before the command."""

    def callback(_: None = None) -> None:
        """Manage changefeeds and servers, as `cdc cli` does."""

    return with_flags(callback, lambda _connection, _given: None)
