"""Deciding whether refused credentials or rights are final.

A single refusal is not final if the credentials have worked before: a broker that restarts or rotates its secrets refuses too. Several
refusals over some time without a success between them are final.
"""

from __future__ import annotations

LASTS_S = 30.0
"""Refusals are final after this time without a success."""
COUNTED = 3
"""The least number of refusals that are final."""
QUIET_S = 60.0
"""Refusals further apart are unrelated, because the client tries again every two seconds."""


class Denials:
    """The refusals of one client. Without any success before, the first one is final: the settings are wrong. Callers pass the time."""

    def __init__(self, *, trusted: bool = False) -> None:
        """`trusted`: another client has succeeded with the same settings."""
        self._trusted = trusted
        self._first = self._last = 0.0
        self._count = 0

    def denied(self, now: float) -> None:
        """Note a refusal."""
        if self._count == 0 or now - self._last > QUIET_S:
            self._first, self._count = now, 0
        self._last = now
        self._count += 1

    def succeeded(self) -> None:
        """Note a success."""
        self._trusted = True
        self._count = 0

    @property
    def meant(self) -> bool:
        """Whether the refusals are final."""
        return self._count > 0 and (not self._trusted or (self._count >= COUNTED and self._last - self._first >= LASTS_S))
