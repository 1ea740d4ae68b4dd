"""What a shell gets when Tab is pressed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.changelog.logs import golden_log
from tests.support.server.apis import served
from tests.support.server.fake_service import FakeService
from tests.support.thorough import few_of
from tidemill.cli.cdc.client import Client
from tidemill.cli.main import main
from tidemill.cli.shared import completion
from tidemill.cli.shared.completion import VARIABLE

Complete = Callable[[str], list[str]]


@pytest.fixture
def complete(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Complete:
    """What Bash is offered at the end of a line."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TIDEMILL_LOG", raising=False)
    monkeypatch.setattr(completion, "SERVER_S", 60.0)
    monkeypatch.setattr(completion, "LOG_S", 60.0)

    def ask(line: str) -> list[str]:
        words = line.split(" ")
        monkeypatch.setenv(VARIABLE, "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        capsys.readouterr()
        with pytest.raises(SystemExit):
            main([])
        out, err = capsys.readouterr()
        assert err == ""
        return out.split()

    return ask


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_verbs_commands_and_options(complete: Complete) -> None:
    assert complete("tidemill change") == ["changefeed"]
    assert complete("tidemill changefeed pa") == ["pause"]
    assert complete("tidemill log sh") == ["show"]
    assert complete("tidemill run --log-re") == ["--log-retention"]
    assert complete("tidemill run --lock-g") == ["--lock-grace"]
    assert complete("tidemill run --help-") == ["--help-all"]


@pytest.mark.parametrize("words", ["changefeed show", "changefeed pause -c", "cli changefeed query -c", "changefeed remove"])
def test_changefeeds_of_the_server(complete: Complete, words: str) -> None:
    with served(FakeService()) as address:
        with Client(f"http://{address}") as client:
            for name in ("orders", "items", "others"):
                client.create({"changefeed_id": name, "sink_uri": "kafka://h:1/t?protocol=canal-json"})
        verb, _, rest = words.partition(" ")
        at = f"tidemill {verb} {rest.replace(' -c', f' --server {address} -c') if '-c' in rest else f'{rest} --server {address}'} "
        assert sorted(complete(at + "o")) == ["orders", "others"]
        assert complete(at + "x") == []


def test_a_server_that_is_away_or_silent_leaves_no_names_and_no_words(
    complete: Complete, silent_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "SERVER_S", 0.5)
    assert complete("tidemill changefeed show --server 127.0.0.1:9 o") == []
    assert complete("tidemill changefeed show --user u --server ftp://h o") == []
    assert complete(f"tidemill changefeed show --server {silent_server} o") == []


def test_tables_of_the_log(complete: Complete, tmp_path: Path) -> None:
    log = golden_log(tmp_path / "log")
    found = complete(f"tidemill resync --log {log} --table ")
    assert found == ["test.t1"]
    assert complete(f"tidemill resync --log {log} --table {found[0]}") == [found[0]]
    assert complete(f"tidemill log split {log} --table ") == found
    assert complete(f"tidemill resync --log {tmp_path / 'none'} --table ") == []
    assert complete("tidemill resync --table ") == []


@pytest.mark.parametrize("shell", few_of(["bash", "zsh", "fish"], 1, "made as bash's"))
def test_scripts_of_shells(shell: str, tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [sys.executable, "-m", "tidemill.cli.main"]
    shown = subprocess.run([*command, "--show-completion", shell], env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert f"{VARIABLE}=complete_{shell}" in shown.stdout
    subprocess.run([*command, "--install-completion", shell], env=environment, capture_output=True, timeout=60, check=True)
    assert any(VARIABLE in path.read_text() for path in tmp_path.rglob("*") if path.is_file())
