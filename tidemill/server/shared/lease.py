"""The lease as it is stored: LOG/server/lease.json, or a key in etcd. Calls do IO, and belong in a thread."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Protocol

from tidemill import statefile
from tidemill.errors import LogCorrupt, redact
from tidemill.server.shared.election import Lease
from tidemill.server.shared.file import Change

NAME = "lease.json"
MOST_TERMS = 1 << 62
LEASE_FILE = statefile.Kind(LogCorrupt, "Remove it: the next server that leads writes it, and its term is in state.json.", may_be_lost=True)
"""It is written every third of a TTL, and not synced. Without it the next term is that of state.json and one more."""


class Place(Protocol):
    """Where the lease is stored: `file.SharedFile`, or `etcd.EtcdKey`."""

    place: str

    def read(self) -> bytes | None: ...

    def change(self, change: Change) -> bytes | None: ...


class Leases:
    """The lease, as one server uses it."""

    def __init__(self, place: Place, me: str, address: str, ttl: float) -> None:
        """`me`: the server's id. `address`: where other servers reach it. `ttl`: seconds."""
        self._place, self._me, self._address, self._ttl = place, me, address, ttl

    def look(self) -> Lease | None:
        """Return the lease; None if nobody has ever had it. Raises LogCorrupt, LogUnavailable, UpstreamUnavailable."""
        return self._parsed(self._place.read())

    def take(self, seen: Lease | None) -> Lease | None:
        """Take the lease with the next term, if it is still as it was seen. Return it; None if it is not."""
        mine = Lease((seen.term if seen is not None else 0) + 1, self._me, 1, self._ttl, self._address)
        return self._changed(seen, mine)

    def renew(self, mine: Lease) -> Lease | None:
        """Raise the beat of this server's lease. Return the new lease; None if another server has taken it."""
        return self._changed(mine, replace(mine, beat=mine.beat + 1))

    def free(self, mine: Lease) -> None:
        """Let others take it at once. Nothing happens if another server has it."""
        self._changed(mine, replace(mine, beat=mine.beat + 1, free=True))

    def _changed(self, before: Lease | None, after: Lease) -> Lease | None:
        def change(data: bytes | None) -> bytes | None:
            found = self._parsed(data)
            if found == before or (found is not None and self._is_late(found, before)):
                return (json.dumps(asdict(after)) + "\n").encode()
            return None

        return after if self._place.change(change) is not None else None

    def _parsed(self, data: bytes | None) -> Lease | None:
        found = statefile.whole(data, redact(self._place.place), LEASE_FILE)
        if found is None:
            return None
        return Lease(
            found.integer("term", 1, MOST_TERMS),
            found.text("holder"),
            found.integer("beat"),
            found.number("ttl"),
            found.text("address", default=""),
            found.flag("free", default=False),
        )

    def _is_late(self, found: Lease, before: Lease | None) -> bool:
        """Whether the lease is what this server wrote by a request whose answer got lost: its own, of the same term."""
        return before is not None and (found.term, found.holder) == (before.term, self._me) and found.beat >= before.beat
