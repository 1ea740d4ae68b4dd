"""When brokers that refuse a client's credentials or rights are believed.

One refusal is not a verdict once the credentials were good: a broker that restarts, rotates its secrets or has lost its authority for a
moment refuses too. Many for a while with no success between them are.
"""

from __future__ import annotations

LASTS_S = 30.0
"""Refusals for so long, with no success between them, are meant."""
COUNTED = 3
"""At least so many."""
QUIET_S = 60.0
"""Refusals so far apart have nothing to do with each other: the client tries again every two seconds."""


class Denials:
    """Refusals of one client. Without a success before it, the first one is meant: at the start the settings are wrong. No clock here."""

    def __init__(self, *, trusted: bool = False) -> None:
        """`trusted`: somebody else has got through with the same settings before."""
        self._trusted = trusted
        self._first = self._last = 0.0
        self._count = 0

    def denied(self, now: float) -> None:
        """The brokers have refused once more."""
        if self._count == 0 or now - self._last > QUIET_S:
            self._first, self._count = now, 0
        self._last = now
        self._count += 1

    def succeeded(self) -> None:
        """Something went through."""
        self._trusted = True
        self._count = 0

    @property
    def meant(self) -> bool:
        """Will trying again not help?"""
        return self._count > 0 and (not self._trusted or (self._count >= COUNTED and self._last - self._first >= LASTS_S))
