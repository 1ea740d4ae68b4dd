"""`tidemill config`: a changefeed's configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tidemill.cli.shared.options import JsonOption, Output, OutputOption, form
from tidemill.cli.shared.terminal import echo
from tidemill.config.explain import Explained, explain
from tidemill.config.faults import Faults, faults_of
from tidemill.config.file import ChangefeedConfig, load_config
from tidemill.config.uri import check_alone
from tidemill.errors import ConfigError, redact

app = typer.Typer()


@app.callback()
def _group() -> None:
    """Check a changefeed's configuration, and explain each setting."""


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="The changefeed's TOML file.")],
    sink_uri: Annotated[str | None, typer.Option("--sink-uri", help="With it, the settings of sink and protocol are checked too.")] = None,
    output: OutputOption = Output.TEXT,
    as_json: JsonOption = False,
) -> None:
    """Check a file, and show each setting with its value, its default, where it comes from and what it does.

    Ends with 0 if a changefeed can be started with it, else with 1 and a line for each fault, as JSON in `faults`.
    Names of columns and indexes are checked only when a changefeed starts.
    """
    try:
        config = _all_faults(file, sink_uri)
    except ConfigError as error:
        if form(output, as_json) is not Output.JSON:
            raise
        echo(json.dumps({"faults": [_fault(one) for one in faults_of(error)]}, ensure_ascii=False, indent=2))
        raise typer.Exit(1) from None
    settings = explain(config, sink_uri)
    warnings = [redact(w) for w in (*config.warnings, *(config.sink_uri(sink_uri).warnings if sink_uri is not None else ()))]
    if form(output, as_json) is Output.JSON:
        echo(json.dumps({"settings": [asdict(s) for s in settings], "warnings": warnings}, ensure_ascii=False, indent=2))
        return
    for line in _lines(settings):
        echo(line)
    for warning in together(warnings):
        echo(f"warning: {warning}")
    count = f", {len(warnings)} warning{'s' if len(warnings) > 1 else ''}" if warnings else ""
    echo(f"{file}: OK{count}")


_MEANINGLESS = re.compile(r"(?P<file>.*): (?P<key>\S+) has no meaning for Tidemill: (?P<why>.*)", re.DOTALL)


def together(warnings: Sequence[str]) -> list[str]:
    """Warnings for people: keys that have no meaning for the same reason are one line. A whole file of TiCDC's has dozens of them."""
    keys: dict[tuple[str, str], list[str]] = {}
    lines: list[str | tuple[str, str]] = []
    for warning in warnings:
        found = _MEANINGLESS.fullmatch(warning)
        if found is None:
            lines.append(warning)
            continue
        group = (found["file"], found["why"])
        if group not in keys:
            lines.append(group)
        keys.setdefault(group, []).append(found["key"])
    return [line if isinstance(line, str) else _meaningless(*line, keys[line]) for line in lines]


def _meaningless(file: str, why: str, keys: Sequence[str]) -> str:
    return f"{file}: {', '.join(keys)} {'has' if len(keys) == 1 else 'have'} no meaning for Tidemill: {why}"


def _all_faults(file: Path, sink_uri: str | None) -> ChangefeedConfig:
    """The file, checked; faults of file and sink URI are told together. Raises ConfigError."""
    faults, found = Faults(), ChangefeedConfig()
    with faults.collected():
        found = load_config(file)
    if sink_uri is not None:
        with faults.collected():
            check_alone(sink_uri)
    faults.check()
    return found


def _fault(error: ConfigError) -> dict[str, str]:
    return {"code": error.code, "message": redact(error.message), "hint": redact(error.hint)}


def _lines(settings: list[Explained]) -> list[str]:
    """A line a setting: name = value, source, what it does, and the default where it is not in force."""
    shown = [(f"{s.name} = {s.value}" if s.value else s.name, s.source, _about(s)) for s in settings]
    wide = min(max(len(text) for text, _, _ in shown), 64)
    return [f"{text:<{wide}}  {source:<8}  {about}" for text, source, about in shown]


def _about(setting: Explained) -> str:
    other = setting.default and setting.default != setting.value
    return f"{setting.about} (default: {setting.default})" if other else setting.about
