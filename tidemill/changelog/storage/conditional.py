"""Compare-and-swap on an object store, by conditional PUTs whose answers may get lost.

Every version of a file that is swapped is unlike all others (it names its writer), so what is there says whose request won.
"""

from __future__ import annotations

import enum
from typing import Protocol

from tidemill.changelog import layout
from tidemill.changelog.storage.base import Token
from tidemill.errors import LogRefused, LogUnavailable

TRIES = 5
"""So often a request whose outcome stays unknown is made."""

NO_VERSION: Token = '"00000000000000000000000000000000"'


class Outcome(enum.Enum):
    """Of a conditional request that did not succeed for certain."""

    REFUSED = "another version is there"
    UNKNOWN = "no answer, or one that does not say"
    UNCONDITIONAL = "the store does not do conditional requests"


class Objects(Protocol):
    """Single requests to an object store. Names are relative to the log. Raise LogUnavailable where there is
    no answer to a question, LogRefused where the store refuses for another reason."""

    def get(self, name: str) -> tuple[bytes, Token] | None:
        """A small object and its version; None where there is none."""

    def put(self, name: str, data: bytes, expected: Token | None) -> Token | Outcome:
        """Over the version `expected`, or, None, where there is nothing. Returns the new version."""

    def create(self, name: str, path: str) -> bool:
        """A local file as an object; one that is there already stays. False if the file is too large to be put so."""


def swap(objects: Objects, name: str, expected: Token | None, data: bytes) -> Token | None:
    """See `Storage.swap`. Raises LogUnavailable if the store does not say what became of it: asked again for the same, it will say."""
    for _ in range(TRIES):
        outcome = objects.put(name, data, expected)
        if isinstance(outcome, Token):
            return outcome
        if outcome is Outcome.UNCONDITIONAL:
            raise LogRefused(f"{name}: {outcome.value} any more", hint="The log needs them: give the store back what it could do before.")
        found = objects.get(name)
        if found is not None and found[0] == data:
            return found[1]  # it was this one, and its answer got lost
        if outcome is Outcome.REFUSED or (found[1] if found else None) != expected:
            return None
    raise LogUnavailable(f"{name}: the object store does not say whether it was written")


def tried(objects: Objects) -> bool:
    """Whether the store keeps conditions: two requests that have to fail, on an object that is there for that alone."""
    for attempt, expected in enumerate((None, None, NO_VERSION)):
        for _ in range(TRIES):
            outcome = objects.put(layout.PROBE, b"{}\n", expected)
            if outcome is not Outcome.UNKNOWN:
                break
        else:
            raise LogUnavailable(f"{layout.PROBE}: the object store does not answer")
        if outcome is Outcome.UNCONDITIONAL or (attempt and outcome is not Outcome.REFUSED):
            return False
    return True
