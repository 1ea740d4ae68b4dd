"""What `tidemill decode` shares: bytes as arguments, and words and tables as output."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidemill.cli.shared.terminal import add_row, cell, console
from tidemill.errors import ConfigError

_HEX = re.compile(r"(?:0[xX])?((?:[0-9a-fA-F]{2})*)")
_SHOWN_BYTES = 256
_PIPE_WIDTH = 1000  # columns of an output that is not a terminal

Line = tuple[str, str]

BytesHelp = "hex, base64, or @FILE"


def read_bytes(text: str, what: str) -> bytes:
    """The bytes of an argument. Raises ConfigError."""
    if text.startswith("@"):
        try:
            return Path(text[1:]).read_bytes()
        except OSError as error:
            raise ConfigError(f"the {what} cannot be read from {text[1:]}: {error.strerror}") from None
    text = text.strip()
    found = _HEX.fullmatch(text)
    if found is not None:
        return bytes.fromhex(found.group(1))
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except binascii.Error:
        raise ConfigError(f"the {what} {text[:40]!r} is neither hex nor base64", hint="Give a file with its bytes as @FILE.") from None


def text_of(data: bytes) -> str | None:
    """Bytes as text where they are some."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return cut(text) if text.isprintable() and text else None


def shown_bytes(data: bytes) -> str:
    """Bytes as text, or as hex."""
    text = text_of(data)
    return f"'{text}'" if text is not None else f"0x{cut(data.hex())}" if data else "''"


def cut(text: str) -> str:
    """A text, shortened if it is long."""
    return text if len(text) <= _SHOWN_BYTES else f"{text[:_SHOWN_BYTES]}… ({len(text)} characters)"


def _console() -> Console:
    found = console()
    return found if found.is_terminal else console(width=_PIPE_WIDTH)


def print_lines(lines: Iterable[Line]) -> None:
    """Print words and what they stand for."""
    terminal = _console()
    for name, text in lines:
        terminal.print(Text.assemble((f"{name:<10}", "bold"), " ", cell(text)))


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows below a header."""
    table = Table(*header, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        add_row(table, row)
    _console().print(table)
