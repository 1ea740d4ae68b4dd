"""The parts of a playground that the control service and the faults use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from tidemill.playground.services.feed import FeedService
from tidemill.playground.services.kv import KvService
from tidemill.playground.services.members import Members
from tidemill.playground.services.ports import Port
from tidemill.playground.sql.session import Database, Result
from tidemill.playground.store.cluster import Cluster
from tidemill.playground.workload.mixed import Workload

T = TypeVar("T")


class Served(Protocol):
    """A running playground. See `Playground` for each member."""

    seed: int
    cluster: Cluster
    database: Database
    members: Members
    feeds: dict[int, FeedService]
    kvs: dict[int, KvService]
    store_ports: dict[int, Port]
    pd_ports: dict[int, Port]
    resolved_interval: float
    paused: bool
    stopping: asyncio.Event
    workload: Workload | None

    def execute(self, sql: str) -> Result: ...

    async def turn(self, function: Callable[[], T]) -> T: ...

    async def binlogs_written(self) -> None: ...

    def stats(self) -> dict[str, Any]: ...

    def later(self, work: Coroutine[Any, Any, None]) -> None: ...

    async def alone(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None: ...

    async def stop_store(self, store_id: int) -> None: ...

    async def restart_store(self, store_id: int) -> None: ...

    async def stop_pd(self, member_id: int) -> None: ...

    async def start_pd(self, member_id: int) -> None: ...

    async def change_pd_leader(self, member_id: int) -> None: ...
