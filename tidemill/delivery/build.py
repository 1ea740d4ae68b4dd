"""Puts a delivery together, for `run` and `replay` alike: sink, table router, schema registry, packs, log, batch driver."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tidemill.changelog.reader import LogReader
from tidemill.delivery.batch import BatchDriver, JobRunner
from tidemill.delivery.epoch_fence import Fence
from tidemill.delivery.inputs.divided_ddls import divided
from tidemill.delivery.inputs.log_source import LogSource
from tidemill.delivery.inputs.registry import RegisteredSchemas, open_schemas
from tidemill.delivery.inputs.table_pack import PackStore
from tidemill.delivery.inputs.table_router import Settings, SinkEvents, TableRouter
from tidemill.delivery.machine.retry import RetryPolicy
from tidemill.delivery.measure.timings import Timings
from tidemill.delivery.measure.traced import timings_of
from tidemill.errors import TidemillError
from tidemill.sinks.base import DriverSink, HeedsStop
from tidemill.sinks.spec import open_driver_sink
from tidemill.tidb.schema.tracking.history import SchemaHistory


@dataclass(frozen=True, slots=True)
class Delivery:
    """The downstream side of a changefeed. The methods make the rest; call them in the order in which they stand here."""

    settings: Settings
    sink: DriverSink
    router: TableRouter
    schemas: RegisteredSchemas | None
    """None for protocols without a schema registry."""
    stop: threading.Event
    timings: Timings

    @classmethod
    def open(
        cls, stack: ExitStack, settings: Settings, stop: threading.Event, *, schemas_file: Path | None = None, fresh: bool = False
    ) -> Delivery:
        """Open the sink and the registry's client, to be closed by `stack`. `schemas_file`: what was registered, kept over restarts.
        `fresh`: the sink is written from its beginning. Raises ConfigError and what the sink refuses."""
        sink = open_driver_sink(settings.sink.text, fresh=fresh)
        stack.callback(sink.close)
        if isinstance(sink, HeedsStop):
            sink.heed(stop)
        router = TableRouter(settings, sink.place)
        timings = timings_of(settings.feed)
        schemas = open_schemas(settings, router, schemas_file, stop, timings.registry)
        if schemas is not None:
            stack.callback(schemas.close)
        return cls(settings, sink, router, schemas, stop, timings)

    def packs(self, folder: Path, *, lenient: bool = False) -> PackStore:
        """Where the tables of each batch are described for its tasks. Asks the sink for the default topic. `lenient` as in PackStore."""
        return PackStore(
            folder,
            self.settings.output,
            self.router.table,
            lambda topics: self.sink.ensure_topics(set(topics)),
            [self.settings.sink.topic],
            schemas=self.schemas,
            find_limits=self.sink.message_limits,
            lenient=lenient,
        )

    def source(self, reader: LogReader, history: SchemaHistory, packs: PackStore) -> LogSource:
        """The change log, as the batches see it."""
        create_in = self.settings.zone if self.settings.sink.create_tables else None
        router = self.router
        return LogSource(
            reader, history, packs, router.ddl, router.rows, create_in, lambda event, snapshot: divided(event, router, snapshot)
        )

    def driver(
        self,
        packs: PackStore,
        source: LogSource,
        runner: JobRunner,
        fence: Fence,
        retry: RetryPolicy,
        on_failure: Callable[[TidemillError], None] = lambda error: None,
        *,
        started_ts: int = 0,
        cluster_id: str = "",
    ) -> BatchDriver:
        """The driver that runs the batches. `on_failure`: called for each failed attempt that will be followed by another. `started_ts`:
        rows at or below it may have been delivered before."""
        events = SinkEvents(self.settings, self.router, packs, self.sink)
        return BatchDriver(
            feed=self.settings.feed,
            source=source,
            events=events,
            bootstraps=events.bootstraps if events.sends_bootstrap else None,
            sink=self.sink,
            sink_uri=self.settings.sink.text,
            runner=runner,
            fence=fence,
            by_commit_ts=self.settings.sink.spec.by_commit_ts,
            one_task=self.settings.sink.spec.one_task(self.settings.sink),
            refresh_topics=packs.refresh_topics,
            retry=retry,
            stop=self.stop,
            zone=self.settings.zone,
            started_ts=started_ts,
            cluster_id=cluster_id,
            on_failure=on_failure,
            on_ddl=self.schemas.foresee if self.schemas is not None else lambda event: None,
            timings=self.timings,
        )
