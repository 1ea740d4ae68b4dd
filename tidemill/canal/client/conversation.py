"""A client's side of one connection, without IO: requests become bytes, received bytes become answers.

    conversation = Conversation()
    conversation.receive(data)              # whatever came
    conversation.next_answer()              # Greeting, Accepted, Given, Refusal; None: more bytes are needed
    conversation.request(ClientAuth(…))     # bytes to send

A server answers in order, but CLIENTACK and CLIENTROLLBACK only when it refuses them. Such an error stands where the next answer is
expected. Canal's Java client takes it for that answer, and every later one is late by one. Here it ends the connection: which request it
belongs to cannot be told for certain. What comes when no answer is due ends it too.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass

from tidemill.canal.client.batches import NOTHING, Batch
from tidemill.canal.client.faults import CanalBroken, CanalMisuse, CanalUnavailable
from tidemill.protocols.canal.codes import VERSION
from tidemill.protocols.canal.packets import (
    MAX_FRAME,
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
    Unsubscription,
    frame,
    packet_version,
    parse_packet,
    take_frame,
    write_packet,
)

Request = ClientAuth | Subscription | Unsubscription | Get | ClientAck | ClientRollback
_SILENT = (ClientAck, ClientRollback)
SMALL_FRAME = 1 << 20
"""Bytes of the largest packet that is no batch: a server that nothing was asked of, or that only has to say yes, sends no more."""


class State(enum.Enum):
    """Where a conversation is."""

    NEW = "waiting for the server's handshake"
    GREETED = "not logged in"
    LOGIN = "logging in"
    READY = "logged in"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Greeting:
    """The server's handshake. `seeds` are what the password's token is made with."""

    seeds: bytes


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer to a request that gives nothing."""

    request: Request


@dataclass(frozen=True, slots=True)
class Given:
    """The answer to a GET."""

    request: Get
    batch: Batch


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error. `unasked`: it may belong to one of these requests before it, which have no answer when they succeed; the conversation is
    over then."""

    request: Request | None
    number: int
    text: str
    unasked: tuple[Request, ...] = ()


Answer = Greeting | Accepted | Given | Refusal


class Conversation:
    """See above. `limit`: bytes of the largest packet that is waited for, a batch; `number`: what its batches are marked with.

    Raises CanalBroken, after which it is over, and CanalMisuse.
    """

    def __init__(self, limit: int = MAX_FRAME, number: int = 0) -> None:
        self.state = State.NEW
        self._limit, self._number = limit, number
        self._buffer = bytearray()
        self._asked: deque[Request] = deque()

    @property
    def due(self) -> bool:
        """Whether an answer is due."""
        return self.state is State.NEW or any(not isinstance(request, _SILENT) for request in self._asked)

    @property
    def waiting_bytes(self) -> int:
        """Bytes that were received and are not an answer yet."""
        return len(self._buffer)

    def request(self, body: Request) -> bytes:
        """Return the bytes of a request. Several may be on their way."""
        if self.state is State.OVER:
            raise CanalMisuse("the connection to the Canal server is over")
        wanted = State.GREETED if isinstance(body, ClientAuth) else State.READY
        if self.state is not wanted:
            raise CanalMisuse(f"{type(body).__name__} cannot be sent while the connection is {self.state.value}")
        if self._buffer and not self._asked:
            raise self._broken("bytes came when no answer was due; they may be an error or an answer to an earlier request")
        if isinstance(body, ClientAuth):
            self.state = State.LOGIN
        self._asked.append(body)
        return frame(write_packet(body))

    def receive(self, data: bytes) -> None:
        """Take bytes that the server sent."""
        if self.state is not State.OVER:
            self._buffer += data

    def next_answer(self) -> Answer | None:
        """Return the next answer, None if more bytes are needed or no answer is due."""
        if self.state is State.OVER or not (self.due or self._asked):
            return None
        try:
            batch = any(isinstance(request, Get) for request in self._asked)
            taken = take_frame(self._buffer, 0, self._limit if batch else min(self._limit, SMALL_FRAME))
            if taken is None:
                return None
            packet, end = taken
            del self._buffer[:end]
            return self._greeting(packet) if self.state is State.NEW else self._answer(parse_packet(packet))
        except PacketError as error:
            raise self._broken(error.message.removeprefix("Canal packet: ")) from None

    def end(self) -> CanalUnavailable:
        """The server has closed the connection. Return the error for whoever waits."""
        part = f" in the middle of a packet ({len(self._buffer)} bytes of it came)" if self._buffer else ""
        doing = type(self._asked[-1]).__name__ if self._asked else self.state.value
        self._over()
        return CanalUnavailable(f"the Canal server has closed the connection{part}; last: {doing}")

    def _over(self) -> None:
        self.state = State.OVER
        self._buffer.clear()
        self._asked.clear()

    def _broken(self, problem: str) -> CanalBroken:
        self._over()
        return CanalBroken(f"the Canal server broke the protocol: {problem}")

    def _greeting(self, packet: bytes) -> Greeting:
        body = parse_packet(packet)
        if not isinstance(body, Handshake):
            raise self._broken(f"expected HANDSHAKE, found {type(body).__name__}")
        version = packet_version(packet)
        if version != VERSION:
            raise self._broken(f"HANDSHAKE of version {version}, this client speaks {VERSION}")
        self.state = State.GREETED
        return Greeting(body.seeds)

    def _answer(self, body: Body) -> Answer:
        silent: list[Request] = []
        while self._asked and isinstance(self._asked[0], _SILENT):
            silent.append(self._asked.popleft())
        if isinstance(body, Ack) and body.error_code and silent:
            request = self._asked[0] if self._asked else None
            self._over()
            return Refusal(request, body.error_code, body.error_message, tuple(silent))
        if not self._asked:
            raise self._broken(f"{type(body).__name__} came when no answer was due")
        request = self._asked.popleft()
        if isinstance(request, Get) and isinstance(body, Messages):
            return Given(request, self._batch(body))
        if not isinstance(body, Ack):
            raise self._broken(f"expected the answer to {type(request).__name__}, found {type(body).__name__}")
        if isinstance(request, Get) and not body.error_code:
            raise self._broken(f"expected MESSAGES, found an ACK without an error {body.error_message[:100]!r}")
        if isinstance(request, ClientAuth):
            self.state = State.GREETED if body.error_code else State.READY
        return Refusal(request, body.error_code, body.error_message) if body.error_code else Accepted(request)

    def _batch(self, body: Messages) -> Batch:
        if body.batch_id <= 0 and (body.entries or body.batch_id != NOTHING):
            raise self._broken(f"{len(body.entries)} entries in a batch with id {body.batch_id}, which cannot be acknowledged")
        return Batch(body.batch_id, tuple(body.entries), self._number)
