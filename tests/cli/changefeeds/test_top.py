"""`tidemill top` in a terminal, `--once` and `tidemill status --addr` without one."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator

import pytest

from tests.support.server.apis import in_loop
from tests.support.server.page_scenes import held_capture, mixed, scene
from tidemill.cli.main import main
from tidemill.process.children import environment, python
from tidemill.server.api import create_app
from tidemill.server.api.listener import Listener

PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    service, watch = scene(mixed(), held_capture())
    with in_loop() as run:
        listener = Listener(create_app(service, watch=watch))
        run(listener.start("127.0.0.1:0"))
        yield listener.address
        run(listener.stop())


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int | str | None, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    out, err = capsys.readouterr()
    return ended.value.code, out, err


def test_once_prints_one_frame(address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    code, out, _ = said(capsys, "top", "--once", "--addr", address)
    assert code == 0
    assert "\x1b" not in out
    assert "items-avro" in out
    assert "to do: Change the row" in out
    assert all(len(line) <= 120 for line in out.splitlines())


def test_status_says_the_same_of_a_server(address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    top, status = (said(capsys, *verb, "--addr", address)[1].splitlines() for verb in (("top", "--once"), ("status",)))
    assert [line.split()[:2] for line in status if line] == [line.split()[:2] for line in top if line]
    found = json.loads(said(capsys, "status", "--addr", address, "--output", "json")[1])
    assert len(found["changefeeds"]) == 7


def test_without_a_terminal_it_says_what_to_use(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "top", "--addr", address)
    assert code == 1
    assert "needs a terminal" in err
    assert "--once" in err


def test_no_server_there(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "top", "--once", "--addr", "127.0.0.1:1")
    assert code == 1
    assert "TM:ErrServerUnavailable" in err


class Terminal:
    """`tidemill top` in a pseudo terminal."""

    def __init__(self, address: str, columns: int = 100, lines: int = 30) -> None:
        self.ours, theirs = pty.openpty()
        self.before = termios.tcgetattr(self.ours)
        self.resize(columns, lines)
        argv = python("tidemill.cli.main", "top", "--addr", address, "--every", "0.5")
        sized = {"COLUMNS", "LINES"}  # they would count more than the size of the terminal
        variables = {name: value for name, value in environment({"TERM": "xterm"}).items() if name not in sized}
        self.process = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, env=variables)
        os.close(theirs)
        self.text = ""

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until(self, *words: str, without: str = "\0") -> str:
        """Read until a frame has all of these, and not the other one, and return it."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            frames = self.text.split("\x1b[H")
            found = next((one for one in reversed(frames) if all(word in one for word in words) and without not in one), None)
            if found is not None:
                self.text = ""
                return found
            assert time.monotonic() < deadline, (words, self.text[-3000:])
            if select.select([self.ours], [], [], 1.0)[0]:
                try:
                    self.text += os.read(self.ours, 1 << 16).decode(errors="replace")
                except OSError:  # its other end is closed
                    assert all(word in self.text for word in words), self.text[-3000:]

    def type(self, keys: str) -> None:
        os.write(self.ours, keys.encode())


@pytest.mark.slow
def test_keys_sort_scroll_and_quit(address: str) -> None:
    terminal = Terminal(address)
    first = terminal.until("items-avro", "audit", "by state", "\x1b[J")
    assert first.index("items-avro") < first.index("audit")
    terminal.type("n")
    by_name = terminal.until("items-avro", "audit", "by name", "\x1b[J")
    assert by_name.index("audit") < by_name.index("items-avro")
    terminal.type("jjj")  # read together, they are not a key
    terminal.resize(60, 20)
    os.kill(terminal.process.pid, 28)  # SIGWINCH
    terminal.until("by name", "CHECKPOINT LAG", "\x1b[J", without="SINK")
    terminal.type("q")
    assert terminal.process.wait(PATIENCE_S) == 0
    terminal.until("\x1b[?25h\x1b[?1049l")
    os.close(terminal.ours)
