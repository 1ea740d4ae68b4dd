"""A TCP proxy that can stop answering: what a hanging broker, a broken link or a full network does to a client."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading


class Proxy:
    """Forwards connections to a port of this machine. `hang`: bytes are taken and go nowhere; `refuse`: connections are closed at once."""

    def __init__(self, port: int = 0) -> None:
        self.target = 0
        self._listener = socket.create_server(("127.0.0.1", port))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._peers: dict[socket.socket, socket.socket] = {}
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._mode = "forward"
        self._dropping = False
        self._over = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def start(self, target: int) -> None:
        """Forward to this port from now on."""
        self.target = target
        self._thread.start()

    def hang(self) -> None:
        self._mode = "hang"

    def refuse(self) -> None:
        """Close all connections, and every new one."""
        self._switch("refuse")

    def forward(self) -> None:
        """Forward again. Connections that hung are closed, and their bytes are lost."""
        self._switch("forward")

    def _switch(self, mode: str) -> None:
        self._mode, self._dropping = mode, True
        self._wake.send(b"x")

    def close(self) -> None:
        self._over = True
        self._wake.send(b"x")
        self._thread.join(10)
        self._listener.close()

    def _run(self) -> None:
        while not self._over:
            for key, _ in self._selector.select():
                source = key.fileobj
                if source is self._woken:
                    self._woken.recv(64)
                    if self._dropping:
                        self._dropping = False
                        self._drop_all()
                elif source is self._listener:
                    self._accept()
                elif isinstance(source, socket.socket) and source in self._peers:
                    self._pass_on(source)
        self._drop_all()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self._mode == "refuse":
            client.close()
            return
        try:
            server = socket.create_connection(("127.0.0.1", self.target), 5)
        except OSError:
            client.close()
            return
        for one, other in ((client, server), (server, client)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else a part of a message waits for the peer's acknowledgement
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _pass_on(self, source: socket.socket) -> None:
        other = self._peers[source]
        try:
            data = source.recv(65_536)
            if data and self._mode == "forward":
                other.sendall(data)
        except OSError:
            data = b""
        if not data:
            self._drop(source)

    def _drop(self, one: socket.socket) -> None:
        for end in (one, self._peers.get(one)):
            if end is not None and self._peers.pop(end, None) is not None:
                with contextlib.suppress(KeyError):
                    self._selector.unregister(end)
                end.close()

    def _drop_all(self) -> None:
        for one in list(self._peers):
            self._drop(one)
