"""What a protocol with a schema registry adds to a delivery: schemas are registered, topics belong to one table, DDLs are looked at."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.delivery.inputs.table_router import Settings, TableRouter
from tidemill.protocols.all import spec_of
from tidemill.registry.topics import TableName, check_topics
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.tracking.history import TableVersion

if TYPE_CHECKING:
    from tidemill.registry.registrar import Registrar, Sent


class RegisteredSchemas:
    """See `table_pack.Schemas`."""

    def __init__(self, registrar: Registrar, router: TableRouter) -> None:
        self._registrar, self._router = registrar, router

    def meet(self) -> None:
        """Check that the registry answers. Raises RegistryUnavailable."""
        self._registrar.meet()

    def close(self) -> None:
        """Close the connections."""
        self._registrar.close()

    def register(self, version: TableVersion, topic: str) -> tuple[int, int]:
        return self._registrar.ids(version, topic)

    def check(self, ts: int, tables: Iterable[tuple[TableName, str]]) -> None:
        check_topics(ts, tables)

    def foresee(self, event: DdlEvent) -> None:
        """Warn of what the registry will refuse. See `BatchDriver.on_ddl`."""
        self._registrar.foresee(event, self._sent(event.before), self._sent(event.after))

    def _sent(self, version: TableVersion | None) -> Sent | None:
        chosen = self._router.table(version) if version is not None else None
        return (chosen.shown, chosen.topic) if chosen is not None else None


def open_schemas(
    settings: Settings,
    router: TableRouter,
    cache: Path | None = None,
    stop: threading.Event | None = None,
    took: Callable[[float], None] = lambda seconds: None,
) -> RegisteredSchemas | None:
    """For a changefeed whose protocol has a schema registry, else None. `cache`: see `registry.cache`. `took`: see RegistryClient. Raises
    ConfigError."""
    if settings.sink.protocol is None or not spec_of(settings.sink.protocol).uses_registry:
        return None
    from tidemill.registry.registrar import open_registrar  # an HTTP client, which others need not load

    return RegisteredSchemas(open_registrar(settings.sink.encoding, cache, stop, took), router)
