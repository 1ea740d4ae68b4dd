"""Compare-and-swap on an object store, by conditional PUTs whose answers may get lost.

Every version of a swapped file is unique (it names its writer), so its content shows whose request won.
"""

from __future__ import annotations

import enum
from typing import Protocol

from tidemill.changelog import log_format
from tidemill.changelog.storage.base import Token
from tidemill.errors import LogRefused, LogUnavailable

TRIES = 5
"""How often a request is made whose outcome stays unknown."""

NO_VERSION: Token = '"00000000000000000000000000000000"'


class Outcome(enum.Enum):
    """The outcome of a conditional request that did not succeed for certain."""

    REFUSED = "another version is there"
    UNKNOWN = "no answer, or one that does not say"
    UNCONDITIONAL = "the store does not do conditional requests"


class Unconditional(LogRefused):
    """The store takes a conditional request and does not heed its condition, or refuses it as unknown."""


class Objects(Protocol):
    """Single requests to an object store. Names are relative to the log. They raise LogUnavailable if a question is not answered,
    LogRefused if the store refuses for another reason."""

    def get(self, name: str) -> tuple[bytes, Token] | None:
        """Return a small object and its version; None if there is none."""

    def put(self, name: str, data: bytes, expected: Token | None) -> Token | Outcome:
        """Write over the version `expected`; None: only if there is no object. Returns the new version."""

    def create(self, name: str, path: str) -> bool:
        """Upload a local file, unless the object exists. Returns False if the file is too large for one request."""


def swap(objects: Objects, name: str, expected: Token | None, data: bytes) -> Token | None:
    """See `Storage.swap`. Raises LogUnavailable if the outcome is unknown; the same call, made again, will find it out. Raises
    Unconditional."""
    for _ in range(TRIES):
        outcome = objects.put(name, data, expected)
        if isinstance(outcome, Token):
            return outcome
        if outcome is Outcome.UNCONDITIONAL:
            raise Unconditional(
                f"{name}: {outcome.value} any more", hint="The log needs them: restore the store's support for conditional requests."
            )
        found = objects.get(name)
        if found is not None and found[0] == data:
            return found[1]  # this request had won; its answer got lost
        if outcome is Outcome.REFUSED or (found[1] if found else None) != expected:
            return None
    raise LogUnavailable(f"{name}: the object store does not say whether it was written")


def tried(objects: Objects) -> bool:
    """Return whether the store honours conditions: make two requests that must fail, on an object made for this test."""
    for attempt, expected in enumerate((None, None, NO_VERSION)):
        for _ in range(TRIES):
            outcome = objects.put(log_format.PROBE, b"{}\n", expected)
            if outcome is not Outcome.UNKNOWN:
                break
        else:
            raise LogUnavailable(f"{log_format.PROBE}: the object store does not answer")
        if outcome is Outcome.UNCONDITIONAL or (attempt and outcome is not Outcome.REFUSED):
            return False
    return True
