"""Small files that survive a crash: written under another name, synced, renamed, the folder synced.

A disk or mount that fails is told as the log's storage is: LogUnavailable where it may answer later, DiskLow, LogRefused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemill.changelog.storage.outcomes import storage_errors


def write(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace a file at once. `sync`: it is safe from a crash of the machine when this returns. Written again after it failed, it is there
    once."""
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
    """Replace a JSON file at once."""
    write(path, (json.dumps(content, indent=1) + "\n").encode(), sync=sync)


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object; None where there is no file. Raises ValueError for anything else."""
    try:
        with storage_errors(str(path)):
            data = path.read_bytes()
    except FileNotFoundError:
        return None
    content = json.loads(data)
    if not isinstance(content, dict):
        raise ValueError("no JSON object")
    return content
