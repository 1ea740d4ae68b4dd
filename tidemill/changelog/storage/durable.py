"""Small files that survive a crash: written under another name, synced, renamed, then the folder is synced.

Errors of a disk or mount are raised as for the log's storage: LogUnavailable if it may pass, DiskLow, LogRefused.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemill.changelog.storage.outcomes import storage_errors


def write(path: Path, data: bytes, *, sync: bool = True, mode: int = 0o666) -> None:
    """Replace a file atomically. `sync`: it survives a crash of the machine when this returns. `mode`: who may read and write it, less what
    the umask forbids. A failed write may be repeated."""
    with storage_errors(str(path), writing=True):
        _write(path, data, sync=sync, mode=mode)


def _write(path: Path, data: bytes, *, sync: bool, mode: int) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(_new(temporary, mode), "wb", buffering=0) as file:
        if file.write(data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(temporary))
        if sync:
            os.fsync(file.fileno())
    temporary.replace(path)
    if sync:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _new(temporary: Path, mode: int) -> int:
    """Open a new file, for writing. Usually its folder is there and no file has its name: nothing else is asked then."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(temporary, flags, mode)
    except FileNotFoundError:
        temporary.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        temporary.unlink(missing_ok=True)  # one that a crash left may have another mode
    return os.open(temporary, flags, mode)


def write_json(path: Path, content: Mapping[str, Any], *, sync: bool = True) -> None:
    """Replace a JSON file atomically. One that is not synced is written often: it has one line, which takes a tenth of the time."""
    write(path, (json.dumps(content, indent=1 if sync else None) + "\n").encode(), sync=sync)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return a JSON object; None if there is no file. Raises ValueError for anything else, LogUnavailable, LogRefused."""
    try:
        with storage_errors(str(path)):
            data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        content = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(content, dict):
        raise ValueError("no JSON object")
    return content
