"""`tidemill top`: what a server does, live in a terminal; the numbers of its web page."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.shared.frame import Line, Sort, coloured, frame, plain, scrollable
from tidemill.errors import ConfigError, TidemillError

if TYPE_CHECKING:
    from tidemill.cli.cdc.client import Client

OVERVIEW = "/api/page/overview"
WIDE = 100
"""Columns of --once where there is no terminal."""
_FOOTER = "q quit   sort: s state  l lag  r rows/s  n name   scroll: j k ↓ ↑ space"
_FIELDS = ("now", "server", "capture", "changefeeds", "processes")

AddrOption = Annotated[
    str | None, typer.Option("--addr", "--server", help="HOST:PORT of a `tidemill server`, or of a run's --status-addr.")
]
CaOption = Annotated[str | None, typer.Option("--ca", help="PEM file with the server's CA.")]
CertOption = Annotated[str | None, typer.Option("--cert", help="PEM file with a client certificate.")]
KeyOption = Annotated[str | None, typer.Option("--key", help="PEM file with the key of --cert.")]


def command(
    addr: AddrOption = None,
    ca: CaOption = None,
    cert: CertOption = None,
    key: KeyOption = None,
    once: Annotated[bool, typer.Option("--once", help="Print one frame, and end.")] = False,
    every: Annotated[float, typer.Option("--every", min=0.5, max=3600, help="Seconds between two looks.")] = 2.0,
) -> None:
    """Show what a server does, live: its changefeeds with state, lag and speed, what holds the log, errors with what to do.

    q quits. s, l, r and n sort by state, lag, rows/s and name. j, k, the arrows and space scroll.
    """
    if not once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError(
            "`tidemill top` needs a terminal",
            hint="`tidemill top --once` prints one frame, `tidemill status --addr HOST:PORT --output json` is for programs.",
        )
    with client(addr, ca, cert, key) as server:
        told = overview(server)
        if once:
            print_frame(told)
        else:
            Top(server, told, every).run()


def client(addr: str | None, ca: str | None, cert: str | None, key: str | None) -> Client:
    """Return a client of a server. Raises ConfigError."""
    from tidemill.cli.cdc.connection import Connection

    return Connection(server=addr, ca=ca, cert=cert, key=key).client("--addr")


def overview(server: Client) -> dict[str, Any]:
    """Ask for what is shown. Raises ServerUnavailable, also for a server of another kind or version."""
    from tidemill.cli.cdc.client import ServerUnavailable

    found = server.send("GET", OVERVIEW)
    if not isinstance(found, dict) or not set(_FIELDS) <= found.keys():
        raise ServerUnavailable(f"{server.address} is not a `tidemill server` of this version", hint="Name its address with --addr.")
    return found


def print_frame(told: dict[str, Any]) -> None:
    """Print everything once, with colours where the output is a terminal."""
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((WIDE, 0)).columns
    for line in made(told, width, height=None):
        typer.echo(_shown(line) if terminal else plain(line), color=True)


def made(told: dict[str, Any], width: int, **how: Any) -> list[Line]:
    """Return a frame. Raises ServerUnavailable for an answer that has another form."""
    from tidemill.cli.cdc.client import ServerUnavailable

    try:
        return frame(told, width, **how)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, OSError) as error:
        raise ServerUnavailable(
            f"the server answers in another form than this version's: {error!r}", hint="Use the `tidemill` of the server's version."
        ) from None


def _shown(line: Line) -> str:
    return plain(line) if os.environ.get("NO_COLOR") else coloured(line)


class Top:
    """The loop: a thread asks the server, this one draws and takes keys. A server that does not answer holds up no key."""

    def __init__(self, server: Client, told: dict[str, Any], every: float) -> None:
        self._server, self._every = server, every
        self._told, self._error = told, ""
        self._sort, self._skip = Sort.STATE, 0
        self._over = threading.Event()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    def run(self) -> None:
        """Run until q, Ctrl-C or the end of the input."""
        threading.Thread(target=self._look, name="look", daemon=True).start()
        before = signal.signal(signal.SIGWINCH, lambda *_: self._ring())
        try:
            with _screen():
                while not self._over.is_set():
                    self._draw()
                    ready, _, _ = select.select([sys.stdin.fileno(), self._woken], [], [])
                    if self._woken in ready:
                        os.read(self._woken, 4096)
                    if sys.stdin.fileno() in ready:
                        self.press(os.read(sys.stdin.fileno(), 64))
        except KeyboardInterrupt:
            pass
        finally:
            self._over.set()
            signal.signal(signal.SIGWINCH, before)

    def _ring(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._wake, b".")

    def _look(self) -> None:
        while not self._over.wait(self._every):
            try:
                self._told, self._error = overview(self._server), ""
            except TidemillError as error:
                self._error = f"{error.code}: {error.message}"
            except RuntimeError:  # the client is closed: q was pressed
                if not self._over.is_set():
                    raise
                return
            self._ring()

    def press(self, keys: bytes) -> None:
        """Do what was typed. No bytes: the terminal is gone."""
        if keys in (b"", b"\x04") or b"q" in keys:
            self._over.set()
            return
        page = max(1, shutil.get_terminal_size().lines - 8)
        by = {
            b"j": 1,
            b"\x1b[B": 1,
            b"\x1bOB": 1,
            b"k": -1,
            b"\x1b[A": -1,
            b"\x1bOA": -1,
            b" ": page,
            b"\x1b[6~": page,
            b"b": -page,
            b"\x1b[5~": -page,
        }
        if keys in by:
            lines = scrollable(self._told, shutil.get_terminal_size().columns)
            self._skip = max(0, min(lines - 1, self._skip + by[keys]))
        for sort in Sort:
            if keys == sort.value.encode():
                self._sort, self._skip = sort, 0

    def _draw(self) -> None:
        size = shutil.get_terminal_size()
        footer = f" {self._error}: what is shown is old" if self._error else f" by {self._sort.name.lower()}   {_FOOTER}"
        lines = made(self._told, size.columns, height=size.lines, sort=self._sort, skip=self._skip, footer=footer)
        text = "\r\n".join(f"{_shown(line)}\x1b[K" for line in lines[: size.lines])
        sys.stdout.write(f"\x1b[H{text}\x1b[J")
        sys.stdout.flush()


@contextmanager
def _screen() -> Iterator[None]:
    """A screen of its own, keys one by one; afterwards the terminal is as it was."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        sys.stdout.write("\x1b[?1049h\x1b[?25l\x1b[2J")
        yield
    finally:
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def status_of(addr: str, tls: tuple[Path | None, Path | None, Path | None]) -> dict[str, Any]:
    """Return what a server shows, for `tidemill status --addr`."""
    with client(addr, *(str(one) if one else None for one in tls)) as server:
        return overview(server)
