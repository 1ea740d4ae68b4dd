"""Options that several verbs have: one spelling for machine output, and `run` gives the capture what `capture` takes."""

from __future__ import annotations

import importlib
import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.support.changelog.logs import golden_log
from tidemill.capture.config import DEFAULT_GRACE, DEFAULT_QUOTA, DEFAULT_STUCK, CaptureConfig, duration_ms, size_bytes
from tidemill.cli.changefeeds import run
from tidemill.cli.changefeeds.launch import Options
from tidemill.cli.main import VERBS, build, main, module_of
from tidemill.cli.shared.help import options_of as shown_options
from tidemill.cli.shared.panels import PANELS, RARE_IN, is_rare

RUN = ("run", "--pd", "h:1", "--sink-uri", "blackhole://")


def commands() -> Iterator[tuple[str, Any]]:
    """Every command of the command line, by what a person types."""
    for verb in VERBS:
        yield from _below(verb, application_of(verb).commands[verb])


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for word, inner in getattr(command, "commands", {}).items():
        yield from _below(f"{name} {word}", inner)


@cache
def application_of(verb: str) -> Any:
    """The application in which a verb is loaded. Typer makes one of functions, which takes longer than to print all its help."""
    return typer.main.get_command(build([verb]))


def printed(name: str, *arguments: str) -> str:
    """What a command that ends well prints."""
    out = io.StringIO()
    with redirect_stdout(out), pytest.raises(SystemExit) as end:
        application_of(name.split()[0])([*name.split(), *arguments])
    assert end.value.code == 0, name
    return out.getvalue()


def options_of(command: Any) -> dict[str, Any]:
    return {spelling: option for option in command.params if option.param_type_name == "option" for spelling in option.opts}


def rare(name: str, command: Any) -> list[str]:
    """The options of a command that only --help-all shows."""
    return [one.opts[0] for one in shown_options(command) if is_rare(one.opts[0], name.split()[0]) and not one.required]


def test_help_leaves_out_what_is_rare_and_cuts_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name, command in commands():
        hidden, short = rare(name, command), printed(name, "--help")
        names = re.findall(r"^│ (-.*?)(?:  | *│$)", short, re.MULTILINE)
        words = {word.rstrip(",") for one in names for word in one.split()}
        assert {one.opts[0] for one in shown_options(command)} - words == set(hidden), name
        assert max(map(len, short.splitlines())) <= 80, name
        if not hidden:
            assert "--help-all" not in words, name
            continue
        assert f"{len(hidden)} rare options are shown by --help-all." in short
        whole = printed(name, "--help-all")
        for one in shown_options(command):
            for spelling in one.opts:
                assert re.search(rf"(?<![\w-]){spelling}(?![\w-])", whole), f"{name} {spelling}"


def test_the_table_of_panels_has_options_that_there_are_once() -> None:
    known = {one.opts[0] for _, command in commands() for one in shown_options(command)}
    listed = [flag for panel in PANELS for flag in (*panel.common, *panel.rare)]
    assert sorted(set(listed)) == sorted(listed)
    assert set(listed) - known == set()
    for verb, flags in RARE_IN.items():
        assert flags <= {one.opts[0] for name, command in commands() if name.split()[0] == verb for one in shown_options(command)}


def test_two_doors_have_one_table_of_options() -> None:
    """What `changefeed` and `cli changefeed` both take is taken and explained alike, but where TiCDC's takes less."""
    found = dict(commands())
    ticdcs = {"create --start-ts", "create --target-ts", "update --target-ts", "resume --overwrite-checkpoint-ts", "remove --yes"}
    for verb in ("create", "list", "pause", "remove", "resume", "update"):
        short, long = (options_of(found[f"{door} {verb}"]) for door in ("changefeed", "cli changefeed"))
        for flag in short.keys() & long.keys() - {"--help", "-h", "--changefeed-id", "-c"}:
            if f"{verb} {flag}" not in ticdcs:
                assert (short[flag].help, short[flag].hidden) == (long[flag].help, long[flag].hidden), f"{verb} {flag}"


def test_help_is_printed_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks like markup, as [canal] does, would be left out."""
    monkeypatch.setenv("COLUMNS", "1000")
    for name, command in commands():
        everything = printed(name, "--help-all" if rare(name, command) else "--help")
        for parameter in command.params:
            if parameter.help and not getattr(parameter, "hidden", False):
                assert parameter.help.replace("\\[", "[") in everything, f"{name} {parameter.name}"


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
    capture = options.capture
    assert (capture.memory_quota, capture.stuck_after) == (256 << 20, 90)
    assert (capture.lock_grace, capture.tikv_scans) == (300, 8)
    plain = CaptureConfig(pd=capture.pd, log=capture.log, data_dir=capture.data_dir, workers=1)
    assert options_for(monkeypatch, tmp_path).capture == plain


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
    bdr-mode of the TOML file, and --source takes the place of the cluster that a run has."""
    capture, whole = (options_of(dict(commands())[verb]) for verb in ("capture", "run"))
    assert set(capture) - set(whole) <= {"-h", "--help", "--filter-loop", "--source"}
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
