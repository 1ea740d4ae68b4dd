"""The sync client: carries out a session's steps on a socket. IO."""

from __future__ import annotations

import random
import socket
import ssl
import threading
import time
from types import TracebackType
from typing import Self, TypeVar, Unpack

from tidemill.canal.client.batches import Batch
from tidemill.canal.client.faults import CanalBroken, CanalUnavailable
from tidemill.canal.client.session import ALL, OfSession, Open, Pause, Read, Send, Session, Step, Steps
from tidemill.canal.client.settings import BATCH_SIZE, PORT, Options, Settings, Unit

T = TypeVar("T")

CHUNK = 256 << 10
"""Bytes of one read."""
WAIT_MS = 500
"""How long a GET of `batches` waits for data."""


class Client(OfSession):
    """A client of one destination, connected by `connect` or a `with` block.

        with Client("127.0.0.1", 11111, "example", filter=r"shop\\..*") as client:
            for batch in client.batches():
                for event in batch.events():
                    ...

    Options are those of `Settings`. A call from another thread waits for the one that runs. Raises CanalError's kinds and ConfigError.
    """

    def __init__(self, host: str, port: int = PORT, destination: str = "", **options: Unpack[Options]) -> None:
        super().__init__(Session(Settings(host, port, destination, **options)))
        self._wire = _Wire(self._session.settings)
        self._lock = threading.RLock()

    def connect(self) -> None:
        """Connect once, log in, and subscribe if there is a filter."""
        self._carry_out(self._session.connect())

    def reconnect(self) -> None:
        """Close the connection and make a new one, with pauses as `reconnect` of the settings says. Open batches come again."""
        self._carry_out(self._session.reconnect())

    def close(self) -> None:
        """Close the connection. Open batches are kept for the next one."""
        self._carry_out(self._session.close())

    def subscribe(self, filter: str = "") -> None:
        """Subscribe to the tables whose `schema.table` one of these regexes fits, comma-separated; "" leaves it to the server."""
        self._carry_out(self._session.subscribe(filter))

    def unsubscribe(self) -> None:
        """End the subscription."""
        self._carry_out(self._session.unsubscribe())

    def get(self, size: int = BATCH_SIZE, timeout: int | None = None, unit: Unit = Unit.MILLISECONDS) -> Batch:
        """Get a batch and acknowledge it at once. See `get_without_ack`."""
        return self._carry_out(self._session.get(size, timeout, unit))

    def get_without_ack(self, size: int = BATCH_SIZE, timeout: int | None = None, unit: Unit = Unit.MILLISECONDS) -> Batch:
        """Get a batch, which stays open until it is acknowledged or rolled back. Several may be open.

        size: KiB of entries, or entries, as the server is set; below 1 it is 1000. timeout: how long the server may wait until that much
        is there; None and below 1: not at all. A lost connection is made again and asked again, if `reconnect` of the settings allows.
        """
        return self._carry_out(self._session.get_without_ack(size, timeout, unit))

    def ack(self, batch: Batch | int) -> None:
        """Acknowledge the oldest open batch: it never comes again. An empty one needs none."""
        self._carry_out(self._session.ack(batch))

    def rollback(self, batch: Batch | int | None = None) -> None:
        """Give all open batches back, or the oldest and with it all behind it. Their entries come again under new ids."""
        self._carry_out(self._session.rollback(ALL if batch is None else batch))

    def batches(self, size: int = BATCH_SIZE, wait: int = WAIT_MS, unit: Unit = Unit.MILLISECONDS) -> Batches:
        """Iterate over batches without end. One is acknowledged when the next is asked for."""
        return Batches(self, size, wait, unit)

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _carry_out(self, steps: Steps[T]) -> T:
        with self._lock:
            doing = False
            try:
                step = next(steps)
                while True:
                    doing = True
                    try:
                        answer = self._wire.do(step)
                    except CanalUnavailable as error:
                        doing = False
                        step = steps.throw(error)
                    else:
                        doing = False
                        step = steps.send(answer)
            except StopIteration as done:
                result: T = done.value
                return result
            finally:
                if doing:  # interrupted: whose answer comes next is not known any more
                    steps.close()
                    self._wire.shut()
                    self._session.lost()


class Batches:
    """Batches of a client, those that are not empty. The last one is acknowledged when the next is asked for; one that was acknowledged or
    lost meanwhile is not."""

    def __init__(self, client: Client, size: int, wait: int, unit: Unit) -> None:
        self._client, self._size, self._wait, self._unit = client, size, wait, unit
        self._last: Batch | None = None

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Batch:
        if self._last is not None:
            last, self._last = self._last, None
            self._acknowledge(last)
        while True:
            batch = self._client.get_without_ack(self._size, self._wait, self._unit)
            if batch:
                self._last = batch
                return batch

    def _acknowledge(self, batch: Batch) -> None:
        if not self._client._session.holds(batch):
            return
        try:
            self._client.ack(batch)
        except CanalUnavailable:
            if self._client.settings.reconnect is None:
                raise  # else: it comes again on the next connection


class _Wire:
    """The socket of a client, or none."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._socket: socket.socket | None = None

    def do(self, step: Step) -> bytes:
        """Carry out a step. Raises CanalUnavailable, CanalBroken."""
        where = f"the Canal server {self._settings.address}"
        if isinstance(step, Pause):
            time.sleep(step.seconds * random.uniform(0.5, 1.0))
            return b""
        try:
            if isinstance(step, Open):
                self._open()
            elif self._socket is None:
                pass
            elif isinstance(step, Send):
                self._socket.settimeout(self._settings.answer_timeout)
                self._socket.sendall(step.data)
            elif isinstance(step, Read):
                self._socket.settimeout(step.seconds)
                return self._socket.recv(CHUNK)
            else:
                self.shut()
        except ssl.SSLCertVerificationError as error:
            self.shut()
            raise CanalBroken(f"{where}: its certificate is refused: {error.verify_message}") from None
        except TimeoutError:
            self.shut()
            doing = "did not take a connection" if isinstance(step, Open) else "did not answer in time"
            raise CanalUnavailable(f"{where} {doing}") from None
        except OSError as error:
            self.shut()
            raise CanalUnavailable(f"{where}: {error.strerror or error}") from None
        return b""

    def _open(self) -> None:
        self.shut()
        settings = self._settings
        plain = socket.create_connection((settings.host, settings.port), settings.connect_timeout)
        self._socket = plain
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if settings.tls is not None:
            self._socket = settings.tls.wrap_socket(plain, server_hostname=settings.host)

    def shut(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
