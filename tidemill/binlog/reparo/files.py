"""The files of a Drainer's folder → what they tell, in order, each thing once."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from datetime import tzinfo
from pathlib import Path

from tidemill.binlog.drainer.files import NAME
from tidemill.binlog.outputs.frames import records
from tidemill.binlog.outputs.named import Told
from tidemill.binlog.outputs.reading import decode_file
from tidemill.errors import ConfigError, MalformedMessage


def told_in(folder: Path, zone: tzinfo) -> Iterator[Told]:
    """Yield what the files of a folder tell. Raises ConfigError where there are none, MalformedMessage naming file and offset, OSError.

    After a crash a Drainer writes again what it had written last. This is left out.
    """
    if not folder.is_dir():
        raise ConfigError(f"data-dir {folder} is no folder")
    paths = sorted(path for path in folder.iterdir() if NAME.fullmatch(path.name))
    if not paths:
        raise ConfigError(f"data-dir {folder} has no file of a Drainer", hint="They are named binlog-<16 digits>-<14 digits>.")
    newest, seen = 0, set[bytes]()
    for path in paths:
        for at, payload in _records(path):
            try:
                told = decode_file(payload, zone)
            except MalformedMessage as error:
                raise MalformedMessage(f"{path}: the record at byte {at}: {error.message}") from None
            if told.commit_ts > newest:
                newest, seen = told.commit_ts, set()
            elif told.commit_ts < newest or payload in seen:
                continue
            seen.add(payload)
            yield told


def _records(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        if path.stat().st_size:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                yield from records(data, str(path))
