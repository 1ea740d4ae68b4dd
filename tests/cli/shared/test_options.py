"""Options that several verbs have: one spelling for machine output, and `run` gives the capture what `capture` takes."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.support.changelog.logs import golden_log
from tidemill.capture.config import DEFAULT_GRACE, DEFAULT_QUOTA, DEFAULT_STUCK, CaptureConfig, duration_ms, size_bytes
from tidemill.changefeed.feed_folder import FeedFolder
from tidemill.cli.changefeeds import run
from tidemill.cli.changefeeds.launch import Options, Times, children
from tidemill.cli.main import VERBS, build, main, module_of

RUN = ("run", "--pd", "h:1", "--sink-uri", "blackhole://")


def commands() -> Iterator[tuple[str, Any]]:
    """Every command of the command line, by what a person types."""
    for verb in VERBS:
        application: Any = typer.main.get_command(build([verb]))
        yield from _below(verb, application.commands[verb])


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for word, inner in getattr(command, "commands", {}).items():
        yield from _below(f"{name} {word}", inner)


def command_line(name: str) -> typer.Typer:
    """The application in which a command is loaded."""
    return build([name.split()[0]])


def options_of(command: Any) -> dict[str, Any]:
    return {spelling: option for option in command.params if option.param_type_name == "option" for spelling in option.opts}


def test_help_is_printed_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks like markup, as [canal] does, would be left out."""
    monkeypatch.setenv("COLUMNS", "1000")
    for name, command in commands():
        printed = CliRunner().invoke(command_line(name), [*name.split(), "--help"]).output
        for parameter in command.params:
            if parameter.help and not getattr(parameter, "hidden", False):
                assert parameter.help.replace("\\[", "[") in printed, f"{name} {parameter.name}"


def test_machine_output_is_asked_for_in_one_way() -> None:
    with_output = {name for name, command in commands() if "--output" in options_of(command)}
    assert with_output >= {"status", "tables", "config check", "log show", "log heads", "playground query"}
    for name, command in commands():
        options = options_of(command)
        assert ("--output" in options) == ("--json" in options), name
        if "--json" in options:
            assert options["--json"].hidden, name
            assert "-o" in options, name
            assert options["--output"].help == "text for people, json for programs.", name


@pytest.mark.parametrize("flags", [("--output", "json"), ("-o", "json"), ("--json",)])
def test_json_in_each_spelling(tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]) -> None:
    log = golden_log(tmp_path / "log")
    with pytest.raises(SystemExit) as end:
        main(["log", "heads", str(log), *flags])
    assert end.value.code == 0
    assert set(json.loads(capsys.readouterr().out)) == {"resolved_ts", "schema", "partitions"}


def test_another_form_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["log", "heads", str(tmp_path), "--output", "yaml"])
    assert end.value.code == 2
    assert "'yaml' is neither text nor json" in capsys.readouterr().err


def options_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *flags: str) -> Options:
    """What `tidemill run` with these flags would run."""
    found: list[Options] = []

    async def note(options: Options) -> None:
        found.append(options)

    monkeypatch.setattr(run, "run", note)
    with pytest.raises(SystemExit) as end:
        main([*RUN, "--log", str(tmp_path / "log"), "--data-dir", str(tmp_path / "data"), *flags])
    assert end.value.code == 0
    return found[0]


def test_run_gives_the_capture_its_memory_and_patience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = options_for(
        monkeypatch, tmp_path, "--memory-quota", "256MiB", "--stuck-after", "90s", "--lock-grace", "5m", "--tikv-scans", "8"
    )
    capture, _ = children(options, Times(1, 2, None), FeedFolder(tmp_path, "f"))
    argv = capture.argv
    assert argv[argv.index("--memory-quota") + 1] == "256MiB"
    assert argv[argv.index("--region-stuck-after") + 1] == "90s"
    assert (argv[argv.index("--lock-grace") + 1], argv[argv.index("--tikv-scans") + 1]) == ("5m", "8")
    capture, _ = children(options_for(monkeypatch, tmp_path), Times(1, 2, None), FeedFolder(tmp_path, "f"))
    assert {"--memory-quota", "--region-stuck-after", "--lock-grace", "--tikv-scans"}.isdisjoint(capture.argv)


@pytest.mark.parametrize(
    "flags",
    [
        ("--memory-quota", "much"),
        ("--memory-quota", "1MiB"),
        ("--region-stuck-after", "soon"),
        ("--region-stuck-after", "1ms"),
        ("--lock-grace", "2"),
    ],
)
def test_run_refuses_them_before_anything_starts(tmp_path: Path, flags: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([*RUN, "--log", str(tmp_path / "log"), *flags])
    assert end.value.code == 1
    assert capsys.readouterr().err.startswith(f"Error TM:ErrConfig: {flags[0]} ")


def test_run_takes_what_capture_takes() -> None:
    """All flags of `capture`: those of the log and the cluster under the same name, --config as --capture-config. --filter-loop is
    bdr-mode of the TOML file, --term is what a server tells its own capture."""
    capture, whole = (options_of(dict(commands())[verb]) for verb in ("capture", "run"))
    assert set(capture) - set(whole) <= {"-h", "--help", "--filter-loop", "--term"}
    assert "--capture-config" in whole


def test_the_defaults_are_those_of_the_settings() -> None:
    assert size_bytes(DEFAULT_QUOTA, "--memory-quota") == CaptureConfig(pd=("h:1",), log="l").memory_quota
    assert duration_ms(DEFAULT_STUCK, "--stuck-after") / 1000 == CaptureConfig(pd=("h:1",), log="l").stuck_after
    assert duration_ms(DEFAULT_GRACE, "--lock-grace") / 1000 == CaptureConfig(pd=("h:1",), log="l").lock_grace


def test_every_verb_is_a_module_with_help() -> None:
    for verb in VERBS:
        if verb != "version":
            assert importlib.import_module(module_of(verb)).__doc__
    assert [name for name, command in commands() if not command.help] == []
