"""A client of a destination, as the server knows it: its subscription, its place in the store, its open batches.

The connections of one client share it: batches are split between them, and each may acknowledge what the other got.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from tidemill import statefile
from tidemill.canal.conversation.cutting import LAST_INDEX, Batch, Place, Selector
from tidemill.canal.conversation.faults import BAD_REQUEST, Refused
from tidemill.errors import LogCorrupt
from tidemill.sinks.canal.store.position import Position

FORMAT = 1
PLACE_FILE = statefile.Kind(LogCorrupt, "Restore it from a copy, or remove it: then its client begins where the store begins.")
MOST_OPEN = 1 << 16
"""Batches of a client that are neither acknowledged nor rolled back."""


@dataclass(frozen=True, slots=True)
class Key:
    """Which client."""

    destination: str
    client: int

    def __str__(self) -> str:
        return f"client {self.client} of {self.destination}"


@dataclass(frozen=True, slots=True)
class Record:
    """What is kept of a client."""

    place: Place
    filter: str = ""
    subscribed: bool = False

    def to_json(self, server: str = "") -> bytes:
        """As the client's file has it. `server`: who writes it."""
        where = self.place.position
        fields: dict[str, Any] = {"format": FORMAT, "commit_ts": where.commit_ts, "index": where.index}
        fields |= {"inside": self.place.inside, "filter": self.filter, "subscribed": self.subscribed, "server": server}
        return (json.dumps(fields) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes, name: str) -> Record:
        """`name`: the file, for errors. Raises LogCorrupt."""
        fields = statefile.read(data, name, PLACE_FILE)
        if fields.integer("format") != FORMAT:
            raise fields.broken(f"its format is not {FORMAT}")
        position = Position(fields.integer("commit_ts"), fields.integer("index", most=LAST_INDEX))
        place = Place(position, fields.flag("inside", default=False))
        return cls(place, fields.text("filter", default=""), fields.flag("subscribed", default=False))


@dataclass(slots=True)
class Counts:
    """Of one client since the server started."""

    batches: int = 0
    entries: int = 0
    rows: int = 0
    bytes: int = 0
    acks: int = 0
    rollbacks: int = 0


@dataclass(slots=True)
class Subscriber:
    """State of one client. Raises Refused for what its client may not do."""

    key: Key
    read: Place
    """Behind what was given out."""
    acked: Place
    """Behind what was acknowledged."""
    filter: str
    selector: Selector
    subscribed: bool = False
    next_id: int = 1
    open: OrderedDict[int, tuple[Place, Place]] = field(default_factory=OrderedDict)
    """Open batches, oldest first: where each begins and ends."""
    turn: int = 0
    """Grows with each change of what the next batch is."""
    upto: int = 0
    """There is nothing for the client between `read` and this commit_ts."""
    counts: Counts = field(default_factory=Counts)

    @property
    def record(self) -> Record:
        """What is to be kept."""
        return Record(self.acked, self.filter, self.subscribed)

    @property
    def done_ts(self) -> int:
        """The client has acknowledged all that there is for it up to this commit_ts."""
        return max(self.acked.position.commit_ts, self.upto if self.acked == self.read else 0)

    def subscribe(self, filter_: str, selector: Selector) -> bool:
        """Subscribe, with another filter perhaps; whether the record has changed."""
        changed = (self.subscribed, self.filter) != (True, filter_)
        if self.filter != filter_:
            self.turn, self.upto = self.turn + 1, 0
        self.subscribed, self.filter, self.selector = True, filter_, selector
        return changed

    def seek(self, place: Place) -> None:
        """Go on from another place; open batches are gone."""
        self.open.clear()
        self.read = self.acked = place
        self.turn, self.upto = self.turn + 1, 0

    def unsubscribe(self) -> bool:
        """Whether it was subscribed. Batches stay open."""
        was, self.subscribed = self.subscribed, False
        return was

    def check_subscribed(self) -> None:
        """Raises Refused."""
        if not self.subscribed:
            raise not_subscribed(self.key)

    def give(self, batch: Batch) -> int:
        """Open a batch; its id. It begins where the client is, or where it was before `skip` went past what is not for it."""
        if len(self.open) >= MOST_OPEN:
            raise Refused(BAD_REQUEST, f"{self.key} has {len(self.open)} open batches: acknowledge them or roll them back")
        number, self.next_id = self.next_id, self.next_id + 1
        self.open[number] = self.read, batch.end
        self.read, self.upto = batch.end, batch.upto
        self.turn += 1
        self.counts.batches += 1
        self.counts.entries += batch.entries
        self.counts.rows += batch.rows
        self.counts.bytes += batch.size
        return number

    def skip(self, end: Place, upto: int) -> bool:
        """Go past entries that are not for the client; whether that moved what is acknowledged. Another connection of the client may have
        gone further meanwhile."""
        self.upto = max(self.upto, upto)
        if end <= self.read:
            return False
        self.read = end
        if self.open:
            last = next(reversed(self.open))
            self.open[last] = self.open[last][0], end
            return False
        self.acked = end
        return True

    def ack(self, number: int) -> None:
        """Acknowledge the oldest open batch."""
        if number not in self.open:
            raise Refused(BAD_REQUEST, f"ack error , clientId:{self.key.client} batchId:{number} is not exist , please check")
        first = next(iter(self.open))
        if number != first:
            raise Refused(BAD_REQUEST, f"batchId:{number} is not the firstly:{first}")
        _, self.acked = self.open.pop(number)
        self.counts.acks += 1

    def rollback(self, number: int = 0) -> None:
        """Take back all open batches. A number names the oldest: with it go those behind it, for they would come twice."""
        if number:
            if number not in self.open:
                raise Refused(BAD_REQUEST, f"rollback error, clientId:{self.key.client} batchId:{number} is not exist , please check")
            first = next(iter(self.open))
            if number != first:
                raise Refused(BAD_REQUEST, f"batchId:{number} is not the firstly:{first}")
        if self.open:
            self.open.clear()
            self.read, self.upto = self.acked, 0
            self.turn += 1
        self.counts.rollbacks += 1


def not_subscribed(key: Key) -> Refused:
    """As Canal says it."""
    who = f"ClientIdentity[destination={key.destination},clientId={key.client},filter=<null>]"
    return Refused(BAD_REQUEST, f"ClientIdentity:{who} should subscribe first")
