"""Servers of Canal's protocol for tests of its client: what they send is given, so nothing of Tidemill's server is in it."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tidemill.protocols.canal.packets import Ack, Body, ClientAck, ClientRollback, Handshake, frame, parse_packet, take_frame, write_packet

SEEDS = b"12345678"
HANDSHAKE = frame(write_packet(Handshake(SEEDS)))
OK = frame(write_packet(Ack()))

Answers = list[bytes] | None
"""Pieces to send, each by itself; None: close the connection."""


def is_silent(body: Body) -> bool:
    """Whether a request has no answer when it succeeds."""
    return isinstance(body, ClientAck | ClientRollback)


class Scripted:
    """A server on a port of its own. `greet(connection)` and `answer(connection, body)` say what it sends; connections count from 0.

    What the client sent is in `requests`, as pairs of connection and body.
    """

    def __init__(
        self, answer: Callable[[int, Body], Answers], greet: Callable[[int], Answers] | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.requests: list[tuple[int, Body]] = []
        self.wrong: list[str] = []
        self._answer = answer
        self._greet = greet or (lambda connection: [HANDSHAKE])
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection = 0
        while True:
            try:
                found, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(found)
            threading.Thread(target=self._converse, args=(connection, found), daemon=True).start()
            connection += 1

    def _converse(self, connection: int, found: socket.socket) -> None:
        try:
            if self._tls is not None:
                found = self._tls.wrap_socket(found, server_side=True)
                self._sockets.append(found)
            self._speak(connection, found)
        except OSError:
            pass
        finally:
            found.close()

    def _speak(self, connection: int, found: socket.socket) -> None:
        if not _send(found, self._greet(connection)):
            return
        buffer = b""
        while data := found.recv(1 << 16):
            buffer += data
            while (taken := take_frame(buffer)) is not None:
                packet, at = taken
                buffer = buffer[at:]
                body = parse_packet(packet)
                self.requests.append((connection, body))
                if not _send(found, self._answer(connection, body)):
                    return

    def close(self) -> None:
        # shutdown wakes the thread that waits in accept; close alone does not
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for found in self._sockets:
            found.close()
        self._thread.join(timeout=120)


def _send(found: socket.socket, pieces: Answers) -> bool:
    if pieces is None:
        return False
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for piece in pieces:
        found.sendall(piece)
    return True


@contextmanager
def scripted(answer: Callable[[int, Body], Answers], **options: Any) -> Iterator[Scripted]:
    """A server of this script."""
    server = Scripted(answer, **options)
    try:
        yield server
    finally:
        server.close()
