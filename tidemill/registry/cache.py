"""Which schema texts a registry has given ids to, remembered beside a changefeed's checkpoint: a restart registers nothing again. IO.

    {"registry": URL, "subjects": {subject: {SHA-256 of the text: id}}}

The file may be lost: registering a schema again gives the same id. It counts for one registry only, and only for subjects that are there.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Set
from pathlib import Path

from tidemill.pipeline import durable

log = logging.getLogger(__name__)

KEPT_SCHEMAS = 16
"""Of a subject: what is older is registered again when it comes back."""


class IdCache:
    """Ids by subject and text. Without a path it lives as long as the process."""

    def __init__(self, path: Path | None, registry: str) -> None:
        self._path, self._registry = path, registry
        self._ids: dict[str, dict[str, int]] = _read(path, registry) if path is not None else {}

    def get(self, subject: str, text: str) -> int | None:
        """The id, if it is known."""
        return self._ids.get(subject, {}).get(_digest(text))

    def put(self, subject: str, text: str, schema_id: int) -> None:
        """Remember an id."""
        known = self._ids.setdefault(subject, {})
        known.pop(_digest(text), None)
        known[_digest(text)] = schema_id
        while len(known) > KEPT_SCHEMAS:
            del known[next(iter(known))]
        self._write()

    def knows(self, subject: str) -> bool:
        """Was a schema registered under the subject?"""
        return bool(self._ids.get(subject))

    def keep(self, subjects: Set[str]) -> None:
        """Forget all subjects but these."""
        gone = self._ids.keys() - subjects
        for subject in gone:
            del self._ids[subject]
        if gone:
            self._write()

    def _write(self) -> None:
        if self._path is not None:
            durable.write_json(self._path, {"registry": self._registry, "subjects": self._ids}, sync=False)


def _read(path: Path, registry: str) -> dict[str, dict[str, int]]:
    """What the file says; nothing where it is lost, broken or of another registry."""
    try:
        content = durable.read_json(path) or {}
        if content.get("registry") != registry:
            return {}
        return {str(s): {str(d): int(n) for d, n in ids.items()} for s, ids in content["subjects"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("%s cannot be read (%s): schemas are registered again", path, error)
        return {}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
