"""Flags of `tidemill server` reach the server and its processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidemill.cli.main import main
from tidemill.server import run
from tidemill.server.options import TICDC_VERSION, ServerOptions
from tidemill.server.standing_by import Standby


def started(monkeypatch: pytest.MonkeyPatch, folder: Path, *flags: str) -> tuple[ServerOptions, Standby]:
    """What `tidemill server` with these flags would serve."""
    found: list[Any] = []

    async def note(options: ServerOptions, standby: Standby, *_: object) -> None:
        found.append((options, standby))

    monkeypatch.setattr(run, "serve", note)
    with pytest.raises(SystemExit) as end:
        main(["server", "--pd", "h:1", "--log", str(folder / "log"), "--data-dir", str(folder / "data"), *flags])
    assert end.value.code == 0
    ((options, standby),) = found
    return options, standby


@pytest.mark.parametrize(("flags", "version"), [((), TICDC_VERSION), (("--ticdc-version", "v9.1.0"), "v9.1.0")])
def test_the_version_of_ticdc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], version: str) -> None:
    options, _ = started(monkeypatch, tmp_path, *flags)
    assert options.ticdc_version == version


def test_a_version_that_clients_refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["server", "--pd", "h:1", "--log", str(tmp_path / "log"), "--data-dir", str(tmp_path), "--ticdc-version", "v6.1.0"])
    assert end.value.code != 0
    assert "--ticdc-version v6.1.0: cdc cli takes no server before 6.2.0" in capsys.readouterr().err


def test_the_load_on_tikv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, standby = started(monkeypatch, tmp_path, "--tikv-scans", "8", "--lock-grace", "5m")
    assert (standby.capture.tikv_scans, standby.capture.lock_grace) == (8, 300)
    _, standby = started(monkeypatch, tmp_path)
    assert (standby.capture.tikv_scans, standby.capture.lock_grace) == (64, 120), "the capture's own defaults"
