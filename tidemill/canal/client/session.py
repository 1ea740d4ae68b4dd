"""What a client does, over one connection after another: log in, subscribe, get, acknowledge, roll back, connect again. Without IO.

Each method gives steps (`Open`, `Send`, `Read`, `Pause`, `Shut`) that a driver carries out; it sends back what was read, or throws
CanalUnavailable into them. So the sync and the async client are the same.

A connection that is lost takes its open batches along: the next one rolls them back, so their entries come again under new ids. Their old
ids are refused here, because a server that was started again counts from 1 and would take an old id for a new batch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

from tidemill.canal.client.batches import NOTHING, Batch, LazyEntry
from tidemill.canal.client.conversation import Accepted, Answer, Conversation, Given, Greeting, Refusal, Request
from tidemill.canal.client.faults import CanalBroken, CanalMisuse, CanalRefused, CanalUnavailable
from tidemill.canal.client.settings import BATCH_SIZE, Settings, Unit
from tidemill.canal.scramble import scramble
from tidemill.errors import MalformedMessage
from tidemill.protocols.canal.packets import ClientAck, ClientAuth, ClientRollback, Get, Subscription, Unsubscription

T = TypeVar("T")

ALL = 0
"""The batch id of a rollback of all open batches."""
AT_ONCE = -1
"""The timeout of a GET that does not wait."""
MOST_KEPT = 1 << 14
"""Entries of a batch whose headers are kept once they are parsed. Canal's buffer has so many."""
_AGAIN = "After a lost connection the entries of its open batches come again under new ids."
_LONGEST_MS = (1 << 31) - 1
_LARGEST_SIZE = (1 << 31) - 1
_LONGEST_WAIT = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Open:
    """Connect to the server of the settings."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send all of these bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Read:
    """Wait so many seconds for bytes. Send back b"" where the server has closed the connection."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait about so many seconds before the next attempt."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Shut:
    """Close the connection."""


Step = Open | Send | Read | Pause | Shut
Steps = Generator[Step, bytes, T]


class Session:
    """See above. `filter`: what is subscribed to; None: nothing. `open`: ids of batches that are not acknowledged, the oldest first."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.filter = settings.filter
        self.open: list[int] = []
        self.connections = 0
        self._conversation: Conversation | None = None
        self._subscribed = False

    @property
    def connected(self) -> bool:
        return self._conversation is not None

    def lost(self) -> None:
        """The connection is gone, whatever was being done on it."""
        self._conversation, self._subscribed = None, False
        self.open.clear()

    # Connections

    def connect(self) -> Steps[None]:
        """Log in, and subscribe where a filter is known. Does nothing on a connection that is there."""
        if self._conversation is None:
            yield from self._connect()

    def reconnect(self) -> Steps[None]:
        """Close the connection and make another, trying as the settings say. Open batches are rolled back."""
        yield from self.close()
        yield from self._connect_again(None)

    def close(self) -> Steps[None]:
        """Close the connection. The server keeps what is open for the next one."""
        if self._conversation is not None:
            self.lost()
            yield Shut()

    def _connect(self) -> Steps[None]:
        yield Open()
        self.connections += 1
        self._conversation = Conversation(self.settings.max_frame, self.connections)
        answer = yield from self._next_answer(self.settings.answer_timeout)
        if not isinstance(answer, Greeting):
            raise AssertionError(answer)  # a conversation begins with one, or raises
        yield from self._asked(self._login(answer.seeds), "the login")
        yield from self._ensure_subscribed()

    def _login(self, seeds: bytes) -> ClientAuth:
        settings = self.settings
        idle = min(int(settings.idle_timeout * 1000), _LONGEST_MS)
        token = b"" if settings.password is None else scramble(settings.password, seeds)
        return ClientAuth(settings.user or "", token, idle, idle)

    def _connect_again(self, error: CanalUnavailable | None) -> Steps[None]:
        """Try until it works. `error`: why the last connection is gone; it is waited for, then. Raises the last error."""
        backoff = self.settings.reconnect
        attempt = 0
        while True:
            if error is not None:
                delay = backoff.delay(attempt) if backoff is not None else None
                if delay is None:
                    raise error
                attempt += 1
                yield Pause(delay)
            try:
                yield from self._connect()
                return
            except CanalUnavailable as failed:
                error = failed

    def _patiently(self, steps: Callable[[], Steps[T]]) -> Steps[T]:
        """Carry out what can be done twice: a lost connection is made again, where the settings say so."""
        while True:
            try:
                yield from self.connect()
                return (yield from steps())
            except CanalUnavailable as error:
                if self.settings.reconnect is None or not self.connections:
                    raise
                yield from self._connect_again(error)

    # Requests

    def subscribe(self, filter_: str) -> Steps[None]:
        """Subscribe, or change the filter. The first one of a connection rolls back what an earlier connection left open."""
        self.filter = filter_
        if self._conversation is None or not self._subscribed:
            yield from self._patiently(self._ensure_subscribed)
            return
        yield from self._patiently(lambda: self._subscribe(filter_))

    def _ensure_subscribed(self) -> Steps[None]:
        """Subscribe on a new connection. All but a client's first one roll back: an answer may have been lost with the connection, and its
        batch would stay open for good."""
        if self._subscribed or self.filter is None:
            return
        yield from self._subscribe(self.filter)
        if self.settings.rollback_on_connect or self.connections > 1:
            yield from self._send(ClientRollback(self.settings.destination, self._id, ALL))

    def _subscribe(self, filter_: str) -> Steps[None]:
        yield from self._asked(Subscription(self.settings.destination, self._id, filter_), f"the subscription to {filter_!r}")
        self._subscribed = True

    def unsubscribe(self) -> Steps[None]:
        """End the subscription. Open batches stay open on the server."""
        self.filter = None
        yield from self._patiently(lambda: self._asked(Unsubscription(self.settings.destination, self._id), "to unsubscribe"))
        self._subscribed = False

    def get_without_ack(self, size: int = BATCH_SIZE, timeout: int | None = None, unit: Unit = Unit.MILLISECONDS) -> Steps[Batch]:
        """Get a batch, which stays open. See `Client.get_without_ack`."""
        size = min(size, _LARGEST_SIZE) if size > 0 else BATCH_SIZE
        waits = timeout is not None and timeout > 0
        asked = min(timeout, _LONGEST_WAIT) if timeout is not None and waits else AT_ONCE
        get = Get(self.settings.destination, self._id, size, asked, int(unit), False)
        if self.filter is None:
            raise CanalMisuse("there is no subscription", hint="Call subscribe first, or give a filter.")
        return (yield from self._patiently(lambda: self._get(get, unit.seconds(asked) if waits else 0.0)))

    def _get(self, get: Get, wait: float) -> Steps[Batch]:
        yield from self._send(get)
        answer = yield from self._next_answer(wait + self.settings.answer_timeout)
        if isinstance(answer, Refusal):
            raise (yield from self._refused(answer, "a GET"))
        assert isinstance(answer, Given), "a conversation gives nothing else for a GET"
        batch = answer.batch
        if not batch.empty:
            self.open.append(batch.id)
        if not self.settings.lazy:
            self._check(batch)
        return batch

    def _check(self, batch: Batch) -> None:
        """Parse the headers. The batch stays open if one is broken: it can be rolled back, or acknowledged to leave it out. Those of a
        large batch are not kept: they need far more memory than their bytes."""
        is_large = len(batch) > MOST_KEPT
        for number, raw in enumerate(batch.raw):
            try:
                (LazyEntry(raw) if is_large else batch.entries[number]).parse_header()
            except MalformedMessage as error:
                hint = f"Batch {batch.id} is open: acknowledge it to go on without it, or read it with lazy=True."
                raise CanalBroken(f"entry {number} of batch {batch.id}: {error.message}", hint=hint) from None

    def get(self, size: int = BATCH_SIZE, timeout: int | None = None, unit: Unit = Unit.MILLISECONDS) -> Steps[Batch]:
        """Get a batch and acknowledge it at once."""
        batch = yield from self.get_without_ack(size, timeout, unit)
        yield from self.ack(batch)
        return batch

    def ack(self, batch: Batch | int) -> Steps[None]:
        """Acknowledge the oldest open batch. Nothing answers: what the server refuses is told by the next request."""
        if (batch if isinstance(batch, int) else batch.id) == NOTHING:
            return
        if self._conversation is None:
            raise CanalUnavailable(f"there is no connection to the Canal server {self.settings.address} any more", hint=_AGAIN)
        batch_id = self._id_of(batch, "acknowledged")
        self._check_oldest(batch_id, "acknowledged")
        yield from self._send(ClientAck(self.settings.destination, self._id, batch_id))
        if batch_id in self.open:
            self.open.remove(batch_id)

    def rollback(self, batch: Batch | int = ALL) -> Steps[None]:
        """Give open batches back: their entries come again under new ids. One that is named has to be the oldest; those behind it are
        given back too, because Canal's server loses entries where they are not."""
        batch_id = self._id_of(batch, "rolled back")
        if batch_id == NOTHING:
            return
        if batch_id != ALL:
            self._check_oldest(batch_id, "rolled back")
            batch_id = batch_id if len(self.open) <= 1 else ALL
        self.open.clear()
        if self._conversation is not None:
            yield from self._send(ClientRollback(self.settings.destination, self._id, batch_id))

    def holds(self, batch: Batch) -> bool:
        """Whether a batch is open on this connection."""
        return batch.connection == self.connections and batch.id in self.open

    def _id_of(self, batch: Batch | int, done: str) -> int:
        """The id of a batch. Raises CanalMisuse for one of an earlier connection."""
        if isinstance(batch, int):
            return batch
        if not batch.empty and batch.connection != self.connections:
            raise CanalMisuse(f"batch {batch.id} came on a connection that is lost, so it cannot be {done}", hint=_AGAIN)
        return batch.id

    def _check_oldest(self, batch_id: int, done: str) -> None:
        if batch_id <= 0:
            raise CanalMisuse(f"{batch_id} is the id of no batch")
        if batch_id in self.open and batch_id != self.open[0]:
            raise CanalMisuse(f"batch {batch_id} cannot be {done} before batch {self.open[0]}, which is older and open")
        if batch_id not in self.open and self.settings.rollback_on_connect:
            raise CanalMisuse(f"batch {batch_id} is not open on this connection, so it cannot be {done}", hint=_AGAIN)

    # Packets

    @property
    def _id(self) -> str:
        return str(self.settings.client_id)

    def _send(self, request: Request) -> Steps[None]:
        if self._conversation is None:
            raise CanalUnavailable(f"there is no connection to the Canal server {self.settings.address}")
        try:
            data = self._conversation.request(request)
        except CanalBroken:
            yield from self.close()
            raise
        try:
            yield Send(data)
        except CanalUnavailable:
            yield from self.close()
            raise

    def _asked(self, request: Request, what: str) -> Steps[None]:
        yield from self._send(request)
        answer = yield from self._next_answer(self.settings.answer_timeout)
        if isinstance(answer, Refusal):
            raise (yield from self._refused(answer, what))
        assert isinstance(answer, Accepted), "a conversation gives nothing else for these requests"

    def _refused(self, refusal: Refusal, what: str) -> Steps[CanalRefused]:
        """The error for a refusal. The connection is closed where the refusal may be for an earlier request, or is that of a login."""
        if not refusal.unasked:
            if isinstance(refusal.request, ClientAuth):
                yield from self.close()
            return CanalRefused.of(what, refusal.number, refusal.text)
        yield from self.close()
        earlier = " or ".join(map(_described, refusal.unasked[-3:]))
        hint = "The connection was closed, because the answers that follow could not be told apart. What was open comes again."
        return CanalRefused.of(f"{earlier}, or {what} after it", refusal.number, refusal.text, hint)

    def _next_answer(self, seconds: float) -> Steps[Answer]:
        """The next answer. The connection is closed where there is none. Raises CanalUnavailable, CanalBroken."""
        conversation = self._conversation
        assert conversation is not None, "something was sent on it"
        try:
            while (answer := conversation.next_answer()) is None:
                data = yield Read(seconds)
                if not data:
                    raise conversation.end()
                conversation.receive(data)
        except (CanalUnavailable, CanalBroken):
            yield from self.close()
            raise
        return answer


def _described(request: Request) -> str:
    match request:
        case ClientAck():
            return f"to acknowledge batch {request.batch_id}"
        case ClientRollback():
            return f"to roll back {'all batches' if request.batch_id == ALL else f'batch {request.batch_id}'}"
    return type(request).__name__


class OfSession:
    """What a client tells of its session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def settings(self) -> Settings:
        """Where it connects, and how."""
        return self._session.settings

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._session.connected

    @property
    def open_batches(self) -> tuple[int, ...]:
        """Ids of the batches that were given and not acknowledged, the oldest first."""
        return tuple(self._session.open)
