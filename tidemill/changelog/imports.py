"""Physical imports that the stream of changes showed: Lightning and IMPORT INTO write rows past it, and say so in those that a scan finds.

    imports/<commit_ts>-<physical table id>.json     nothing inside: the name says it

The capture writes one before the rows themselves. Of an import the stream has only some rows or none, so a changefeed that wants the table
stops there (`delivery.inputs.coverage`).
"""

from __future__ import annotations

import re

from tidemill.changelog.storage.open import Storage

FOLDER = "imports"

_NAME = re.compile(r"(\d{20})-(\d+)\.json")


def note(storage: Storage, ts: int, table_id: int) -> None:
    """Rows of the physical table were imported with this commit ts. Writing it again changes nothing."""
    storage.replace(f"{FOLDER}/{ts:020d}-{table_id}.json", b"{}\n")


def noted(storage: Storage) -> list[tuple[int, int]]:
    """(commit_ts, physical table id) of all, oldest first."""
    return sorted((int(m[1]), int(m[2])) for name in storage.names(FOLDER) if (m := _NAME.fullmatch(name)))


def forget(storage: Storage, upto_ts: int) -> None:
    """Delete the notes up to a ts that no changefeed will ask for any more."""
    for ts, table_id in noted(storage):
        if ts <= upto_ts:
            storage.delete(f"{FOLDER}/{ts:020d}-{table_id}.json")
