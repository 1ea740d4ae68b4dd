"""The server's side of one connection, as a state machine: bytes in, actions out.

NEW → LOGIN → READY ⇄ FETCHING → OVER. Requests are answered in order; while a GET waits, the ones behind it do. Where Canal answers what
nobody asked for, so that all later answers are one late, the connection is closed here.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from tidemill.canal.conversation.actions import Action, Close, Fetch, Idle, Save, Send, Wake
from tidemill.canal.conversation.cutting import Batch, Demand
from tidemill.canal.conversation.desk import Desk
from tidemill.canal.conversation.faults import BAD_REQUEST, NO_BATCH, Fault, Refused
from tidemill.canal.conversation.subscriber import Subscriber
from tidemill.canal.frames import batch_frame
from tidemill.canal.scramble import is_token
from tidemill.errors import TidemillError
from tidemill.protocols.canal.codes import PacketType
from tidemill.protocols.canal.packets import (
    Ack,
    Body,
    ClientAck,
    ClientAuth,
    ClientRollback,
    Get,
    Handshake,
    Messages,
    PacketError,
    Subscription,
    Unknown,
    Unsubscription,
    frame,
    parse_request,
    take_frame,
    write_packet,
)

STRANGER_FRAME = 64 << 10
"""Bytes of the largest packet before login."""
LARGEST_FRAME = 1 << 20
"""The same after it. Filters can be long; nothing else that a client sends is."""
AT_ONCE = 32
"""So many packets are handled in one go: the event loop has others to serve."""
NOTHING = -1
IDLE_S = 3600.0
LONGEST_WAIT_S = 10 * 365 * 86400.0

_UNIT_S = {0: 1e-9, 1: 1e-6, 2: 1e-3, 3: 1.0, 4: 60.0, 5: 3600.0, 6: 86400.0}
_SILENT = (PacketType.CLIENTACK, PacketType.CLIENTROLLBACK)
"""Requests that have no answer when they succeed."""

_TYPES: dict[type[object], PacketType] = {
    Handshake: PacketType.HANDSHAKE,
    ClientAuth: PacketType.CLIENTAUTHENTICATION,
    Ack: PacketType.ACK,
    Subscription: PacketType.SUBSCRIPTION,
    Unsubscription: PacketType.UNSUBSCRIPTION,
    Get: PacketType.GET,
    Messages: PacketType.MESSAGES,
    ClientAck: PacketType.CLIENTACK,
    ClientRollback: PacketType.CLIENTROLLBACK,
}


class State(enum.Enum):
    """Where a conversation is."""

    NEW = "new"
    LOGIN = "login"
    READY = "ready"
    FETCHING = "fetching"
    OVER = "over"


class Conversation:
    """`seeds`: eight random bytes."""

    def __init__(self, desk: Desk, seeds: bytes) -> None:
        self._desk, self._seeds = desk, seeds
        self._buffer = bytearray()
        self._granted: frozenset[str] = frozenset()
        self._fetch: tuple[Get, Subscriber, int] | None = None
        self._greeted = False
        self.state = State.NEW
        self.user = ""
        self.more = False
        """There may be packets that are not handled yet: `receive(b"")` goes on with them."""

    def start(self) -> list[Action]:
        """The connection is there."""
        self.state = State.LOGIN
        return [_send(Handshake(self._seeds)), Idle(IDLE_S, IDLE_S)]

    @property
    def is_stranger(self) -> bool:
        """Whether nobody has logged in."""
        return self.state in (State.NEW, State.LOGIN)

    @property
    def waiting_bytes(self) -> int:
        """Bytes that were received and not yet looked at."""
        return len(self._buffer)

    def receive(self, data: bytes) -> list[Action]:
        """The client sent something."""
        if self.state is State.OVER:
            return []
        self._buffer += data
        return self._go_on([])

    def fetched(self, batch: Batch | TidemillError | None) -> list[Action]:
        """The batch of the last `Fetch`; None: the client's place has changed, so it has to be cut again."""
        if self.state is not State.FETCHING or self._fetch is None:
            return []
        get, client, turn = self._fetch
        self.state, self._fetch = State.READY, None
        try:
            return self._go_on(self._fetched(batch if client.turn == turn else None, get, client))
        except Refused as refused:
            return self._go_on([_error(refused)])

    def _go_on(self, actions: list[Action]) -> list[Action]:
        """Handle the packets that are there, as far as none has to wait."""
        self.more = False
        at = 0
        for _ in range(AT_ONCE):
            if self.state not in (State.LOGIN, State.READY):
                break
            try:
                taken = take_frame(self._buffer, at, STRANGER_FRAME if self.state is State.LOGIN else LARGEST_FRAME)
            except PacketError as error:
                self._close(actions, error.message)
                break
            if taken is None:
                break
            packet, at = taken
            self._packet(packet, actions)
        else:
            self.more = True
        if self.state is State.OVER:
            self._buffer.clear()
        elif at:
            del self._buffer[:at]
        return actions

    def _packet(self, packet: bytes, actions: list[Action]) -> None:
        try:
            body = parse_request(packet, STRANGER_FRAME if self.state is State.LOGIN else LARGEST_FRAME)
        except PacketError as error:
            if error.type is None or error.type in _SILENT:
                self._close(actions, error.message)
            else:
                actions.append(_send(Ack(BAD_REQUEST, error.message)))
            return
        kind = body.type if isinstance(body, Unknown) else _TYPES[type(body)]
        handle = self._login if self.state is State.LOGIN else self._request
        try:
            handle(body, kind, actions)
        except Refused as refused:
            if kind in _SILENT:
                self._close(actions, f"{_name(kind)}: {refused.message}")
            else:
                actions.append(_error(refused))

    def _close(self, actions: list[Action], reason: str, fault: Fault = Fault.CLIENT) -> None:
        self.state = State.OVER
        actions.append(Close(reason, fault))

    # login

    def _login(self, body: Body, kind: int, actions: list[Action]) -> None:
        if not isinstance(body, ClientAuth):
            raise Refused(BAD_REQUEST, f"packet type={_name(kind)} is NOT supported before CLIENTAUTHENTICATION")
        granted = self._desk.granted(body.username, body.password, self._seeds)
        if not granted:
            if body.password and not is_token(body.password) and not self._desk.access.plain:
                self._close(actions, "the password is not a token of 40 hex digits: clients before 1.1.4 send it as it is")
                return
            raise Refused(BAD_REQUEST, f"auth failed for user:{body.username[:100]}")
        self._granted, self.user = granted, body.username
        if body.destination and body.client_id:
            self._subscribe(body.destination, body.client_id, body.filter, actions)
        self.state = State.READY
        actions.append(Idle(_idle(body.net_read_timeout), _idle(body.net_write_timeout)))
        actions.append(_send(Ack()))

    def _subscribe(self, destination: str, client_id: str, filter_: str, actions: list[Action]) -> None:
        key = self._desk.key(destination, client_id)
        if destination not in self._granted:
            raise Refused(BAD_REQUEST, f"auth failed for user:{self.user[:100]}")
        client, changed = self._desk.subscribe(key, filter_)
        if changed:
            actions.append(Save(client))

    # requests

    def _request(self, body: Body, kind: int, actions: list[Action]) -> None:
        handle = _HANDLERS.get(type(body))
        if handle is None:
            raise Refused(BAD_REQUEST, f"packet type={_name(kind)} is NOT supported!")
        # Clients begin with a rollback of all. Where it would be refused their SUBSCRIPTION is too: its answer tells them the reason.
        greets = not self._greeted and isinstance(body, ClientRollback) and not body.batch_id
        self._greeted = True
        try:
            handle(self, body, actions)
        except Refused:
            if not greets:
                raise

    def _subscription(self, body: Subscription, actions: list[Action]) -> None:
        self._subscribe(body.destination, body.client_id, body.filter, actions)
        actions.append(_send(Ack()))

    def _unsubscription(self, body: Unsubscription, actions: list[Action]) -> None:
        client = self._desk.known(self._desk.key(body.destination, body.client_id))
        if client is not None and body.destination in self._granted and client.unsubscribe():
            actions.append(Save(client))
        actions.append(_send(Ack()))

    def _client(self, destination: str, client_id: str) -> Subscriber:
        key = self._desk.key(destination, client_id)
        if destination not in self._granted:
            raise Refused(BAD_REQUEST, f"auth failed for user:{self.user[:100]}")
        return self._desk.client(key)

    def _get(self, body: Get, actions: list[Action]) -> None:
        actions.append(self._ask(body, self._client(body.destination, body.client_id)))

    def _ask(self, get: Get, client: Subscriber) -> Fetch:
        destination = self._desk.destination(get.destination)
        if get.fetch_size < 0 or (destination.items and get.fetch_size == 0):
            raise Refused(BAD_REQUEST, f"fetch_size {get.fetch_size} is not a number of {'entries' if destination.items else 'KiB'}")
        demand = Demand.of(get.fetch_size, items=destination.items, alone=destination.alone)
        self.state, self._fetch = State.FETCHING, (get, client, client.turn)
        return Fetch(client, client.selector, demand, client.read, client.upto, client.turn, _wait(get), destination.any)

    def _fetched(self, batch: Batch | TidemillError | None, get: Get, client: Subscriber) -> list[Action]:
        client.check_subscribed()
        if batch is None:
            return [self._ask(get, client)]
        if isinstance(batch, TidemillError):
            raise Refused(BAD_REQUEST, batch.message)
        if not batch.entries:
            moved = client.skip(batch.end, batch.upto)
            later: list[Action] = [Save(client, now=False)] if moved else []
            return [*later, _send(Messages(NOTHING))]
        return [Send(batch_frame(client.give(batch), batch.pieces))]

    def _ack(self, body: ClientAck, actions: list[Action]) -> None:
        self._desk.key(body.destination, body.client_id)
        if body.batch_id == 0:
            raise Refused(NO_BATCH, "batchId should assign value")
        if body.batch_id == NOTHING:
            return
        client = self._client(body.destination, body.client_id)
        client.ack(body.batch_id)
        actions.append(Save(client))

    def _rollback(self, body: ClientRollback, actions: list[Action]) -> None:
        client = self._desk.known(self._desk.key(body.destination, body.client_id))
        if client is None or not client.subscribed:
            return
        self._client(body.destination, body.client_id).rollback(body.batch_id)
        actions.append(Wake())


_HANDLERS: dict[type[object], Callable[..., None]] = {
    Subscription: Conversation._subscription,
    Unsubscription: Conversation._unsubscription,
    Get: Conversation._get,
    ClientAck: Conversation._ack,
    ClientRollback: Conversation._rollback,
}


def _send(body: Body) -> Send:
    return Send((frame(write_packet(body)),))


def _error(refused: Refused) -> Send:
    return _send(Ack(refused.number, refused.message))


def _name(kind: int) -> str:
    if kind == 0:
        return "PACKAGETYPECOMPATIBLEPROTO2"
    return PacketType(kind).name if kind in PacketType._value2member_map_ else "UNRECOGNIZED"


def _idle(milliseconds: int) -> float:
    return milliseconds / 1000 if milliseconds > 0 else IDLE_S


def _wait(get: Get) -> float | None:
    """Seconds that a GET may wait; None: without end. An absent unit is 0, as it is for Canal."""
    if get.timeout == -1:
        return 0.0
    if get.timeout is None or get.timeout <= 0:
        return None
    return min(get.timeout * _UNIT_S.get(get.unit or 0, 1e-3), LONGEST_WAIT_S)
