"""Files of records → what they tell, in order, each thing once."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from datetime import tzinfo
from pathlib import Path

from tidemill.binlog.outputs.frames import records, whole_size
from tidemill.binlog.outputs.named import Told
from tidemill.errors import MalformedMessage

Decode = Callable[[bytes, tzinfo], Told]


def told_in(paths: Sequence[Path], decode: Decode, zone: tzinfo, *, torn: bool = False) -> Iterator[Told]:
    """Yield what files tell. Raises MalformedMessage naming file and offset, OSError. `torn`: the last file may end within a record.

    After a crash a Drainer writes again what it had written last. This is left out.
    """
    newest, seen = 0, set[bytes]()
    for path in paths:
        for at, payload in _records(path, torn=torn and path == paths[-1]):
            try:
                told = decode(payload, zone)
            except MalformedMessage as error:
                raise MalformedMessage(f"{path}: the record at byte {at}: {error.message}") from None
            if told.commit_ts > newest:
                newest, seen = told.commit_ts, set()
            elif told.commit_ts < newest or payload in seen:
                continue
            seen.add(payload)
            yield told


def _records(path: Path, *, torn: bool) -> Iterator[tuple[int, bytes]]:
    if not path.stat().st_size:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield from records(data, str(path), whole_size(data) if torn else None)
