"""Notes of physical imports. Lightning and IMPORT INTO write rows that bypass the change feed; a later scan finds the rows, marked as
imported.

    imports/<commit_ts>-<physical table id>.json     empty: the name has everything

The capture writes a note before the rows themselves. The change feed has only some rows of an import, or none. So a changefeed of the table
stops there (`delivery.inputs.coverage`).
"""

from __future__ import annotations

import re

from tidemill.changelog.storage.open import Storage

FOLDER = "imports"

_NAME = re.compile(r"(\d{20})-(\d+)\.json")


def note(storage: Storage, ts: int, table_id: int) -> None:
    """Note that rows of the physical table were imported with this commit ts. It may be called again for the same import."""
    storage.replace(f"{FOLDER}/{ts:020d}-{table_id}.json", b"{}\n")


def noted(storage: Storage) -> list[tuple[int, int]]:
    """Return (commit_ts, physical table id) of all imports, oldest first."""
    return sorted((int(m[1]), int(m[2])) for name in storage.names(FOLDER) if (m := _NAME.fullmatch(name)))


def forget(storage: Storage, upto_ts: int) -> None:
    """Delete the notes up to `upto_ts`, which no changefeed will ask for any more."""
    for ts, table_id in noted(storage):
        if ts <= upto_ts:
            storage.delete(f"{FOLDER}/{ts:020d}-{table_id}.json")
