"""Drops a log: deletes its files, log.json first, so that what a crash leaves is not a log."""

from __future__ import annotations

from tidemill.changelog import imports, layout
from tidemill.changelog.storage.open import Storage

FOLDERS = (layout.ROWS, layout.SCHEMA, layout.FEEDS, layout.FENCES, layout.SNAPSHOT, imports.FOLDER)


def drop(storage: Storage) -> None:
    """Delete a log that has no writer. Other files in its folder stay, and the folder with them."""
    storage.delete(layout.IDENTITY)
    storage.settle("")
    for folder in FOLDERS:
        storage.delete_folder(folder)
    storage.delete(f"{layout.SCHEMA}.lock")
    storage.delete(layout.PROBE)
    storage.delete(layout.LOCK)
