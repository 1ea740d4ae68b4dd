"""The destinations of a server and their clients: what all conversations share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tidemill.canal.conversation.cutting import Place, Selector, behind
from tidemill.canal.conversation.faults import BAD_REQUEST, NO_NAME, Refused
from tidemill.canal.conversation.fields import Fields
from tidemill.canal.conversation.filters import FilterError, Kinds, TableFilter, name_filter
from tidemill.canal.conversation.subscriber import Key, Record, Subscriber, not_subscribed
from tidemill.canal.scramble import Credential

_SHORT = re.compile(r"[+-]?[0-9]{1,20}")
MOST_CLIENTS = 1 << 12
"""Of a destination."""


@dataclass(frozen=True, slots=True)
class Destination:
    """What is set for a destination. `credential` None: the server's holds."""

    name: str
    credential: Credential | None = None
    filter: str = ""
    black: str = ""
    kinds: Kinds = field(default_factory=Kinds)
    fields: Fields = field(default_factory=Fields)
    alone: bool = False
    """get.ddl.isolation"""
    items: bool = False
    """memory.batch.mode ITEMSIZE"""
    any: bool = False
    """A GET that waits is answered as soon as there is anything."""
    start_ts: int | None = None
    """Where a new client begins; None: where the store does."""


@dataclass(frozen=True, slots=True)
class Access:
    """Who may come, unless a destination says it itself."""

    credential: Credential = field(default_factory=Credential)
    plain: bool = False
    """Passwords that are not scrambled are taken."""


class Desk:
    """All destinations and clients. `begins` says where the store begins now."""

    def __init__(self, destinations: Mapping[str, Destination], access: Access, begins: Callable[[], int]) -> None:
        self.destinations, self.access = dict(destinations), access
        self._begins = begins
        self._black = {name: name_filter(one.black) for name, one in destinations.items()}
        self._clients: dict[Key, Subscriber] = {}
        for one in destinations.values():
            name_filter(one.filter)

    def __iter__(self) -> Iterator[Subscriber]:
        return iter(list(self._clients.values()))

    def restore(self, key: Key, record: Record) -> Subscriber:
        """A client of an earlier run. Raises Refused for an unknown destination or a filter that does not compile any more."""
        selector = self._selector(self.destination(key.destination), record.filter)
        found = self._clients[key] = Subscriber(key, record.place, record.place, record.filter, selector, record.subscribed)
        return found

    def granted(self, user: str, token: bytes, seeds: bytes) -> frozenset[str]:
        """The destinations that are open to a login."""
        plain = self.access.plain
        common = self.access.credential.accepts(user, token, seeds, plain=plain)
        return frozenset(
            name
            for name, one in self.destinations.items()
            if (common if one.credential is None else one.credential.accepts(user, token, seeds, plain=plain))
        )

    def destination(self, name: str) -> Destination:
        """Raises Refused."""
        found = self.destinations.get(name)
        if found is None:
            raise Refused(BAD_REQUEST, f"destination:{name[:100]} should start first")
        return found

    def key(self, destination: str, client_id: str) -> Key:
        """Which client a request names. Raises Refused."""
        if not destination or not client_id:
            raise Refused(NO_NAME, "destination or clientId is null")
        self.destination(destination)
        if not _SHORT.fullmatch(client_id) or not -0x8000 <= (number := int(client_id)) <= 0x7FFF:
            raise Refused(BAD_REQUEST, f"clientId {client_id[:100]!r} is not a number from -32768 to 32767")
        return Key(destination, number)

    def client(self, key: Key) -> Subscriber:
        """A client that is subscribed. Raises Refused."""
        found = self._clients.get(key)
        if found is None:
            raise not_subscribed(key)
        found.check_subscribed()
        return found

    def known(self, key: Key) -> Subscriber | None:
        """A client that has been subscribed at some time."""
        return self._clients.get(key)

    def subscribe(self, key: Key, filter_: str) -> tuple[Subscriber, bool]:
        """Subscribe a client; whether its record is new or has changed. Raises Refused."""
        destination = self.destination(key.destination)
        selector = self._selector(destination, filter_)
        found = self._clients.get(key)
        if found is None:
            if sum(known.destination == key.destination for known in self._clients) >= MOST_CLIENTS:
                raise Refused(BAD_REQUEST, f"{key.destination} has {MOST_CLIENTS} clients, and takes no more")
            start = Place(behind(self._begins() if destination.start_ts is None else destination.start_ts))
            found = self._clients[key] = Subscriber(key, start, start, filter_, selector)
        return found, found.subscribe(filter_, selector)

    def seek(self, key: Key, ts: int) -> Subscriber:
        """Move a client behind a commit_ts; one that is not known yet begins there. Raises Refused."""
        place, found = Place(behind(ts)), self._clients.get(key)
        if found is None:
            destination = self.destination(key.destination)
            found = self._clients[key] = Subscriber(key, place, place, "", self._selector(destination, ""))
        found.seek(place)
        return found

    def forget(self, key: Key) -> bool:
        """Forget a client; whether it was known. What its connections ask is refused until it subscribes again."""
        found = self._clients.pop(key, None)
        if found is not None:
            found.unsubscribe()
            found.turn += 1
        return found is not None

    def _selector(self, destination: Destination, filter_: str) -> Selector:
        try:
            names = name_filter(filter_ or destination.filter)
        except FilterError as error:
            raise Refused(BAD_REQUEST, str(error)) from None
        return Selector(TableFilter(names, self._black[destination.name]), destination.kinds, destination.fields)
