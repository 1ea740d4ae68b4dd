"""Checks whether a place can take a new change log, before anything is started for it."""

from __future__ import annotations

import uuid
from pathlib import Path

from tidemill.changelog import log_format
from tidemill.changelog.storage.durable import make_folder
from tidemill.changelog.storage.open import Storage
from tidemill.errors import LogError, LogRefused, redact

_OURS = {
    *(log_format.SCHEMA, log_format.ROWS, log_format.FEEDS, log_format.FENCES, log_format.SERVER, log_format.SNAPSHOT),
    *(log_format.LOCK, log_format.PROBE, log_format.IDENTITY),
}
"""Files that an interrupted creation of a log may leave, and those of servers, which may be there before the log."""


def check_place(storage: Storage) -> None:
    """Raise LogError if the folder has other files or cannot be written. The check leaves nothing behind."""
    where = redact(storage.location)
    foreign = sorted({*storage.names(""), *storage.subfolders("")} - _OURS)
    foreign = [name for name in foreign if not name.startswith(".")]
    if foreign:
        raise LogError(
            f"--log {where} is not empty and is not a change log: it has {', '.join(foreign[:3])}{' …' if len(foreign) > 3 else ''}",
            hint="Name a folder of its own for the log; it is created if needed.",
        )
    try:
        _write_once(storage)
    except (OSError, LogRefused) as error:
        why = error.message if isinstance(error, LogRefused) else str(error)
        raise LogError(f"--log {where} cannot be written: {why}", hint="Name a place that this user may write to.") from error


def _write_once(storage: Storage) -> None:
    made = _make_folders(Path(storage.location)) if storage.local else []
    name = f".{uuid.uuid4().hex}.tmp"
    try:
        storage.replace(name, b"tidemill\n")
        storage.delete(name)
    finally:
        for folder in reversed(made):
            folder.rmdir()


def _make_folders(path: Path) -> list[Path]:
    """Make a folder and its parents. Return those that did not exist, the highest first."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    make_folder(path)
    return missing[::-1]
