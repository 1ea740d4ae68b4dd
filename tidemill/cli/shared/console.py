"""`console://`: changes as lines for people, as they are delivered.

It is a messages:// sink in the data directory, whose new lines are printed. So all that holds for a sink holds here too, and what was
printed can be shown again.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from tidemill.cli.shared.terminal import cell, console
from tidemill.config.values import parse_bool
from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console as Terminal
    from rich.text import Text

    from tidemill.consumer.shown import Shown

SCHEME = "console://"
LOOK_S = 0.2
COLOURS = {"insert": "green", "update": "yellow", "delete": "red", "DDL": "magenta", "resolved": "dim"}
_DEFAULT = "open-protocol"
_AT_ONCE = 4 << 20


def as_text(line: Shown) -> Text:
    """Return a line in colours."""
    from rich.text import Text

    return Text.assemble(
        (f"{line.at}  ", "dim"), cell(f"{line.table}  " if line.table else ""), (line.what, COLOURS[line.what]), cell(f"  {line.text}")
    )


@dataclass(slots=True)
class Console:
    """Prints what is appended to a file of messages. `at`: up to where it is printed."""

    path: Path
    resolved: bool
    at: int = 0

    def __post_init__(self) -> None:
        self.at = self.path.stat().st_size if self.path.exists() else 0  # what an earlier run printed is not printed again

    async def follow(self) -> None:
        """Print until cancelled, and at the end what is left."""
        terminal = console()
        try:
            while True:
                self.print_new(terminal)
                await asyncio.sleep(LOOK_S)
        finally:
            self.print_new(terminal)

    def print_new(self, terminal: Terminal) -> None:
        """Print the lines that have come since. A line that is not whole yet waits."""
        from tidemill.consumer.shown import shown
        from tidemill.protocols.open.events import ResolvedMessage

        read = _reader()
        while data := self._new():
            for line in data.splitlines():
                for event in read(json.loads(line)):
                    if self.resolved or not isinstance(event, ResolvedMessage):
                        terminal.print(as_text(shown(event)))

    def _new(self) -> bytes:
        if not self.path.exists():
            return b""
        with self.path.open("rb") as file:
            file.seek(self.at)
            data = file.read(_AT_ONCE)
            end = data.rfind(b"\n") + 1
            if not end and len(data) == _AT_ONCE:  # one line is longer
                data += file.readline()
                end = len(data) if data.endswith(b"\n") else 0
        self.at += end
        return data[:end]


def _reader() -> Callable[[Any], list[Any]]:
    from tidemill.consumer.reading import reader

    read = reader(None, None)

    def of(message: Any) -> list[Any]:
        key, value = (None if message[name] is None else b64decode(message[name]) for name in ("key", "value"))
        return list(read(key, value))

    return of


def of_uri(sink_uri: str, file: Path) -> tuple[str, Console | None]:
    """Return the sink that delivers, and what prints; None for other sinks. Raises ConfigError."""
    if not sink_uri.lower().startswith(SCHEME):
        return sink_uri, None
    parts = urlsplit(sink_uri)
    if parts.netloc or parts.path.strip("/"):
        raise ConfigError(f"sink URI {sink_uri}: {SCHEME} has no address", hint="It may have parameters: console://?resolved=true")
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    try:
        resolved = parse_bool(parameters.pop("resolved", "false"))
    except ValueError as error:
        raise ConfigError(f"sink URI {sink_uri}: resolved: {error}") from None
    protocol = parameters.setdefault("protocol", _DEFAULT)
    if protocol not in (_DEFAULT, "default", "canal-json"):
        raise ConfigError(f"sink URI {sink_uri}: {protocol} cannot be shown", hint="Leave protocol out, or take canal-json.")
    if protocol == "canal-json":
        parameters.setdefault("enable-tidb-extension", "true")
    return f"messages://{quote(str(file))}?{urlencode(parameters)}", Console(file, resolved)
