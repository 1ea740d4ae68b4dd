"""The files of a Drainer's folder."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import tzinfo
from pathlib import Path

from tidemill.binlog.drainer.records.files import NAME
from tidemill.binlog.drainer.records.replaying import told_in
from tidemill.binlog.outputs.named import Told
from tidemill.binlog.outputs.reading import decode_file
from tidemill.errors import ConfigError


def told_by(folder: Path, zone: tzinfo) -> Iterator[Told]:
    """Yield what the files of a folder tell. Raises ConfigError where there are none, MalformedMessage naming file and offset, OSError."""
    if not folder.is_dir():
        raise ConfigError(f"data-dir {folder} is not a folder")
    paths = sorted(path for path in folder.iterdir() if NAME.fullmatch(path.name))
    if not paths:
        raise ConfigError(f"data-dir {folder} has no file of a Drainer", hint="They are named binlog-<16 digits>-<14 digits>.")
    yield from told_in(paths, decode_file, zone)
