"""A proxy between a client and a MySQL server that reads the client's statements, and may refuse one, or end the connection at it.

Every packet of text (COM_QUERY) is shown to a judge, which says what happens to it. All else goes through as it is.
"""

from __future__ import annotations

import enum
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

_QUERY = 3


class Refused(NamedTuple):
    """The server never sees the packet; the client gets an error of this code."""

    code: int
    text: str = "injected"


class Cut(enum.Enum):
    """The connection ends."""

    BEFORE = "before"  # the server never sees the packet
    AFTER = "after"  # the server runs it, and its answer is lost


Judge = Callable[[bytes, int], Refused | Cut | None]
"""Given the text and the number of the connection."""


class MysqlProxy:
    """Listens on a free port of this machine. A context manager."""

    def __init__(self, port: int, judge: Judge) -> None:
        self._target, self.judge = port, judge
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock, self._ends = threading.Lock(), ExitStack()

    @property
    def uri(self) -> str:
        """A sink URI."""
        return f"mysql://root@127.0.0.1:{self._listener.getsockname()[1]}/"

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._ends.close()

    def _serve(self) -> None:
        number = 0
        while True:
            try:
                client, _ = self._listener.accept()
                number += 1
                server = socket.create_connection(("127.0.0.1", self._target), 5)
            except OSError:
                return
            one = _Link(client, server, partial(self._judged, number=number))
            self._ends.callback(one.end)
            for work in (one.statements, one.answers):
                threading.Thread(target=work, daemon=True).start()

    def _judged(self, text: bytes, number: int) -> Refused | Cut | None:
        with self._lock:
            return self.judge(text, number)


class _Link:
    """One connection."""

    def __init__(self, client: socket.socket, server: socket.socket, judge: Callable[[bytes], Refused | Cut | None]) -> None:
        self._client, self._server, self._judge = client, server, judge
        server.settimeout(None)
        self._swallow = False

    def end(self) -> None:
        for one in (self._client, self._server):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def answers(self) -> None:
        """Pass on what the server says."""
        with suppress(OSError):
            while (data := self._server.recv(65_536)) and not self._swallow:
                self._client.sendall(data)
        self.end()

    def statements(self) -> None:
        """Pass on what the client says."""
        with suppress(OSError, EOFError):
            while True:
                head = self._exactly(4)
                body = self._exactly(int.from_bytes(head[:3], "little"))
                fault = self._judge(body[1:]) if head[3] == 0 and body[:1] == bytes([_QUERY]) else None
                if isinstance(fault, Refused):
                    error = b"\xff" + struct.pack("<H", fault.code) + b"#HY000" + fault.text.encode()
                    self._client.sendall(len(error).to_bytes(3, "little") + b"\x01" + error)
                    continue
                if fault is Cut.BEFORE:
                    break
                self._swallow = self._swallow or fault is Cut.AFTER
                self._server.sendall(head + body)
                if fault is Cut.AFTER:
                    return
        self.end()

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            some = self._client.recv(size - len(found))
            if not some:
                raise EOFError
            found += some
        return bytes(found)
