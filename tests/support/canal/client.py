"""A plain client of Canal's protocol on a socket, for tests of the server: it sends what it is told, also what no client would."""

from __future__ import annotations

import socket
import ssl
from types import TracebackType

from tidemill.canal.scramble import scramble
from tidemill.protocols.canal.packets import (
    Ack,
    Body,
    ClientAck,
    ClientAuth,
    ClientRollback,
    Get,
    Handshake,
    Messages,
    Subscription,
    frame,
    parse_packet,
    write_packet,
)

TIMEOUT_S = 30.0


class Closed(Exception):
    """The server closed the connection."""


class PlainClient:
    """One connection, logged in and subscribed unless told otherwise."""

    def __init__(
        self,
        address: str,
        destination: str = "d",
        client: int = 1001,
        *,
        filter_: str = "",
        user: str = "",
        password: str | None = None,
        subscribe: bool = True,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        host, _, port = address.rpartition(":")
        self.destination, self.client = destination, str(client)
        raw = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = raw if tls is None else tls.wrap_socket(raw, server_hostname="localhost")
        handshake = self.receive()
        assert isinstance(handshake, Handshake)
        self.seeds = handshake.seeds
        if subscribe:
            token = scramble(password, self.seeds) if password is not None else b""
            assert self.ask(ClientAuth(user, token)) == Ack()
            assert self.ask(Subscription(destination, self.client, filter_)) == Ack()

    def __enter__(self) -> PlainClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.socket.close()

    def send(self, *bodies: Body) -> None:
        self.socket.sendall(b"".join(frame(write_packet(body)) for body in bodies))

    def receive(self) -> Body:
        """Raises Closed."""
        return parse_packet(self._read(int.from_bytes(self._read(4), "big")))

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                got = self.socket.recv(size - len(data))
            except ConnectionError as error:
                raise Closed(str(error)) from error
            if not got:
                raise Closed("closed")
            data += got
        return bytes(data)

    def ask(self, body: Body) -> Body:
        self.send(body)
        return self.receive()

    def get(self, fetch_size: int = 1000, timeout: int | None = -1, unit: int = 2) -> tuple[int, list[bytes]]:
        """A batch and its entries."""
        answer = self.ask(Get(self.destination, self.client, fetch_size, timeout, unit))
        assert isinstance(answer, Messages), answer
        return answer.batch_id, [bytes(one) for one in answer.entries]

    def error(self, fetch_size: int = 1000) -> str:
        """What a GET is refused with."""
        answer = self.ask(Get(self.destination, self.client, fetch_size, -1, 2))
        assert isinstance(answer, Ack)
        assert answer.error_code
        return answer.error_message

    def ack(self, batch: int) -> None:
        self.send(ClientAck(self.destination, self.client, batch))

    def rollback(self, batch: int = 0) -> None:
        self.send(ClientRollback(self.destination, self.client, batch))
