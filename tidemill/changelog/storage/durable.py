"""Small files of a file system, replaced as a whole: written under another name, synced, renamed, then the folder is synced.

The other name is unlike that of any other writer: threads, processes and hosts may write the same file. A folder that is missing is made,
and synced into its parent, up to the first folder that was there. Errors of a disk or mount are raised as for the log's storage:
LogUnavailable if it may pass, DiskLow, LogRefused.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemill.changelog.storage.base import temporary_name
from tidemill.changelog.storage.outcomes import storage_errors


def put(path: str, data: bytes, *, sync: bool = True, mode: int = 0o666) -> None:
    """Replace a file atomically. `sync`: it survives a crash of the machine when this returns. `mode`: who may read and write it, less what
    the umask forbids. A failed call leaves the file as it was, and may be repeated. Raises OSError."""
    folder = os.path.dirname(path) or "."  # noqa: PTH120 – heads are written often, pathlib doubles the price
    temporary = f"{folder}/{temporary_name()}"
    try:
        _write(temporary, data, sync=sync, mode=mode)
        try:
            os.replace(temporary, path)  # noqa: PTH105
        except FileNotFoundError:  # a writer that opened the log just now took it for what a dead one left
            _write(temporary, data, sync=sync, mode=mode)
            os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        forget(temporary)
        raise
    if sync:
        sync_folder(folder)


def replace(path: str, data: bytes, *, sync: bool, mode: int = 0o666) -> None:
    """As `put`. Raises LogUnavailable, LogRefused, DiskLow."""
    with storage_errors(path, writing=True):
        put(path, data, sync=sync, mode=mode)


def _write(path: str, data: bytes, *, sync: bool, mode: int) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    except FileNotFoundError:
        folder = str(Path(path).parent)
        if Path(folder).is_dir():
            raise
        make_folder(folder)  # synced in any case: a later file in it is to be durable
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        if os.write(handle, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if sync:
            os.fsync(handle)
    finally:
        os.close(handle)


def forget(temporary: str) -> None:
    """Remove a file that nobody will read. If that fails too, the next owner of its folder removes it."""
    with contextlib.suppress(OSError):
        Path(temporary).unlink(missing_ok=True)


def sync_folder(path: str) -> None:
    """Let the names in a folder survive a crash of the machine. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: str | Path, *, sync: bool = True, mode: int = 0o777) -> None:
    """Create a folder and its parents, durably. `mode`: of the folder itself. Raises OSError."""
    target = Path(path)
    if target.is_dir():
        return
    make_folder(target.parent, sync=sync)
    target.mkdir(mode=mode, exist_ok=True)
    if sync:
        sync_folder(str(target.parent))


def write(path: Path, data: bytes, *, sync: bool = True, mode: int = 0o666) -> None:
    """As `replace`."""
    replace(os.fspath(path), data, sync=sync, mode=mode)


def write_json(path: Path, content: Mapping[str, Any], *, sync: bool = True) -> None:
    """Replace a JSON file atomically. One that is not synced is written often: it has one line, which takes a tenth of the time."""
    write(path, (json.dumps(content, indent=1 if sync else None) + "\n").encode(), sync=sync)


def read(path: Path) -> bytes | None:
    """Return what a file holds; None if there is none. Raises LogUnavailable, LogRefused."""
    try:
        with storage_errors(str(path)):
            return path.read_bytes()
    except FileNotFoundError:
        return None
