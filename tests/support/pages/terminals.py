"""Commands of a page, run as they stand there: in a network and a /tmp of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PATIENCE_S = 240.0
_ALONE = ("unshare", "--net", "--mount", "--fork", "--kill-child")
# Of a new network the loopback is down.
_LOOPBACK = """
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    fcntl.ioctl(control, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))
os.execvp("sh", ["sh", "-c", sys.argv[1]])
"""


def alone() -> bool:
    """Whether this machine lets a test have a network of its own."""
    return subprocess.run([*_ALONE, "true"], capture_output=True, check=False).returncode == 0


needs_a_network = pytest.mark.skipif(not alone(), reason="needs the right to make a network namespace")
needs_its_tmp = pytest.mark.skipif(
    ROOT.is_relative_to("/tmp"), reason="this checkout lies in /tmp, and the commands get a /tmp of their own"
)


@dataclass(frozen=True, slots=True)
class Line:
    """A command of a page. `ends`: the exit code that its comment tells."""

    command: str
    ends: int = 0


def lines_of(text: str) -> list[Line]:
    """The commands of a text: what is indented, without comments. `# ends with N` tells the exit code."""
    indented = "\n".join(line[4:] for line in re.sub(r"```.*?```", "", text, flags=re.DOTALL).splitlines() if line.startswith("    "))
    found = []
    for line in indented.replace("\\\n", " ").splitlines():
        command, _, comment = re.sub(r" +", " ", line).partition(" # ")
        if command.strip():
            code = re.search(r"ends with (\d+)", comment)
            found.append(Line(command.strip(), int(code[1]) if code else 0))
    return found


def files_of(text: str) -> dict[str, str]:
    """The files of a page, by path: fenced blocks whose first line is a comment with nothing but the path."""
    return dict(re.findall(r"```\w*\n# (/\S+)\n(.*?)```", text, re.DOTALL))


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

    def export(self, variables: Mapping[str, str], path: Path | None = None) -> None:
        """Set variables of the environment, for what is run from now on. `path`: a folder of programs that are taken first."""
        self._environment |= variables
        if path is not None:
            self._environment["PATH"] = f"{path}:{self._environment['PATH']}"

    def put(self, path: str, text: str) -> None:
        """Write a file, which is seen in these shells only."""
        inside = self._inside(f'mkdir -p "$(dirname {path})" && exec cat > {path}', replaced=False)
        subprocess.run(inside, input=text, text=True, env=self._environment, check=True)

    def start(self, command: str, name: str) -> Path:
        """Run a command until the end, its output in a file."""
        out = self._folder / f"{name}.txt"
        with out.open("wb") as file:
            self._running.append(subprocess.Popen(self._inside(command), stdout=file, stderr=file, env=self._environment, cwd=ROOT))
        return out

    def run(self, command: str, ends: int | None = 0) -> str:
        """The output of a command, which ends with this code; None: with any."""
        done = subprocess.run(self._inside(command), capture_output=True, text=True, env=self._environment, cwd=ROOT, check=False)
        assert ends in (None, done.returncode), f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def _inside(self, command: str, *, replaced: bool = True) -> list[str]:
        [child] = self._children()
        shell = f"exec {command}" if replaced else command
        return ["nsenter", "--target", str(child), "--net", "--mount", f"--wdns={ROOT}", "sh", "-c", shell]

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

    def answer_with(self, command: str, word: str, log: Path, ends: int | None = 0) -> str:
        """The output of a command that is run until it has a word."""
        until = time.monotonic() + PATIENCE_S
        while word not in (said := self.run(command, ends)):
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
