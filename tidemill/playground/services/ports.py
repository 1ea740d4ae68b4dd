"""An address of the playground: a gRPC server, perhaps with a gate before it. It can leave the network and come back."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

import grpc
import grpc.aio

from tidemill.playground.services.gate import Gate, ServerTls

_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
)
Handlers = Callable[[], Sequence[grpc.GenericRpcHandler]]


class Port:
    """`handlers` are made again at each start. `tls` may be replaced, with effect from the next start on."""

    def __init__(self, handlers: Handlers, tls: ServerTls | None, *, gated: bool = False) -> None:
        self._handlers, self.tls, self._gated = handlers, tls, gated
        self._server: grpc.aio.Server | None = None
        self.gate: Gate | None = None
        self.address = ""

    async def start(self, host: str, port: int = 0) -> str:
        """Serve at an address and return it. Raises OSError when it cannot be used."""
        self._server = grpc.aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers(tuple(self._handlers()))
        if self._gated:
            inside = self._bind("127.0.0.1", 0, None)
            await self._server.start()
            self.gate = Gate(self.tls)
            self.gate.target = inside
            bound = await self.gate.open(host, port)
        else:
            bound = self._bind(host, port, self.tls)
            await self._server.start()
        self.address = f"{host}:{bound}"
        return self.address

    def _bind(self, host: str, port: int, tls: ServerTls | None) -> int:
        assert self._server is not None
        if port:
            _try_to_bind(host, port)
        try:
            if tls is None:
                bound = self._server.add_insecure_port(f"{host}:{port}")
            else:
                bound = self._server.add_secure_port(f"{host}:{port}", tls.credentials())
        except RuntimeError as error:
            raise OSError(f"gRPC cannot listen on {host}:{port}") from error
        if not bound:
            raise OSError(f"gRPC cannot listen on {host}:{port}")
        return int(bound)

    async def stop(self, grace: float = 0.0) -> None:
        """Leave the network: close the port, and break all streams."""
        gate, self.gate = self.gate, None
        if gate is not None:
            await gate.close()
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace)

    async def restart(self) -> None:
        """Serve again at the old address."""
        host, _, port = self.address.rpartition(":")
        await self.start(host, int(port))


def _try_to_bind(host: str, port: int) -> None:
    """Raises OSError with the reason why nothing can listen there. gRPC tells no reason, and writes its own lines to stderr."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except UnicodeError as error:
        raise OSError(f"{host!r} is not a name of a host") from error
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(address)
