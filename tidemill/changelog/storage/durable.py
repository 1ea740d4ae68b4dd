"""Small files that survive a crash: written under another name, synced, renamed, then the folder is synced.

Errors of a disk or mount are raised as for the log's storage: LogUnavailable if it may pass, DiskLow, LogRefused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemill.changelog.storage.outcomes import storage_errors


def write(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace a file atomically. `sync`: it survives a crash of the machine when this returns. A failed write may be repeated."""
    with storage_errors(str(path), writing=True):
        _write(path, data, sync=sync)


def _write(path: Path, data: bytes, *, sync: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(path)
    if sync:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_json(path: Path, content: Mapping[str, Any], *, sync: bool = True) -> None:
    """Replace a JSON file atomically."""
    write(path, (json.dumps(content, indent=1) + "\n").encode(), sync=sync)


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
