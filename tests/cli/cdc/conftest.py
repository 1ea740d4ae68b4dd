"""A server over a fake service, and the command line against it."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator

import pytest

from tests.support.server.apis import served
from tests.support.server.command_line import Cli
from tests.support.server.fake_service import FakeService
from tidemill import tso
from tidemill.cli.main import main


@pytest.fixture(scope="module")
def one_server() -> Iterator[tuple[FakeService, str]]:
    service = FakeService()
    with served(service) as address:
        yield service, address


@pytest.fixture
def cli(
    one_server: tuple[FakeService, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Cli:
    service, address = one_server
    service.forget()
    service.now = tso.compose(time.time_ns() // 1_000_000)
    service.log_starts = service.now - (30 * 86_400_000 << 18)
    monkeypatch.setenv("TIDEMILL_SERVER", address)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setenv("COLUMNS", "200")

    def run(arguments: list[str], typed: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsys.readouterr()
        code = ended.value.code
        return code if isinstance(code, int) else 0, out, err

    return Cli(service, address, run)
