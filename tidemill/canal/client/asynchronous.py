"""The async client: carries out a session's steps on asyncio's streams. IO. See `sync.Client` for what the calls do."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from types import TracebackType
from typing import Self, TypeVar, Unpack

from tidemill.canal.client.batches import Batch
from tidemill.canal.client.faults import CanalBroken, CanalUnavailable
from tidemill.canal.client.session import ALL, OfSession, Open, Pause, Read, Send, Session, Step, Steps
from tidemill.canal.client.settings import BATCH_SIZE, PORT, Options, Settings, Unit
from tidemill.canal.client.sync import CHUNK, WAIT_MS

T = TypeVar("T")


class AsyncClient(OfSession):
    """`Client` for asyncio. A call waits for the one that runs; one that is cancelled closes the connection.

    async with AsyncClient("127.0.0.1", 11111, "example", filter=r"shop\\..*") as client:
        async for batch in client.batches():
            ...
    """

    def __init__(self, host: str, port: int = PORT, destination: str = "", **options: Unpack[Options]) -> None:
        super().__init__(Session(Settings(host, port, destination, **options)))
        self._wire = _Wire(self._session.settings)
        self._lock = asyncio.Lock()

    async def connect(self) -> None:
        await self._carry_out(self._session.connect())

    async def reconnect(self) -> None:
        await self._carry_out(self._session.reconnect())

    async def close(self) -> None:
        await self._carry_out(self._session.close())

    async def subscribe(self, filter: str = "") -> None:
        await self._carry_out(self._session.subscribe(filter))

    async def unsubscribe(self) -> None:
        await self._carry_out(self._session.unsubscribe())

    async def get(self, size: int = BATCH_SIZE, timeout: int | None = None, unit: Unit = Unit.MILLISECONDS) -> Batch:
        return await self._carry_out(self._session.get(size, timeout, unit))

    async def get_without_ack(self, size: int = BATCH_SIZE, timeout: int | None = None, unit: Unit = Unit.MILLISECONDS) -> Batch:
        return await self._carry_out(self._session.get_without_ack(size, timeout, unit))

    async def ack(self, batch: Batch | int) -> None:
        await self._carry_out(self._session.ack(batch))

    async def rollback(self, batch: Batch | int | None = None) -> None:
        await self._carry_out(self._session.rollback(ALL if batch is None else batch))

    def batches(self, size: int = BATCH_SIZE, wait: int = WAIT_MS, unit: Unit = Unit.MILLISECONDS) -> AsyncBatches:
        """Iterate over batches without end. One is acknowledged when the next is asked for."""
        return AsyncBatches(self, size, wait, unit)

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def _carry_out(self, steps: Steps[T]) -> T:
        async with self._lock:
            doing = False
            try:
                step = next(steps)
                while True:
                    doing = True
                    try:
                        answer = await self._wire.do(step)
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
                if doing:  # cancelled: whose answer comes next is not known any more
                    steps.close()
                    self._wire.shut()
                    self._session.lost()


class AsyncBatches:
    """See `sync.Batches`."""

    def __init__(self, client: AsyncClient, size: int, wait: int, unit: Unit) -> None:
        self._client, self._size, self._wait, self._unit = client, size, wait, unit
        self._last: Batch | None = None

    def __aiter__(self) -> AsyncBatches:
        return self

    async def __anext__(self) -> Batch:
        if self._last is not None:
            last, self._last = self._last, None
            await self._acknowledge(last)
        while True:
            batch = await self._client.get_without_ack(self._size, self._wait, self._unit)
            if batch:
                self._last = batch
                return batch

    async def _acknowledge(self, batch: Batch) -> None:
        if not self._client._session.holds(batch):
            return
        try:
            await self._client.ack(batch)
        except CanalUnavailable:
            if self._client.settings.reconnect is None:
                raise  # else: it comes again on the next connection


class _Wire:
    """The streams of a client, or none."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def do(self, step: Step) -> bytes:
        """Carry out a step. Raises CanalUnavailable, CanalBroken."""
        where = f"the Canal server {self._settings.address}"
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds * random.uniform(0.5, 1.0))
            return b""
        try:
            if isinstance(step, Open):
                await self._open()
            elif self._streams is None:
                pass
            elif isinstance(step, Send):
                self._streams[1].write(step.data)
                async with asyncio.timeout(self._settings.answer_timeout):
                    await self._streams[1].drain()
            elif isinstance(step, Read):
                async with asyncio.timeout(step.seconds):
                    return await self._streams[0].read(CHUNK)
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

    async def _open(self) -> None:
        self.shut()
        settings = self._settings
        name = settings.host if settings.tls is not None else None
        async with asyncio.timeout(settings.connect_timeout):
            self._streams = await asyncio.open_connection(settings.host, settings.port, ssl=settings.tls, server_hostname=name)
        plain = self._streams[1].get_extra_info("socket")
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def shut(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
