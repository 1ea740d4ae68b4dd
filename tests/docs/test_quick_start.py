"""The commands of the quick start run as they stand there, in a network and a /tmp of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "quick-start.md").read_text(encoding="utf-8")
PATIENCE_S = 240.0
_ALONE = ("unshare", "--net", "--mount", "--fork", "--kill-child")
# Of a new network the loopback is down.
_LOOPBACK = """
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    fcntl.ioctl(control, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))
os.execvp("sh", ["sh", "-c", sys.argv[1]])
"""


def commands(heading: str) -> list[str]:
    """The commands of a section, one a line, without comments."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = "\n".join(line[4:] for line in section.splitlines() if line.startswith("    ")).replace("\\\n", " ")
    return [re.sub(r"\s+#.*", "", line) for line in lines.splitlines() if line.startswith("tidemill ")]


class Terminals:
    """Shells in a network namespace and a /tmp of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(folder)}
        self._environment.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
        self._environment |= {"TMPDIR": str(folder)}
        mount = "mount -t tmpfs tmpfs /tmp && exec sleep infinity"
        self._holder = subprocess.Popen([*_ALONE, sys.executable, "-c", _LOOPBACK, mount], env=self._environment)
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, command: str, name: str) -> Path:
        """Run a command until the end, its output in a file."""
        out = self._folder / f"{name}.txt"
        with out.open("wb") as file:
            self._running.append(subprocess.Popen(self._inside(command), stdout=file, stderr=file, env=self._environment, cwd=ROOT))
        return out

    def run(self, command: str) -> str:
        done = subprocess.run(self._inside(command), capture_output=True, text=True, env=self._environment, cwd=ROOT, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def _inside(self, command: str) -> list[str]:
        [child] = self._children()
        return ["nsenter", "--target", str(child), "--net", "--mount", f"--wdns={ROOT}", "sh", "-c", f"exec {command}"]

    def _children(self) -> list[int]:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            path = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
            found = [int(pid) for pid in path.read_text().split()]
            if found and b"sleep" in Path(f"/proc/{found[0]}/cmdline").read_bytes().split(b"\0")[0]:
                return found
            time.sleep(0.05)
        raise AssertionError("no namespace")

    def interrupt(self, number: int) -> int:
        process = self._running[number]
        process.send_signal(signal.SIGINT)
        return process.wait(PATIENCE_S)

    def close(self) -> None:
        for process in reversed(self._running):
            process.kill()
            process.wait()
        self._holder.kill()
        self._holder.wait()


def alone() -> bool:
    """Whether this machine lets the test have a network of its own."""
    return subprocess.run([*_ALONE, "true"], capture_output=True, check=False).returncode == 0


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    made = Terminals(tmp_path)
    try:
        yield made
    finally:
        made.close()


def answer_with(terminals: Terminals, command: str, word: str, log: Path) -> str:
    """The output of a command that is run until it has a word."""
    until = time.monotonic() + PATIENCE_S
    while word not in (said := terminals.run(command)):
        assert time.monotonic() < until, said + log.read_text()
        time.sleep(0.5)
    return said


def text_with(out: Path, word: str) -> str:
    """The output of a command once it has a word."""
    until = time.monotonic() + PATIENCE_S
    while word not in (text := out.read_text(errors="replace")):
        assert time.monotonic() < until, text
        time.sleep(0.1)
    return text


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(not alone(), reason="needs the right to make a network namespace")
@pytest.mark.skipif(ROOT.is_relative_to("/tmp"), reason="this checkout lies in /tmp, and the commands get a /tmp of their own")
def test_by_hand(terminals: Terminals) -> None:
    playground, run, create, insert, status, show = commands("3. By hand")
    text_with(terminals.start(playground, "playground"), "PD is at 127.0.0.1:12379")
    log = terminals.start(run, "run")
    text_with(log, "the first batch since this start begins")
    terminals.run(create)
    terminals.run(insert)
    answer_with(terminals, show, "hello", log)
    said = answer_with(terminals, status, "normal (process", log)  # it is written behind the batch that has the row
    assert "running" in said
    assert terminals.interrupt(1) == 0
