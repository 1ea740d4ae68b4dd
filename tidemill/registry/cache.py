"""Ids of registered schemas, in a file beside a changefeed's checkpoint, so that a restart registers nothing again. IO.

    {"registry": URL}
    {"subject": subject, "sha256": of the text, "id": id}      a line for each, the newest last

Each id appends one line, so the file is not rewritten for each of thousands of tables. It may be lost, or end in the middle of a line:
registering a schema again gives the same id. It is valid for one registry, and for subjects that still exist.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Set
from pathlib import Path
from typing import Any

from tidemill.changelog.storage import durable
from tidemill.changelog.storage.outcomes import storage_errors

log = logging.getLogger(__name__)

MOST_IDS = (1 << 31) - 1
KEPT_SCHEMAS = 16
"""Schemas that are kept for a subject. An older one is registered again if it comes back."""


class IdCache:
    """Ids by subject and text. Without a path they live as long as the process."""

    def __init__(self, path: Path | None, registry: str) -> None:
        self._path, self._registry = path, registry
        self._ids: dict[str, dict[str, int]] = {}
        if path is not None:
            lines = _lines(path)
            if lines[:1] == [{"registry": registry}]:
                self._take(lines[1:])
            self._rewrite()

    def get(self, subject: str, text: str) -> int | None:
        """Return the id, if it is known."""
        return self._ids.get(subject, {}).get(_digest(text))

    def put(self, subject: str, text: str, schema_id: int) -> None:
        """Remember an id."""
        digest = _digest(text)
        self._note(subject, digest, schema_id)
        if self._path is not None:
            with storage_errors(str(self._path), writing=True), open(self._path, "a", encoding="utf-8") as file:
                file.write(_line(subject, digest, schema_id))

    def knows(self, subject: str) -> bool:
        """Return whether a schema was registered under the subject."""
        return bool(self._ids.get(subject))

    def keep(self, subjects: Set[str]) -> None:
        """Forget all subjects but these."""
        gone = self._ids.keys() - subjects
        for subject in gone:
            del self._ids[subject]
        if gone:
            self._rewrite()

    def _note(self, subject: str, digest: str, schema_id: int) -> None:
        known = self._ids.setdefault(subject, {})
        known.pop(digest, None)
        known[digest] = schema_id
        while len(known) > KEPT_SCHEMAS:
            del known[next(iter(known))]

    def _take(self, lines: list[Any]) -> None:
        """Take the entries of a file that can be read."""
        for line in lines:
            match line:
                case {"subject": str(subject), "sha256": str(digest), "id": int(schema_id)} if 0 <= schema_id <= MOST_IDS:
                    self._note(subject, digest, schema_id)

    def _rewrite(self) -> None:
        if self._path is not None:
            lines = [_line(s, digest, n) for s, ids in self._ids.items() for digest, n in ids.items()]
            durable.write(self._path, "".join([json.dumps({"registry": self._registry}) + "\n", *lines]).encode(), sync=False)


def _line(subject: str, digest: str, schema_id: int) -> str:
    return json.dumps({"subject": subject, "sha256": digest, "id": schema_id}) + "\n"


def _lines(path: Path) -> list[Any]:
    """Return the lines of a file up to the first broken one. No file has no lines."""
    found: list[Any] = []
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            found.append(json.loads(line))
    except FileNotFoundError:
        pass
    except (ValueError, RecursionError) as error:
        log.warning("%s is broken from line %d on (%s): some schemas are registered again", path, len(found) + 1, error)
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
