"""Writes the playground's binlogs into the Pumps of its registry, by the client that any TiDB server could use."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from tidemill.binlog.client.client import PumpClient
from tidemill.binlog.client.options import ClientOptions
from tidemill.binlog.messages import Binlog
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.client.tls import Security
from tidemill.errors import SqlError, UpstreamUnavailable
from tidemill.playground.suspending import wait

_LOOK_S = 0.2
"""Seconds between two looks for the first Pump."""

_log = logging.getLogger(__name__)


class PumpWriter:
    """Belongs to the playground's event loop. `prewrite` waits, and is to be called inside of `suspending.run`."""

    def __init__(self, pd: PdClient, client: PumpClient) -> None:
        self._pd, self._client = pd, client
        self._ends: set[asyncio.Task[None]] = set()

    @classmethod
    async def connect(cls, pd_address: str, options: ClientOptions, security: Security | None = None) -> PumpWriter:
        """Wait until a Pump is online. Raises UpstreamUnavailable where PD is not to be had."""
        pd = await PdClient.connect(pd_address, security=security)
        told = False
        while True:
            client = PumpClient(pd, options)
            try:
                await client.start()
                return cls(pd, client)
            except UpstreamUnavailable as error:
                if not told:
                    _log.warning("nothing is written until a Pump is online: %s", error.message)
                    told = True
                await asyncio.sleep(_LOOK_S)

    def prewrite(self, binlog: Binlog) -> None:
        """Write a Prewrite. A DDL waits until a Pump takes it; rows are refused after the client's attempts.

        Raises SqlError.
        """
        while True:
            try:
                wait(self._client.write(binlog))
                return
            except UpstreamUnavailable as error:
                if not binlog.ddl_job_id:
                    raise SqlError(error.message, hint=error.hint) from error
                _log.warning("a DDL waits: %s", error.message)

    def end(self, binlog: Binlog) -> None:
        """Write a Commit or a Rollback, in the background."""
        task = asyncio.ensure_future(self._client.write(binlog))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def settle(self) -> None:
        """Wait until what has been ended so far is in its Pumps, or given up."""
        while self._ends:
            await asyncio.wait(set(self._ends))

    async def close(self, grace: float = 5.0) -> None:
        """Close the connections. What is not written `grace` seconds later stays so: Pumps ask TiKV for it."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.settle(), grace)
        for task in list(self._ends):
            task.cancel()
        await self._client.close()
        await self._pd.close()
