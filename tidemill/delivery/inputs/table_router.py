"""Turns a changefeed's settings into what batches need: which tables and DDLs, to which topics, in which protocol and zone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo

from tidemill.config.file import ChangefeedConfig
from tidemill.config.sinks import Ddls
from tidemill.config.uri import SinkUri
from tidemill.delivery.inputs.routed_names import database_ddl, routed_ddl, routed_version
from tidemill.delivery.inputs.table_pack import Output, PackedTable, PackStore, Target
from tidemill.delivery.wall_clock import wall_clock_ms
from tidemill.errors import ConfigError
from tidemill.protocols.all import spec_of
from tidemill.protocols.common.messages import ControlMessages, SendsBootstrap
from tidemill.protocols.options import EncodingOptions
from tidemill.protocols.spec import Needs, load
from tidemill.protocols.sql.keys import spread_columns
from tidemill.rules.dispatch import Dispatcher, DispatchMode, DispatchRule, hashed_columns
from tidemill.rules.event_filter import EventFilters
from tidemill.rules.selectors import ColumnSelectors, without
from tidemill.rules.skip import SkipRow
from tidemill.rules.table_filter import TableFilter
from tidemill.rules.table_routes import TableRoutes
from tidemill.sinks.base import DriverSink
from tidemill.sinks.event_messages import EventMessages, MessageDriver
from tidemill.tidb.keys import is_system_schema
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.history import TableVersion

log = logging.getLogger(__name__)

BDR_PRIMARY = "primary"
"""The role of the cluster that may run DDLs: `ADMIN SET BDR ROLE PRIMARY`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user asks of a delivery."""

    feed: str
    sink: SinkUri
    config: ChangefeedConfig
    zone: tzinfo
    skip_rows: tuple[SkipRow, ...] = ()

    def of_cluster(self, cluster_id: str) -> Settings:
        """The same for changes of this cluster."""
        return replace(self, sink=self.sink.of_cluster(cluster_id))

    @property
    def output(self) -> Output:
        """How rows become messages. Written into packs, so without the registry's address: it may hold a password, and no task needs it."""
        encoding = replace(self.sink.encoding, avro=replace(self.sink.encoding.avro, registry=""))
        ignored = frozenset(self.config.filter.ignore_txn_start_ts)
        if encoding.protocol is not None and spec_of(encoding.protocol).describes_tables and self.sink.spec.server_zone:
            # TiCDC names its server's zone, whatever zone the rows were read in; what is written for comparison keeps the default.
            encoding = replace(encoding, simple=replace(encoding.simple, location=str(self.zone)))
        sink = self.sink.spec
        encoder = sink.encoder if encoding.protocol is None else ""
        return Output(
            *(encoding, self.zone, self.sink.split_on_dispatch_key, ignored, self.skip_rows),
            encoder=encoder,
            as_statements=sink.ddls is Ddls.STATEMENTS,
        )


LEFT_OUT = -1
"""Stands for a DDL's ts in what was told of a table."""


class TableRouter:
    """Which tables and DDLs a changefeed delivers."""

    def __init__(self, settings: Settings, place: Callable[[TableVersion], str | None] = lambda version: None) -> None:
        """`place`: see `DriverSink.place`."""
        self._place = place
        self._filter: TableFilter = settings.config.table_filter()
        self._force, self._bdr = settings.config.force_replicate, settings.config.bdr_mode
        self._sink, self._uri = settings.sink.spec, settings.sink
        self._dispatcher = Dispatcher([]) if self._sink.by_commit_ts else settings.config.dispatcher()
        self._events: EventFilters = settings.config.event_filters(whole_updates=self._sink.whole_updates)
        self._selectors: ColumnSelectors = settings.config.column_selectors()
        self._routes = settings.config.table_routes()
        self._topic = settings.sink.topic
        self._told: set[tuple[int, int]] = set()

    @property
    def routes(self) -> TableRoutes:
        """The other names of tables downstream."""
        return self._routes

    @property
    def into_database(self) -> bool:
        """Whether DDLs are run in a database."""
        return self._sink.ddls is Ddls.STATEMENTS

    @property
    def ddls(self) -> Ddls:
        """What becomes of DDLs."""
        return self._sink.ddls

    def table(self, version: TableVersion) -> PackedTable | None:
        """A table whose rows are delivered, else None. Settings that do not fit it are its fault, see `PackedTable`."""
        if not self.rows(version):
            self._tell_left_out(version)
            return None
        try:
            return self._routed(version)
        except ConfigError as error:
            return PackedTable(version, self._topic, DispatchRule(), fault=str(error))

    def _tell_left_out(self, version: TableVersion) -> None:
        """Log once that a table is wanted and cannot be replicated: nothing is left out in silence."""
        wanted = self.passes(version.schema, version.table) and version.info.has_rows
        if wanted and (version.table_id, LEFT_OUT) not in self._told:
            self._told.add((version.table_id, LEFT_OUT))
            log.warning(
                "%s.%s has no primary key and no unique key over NOT NULL columns: it is not replicated (force-replicate = true would)",
                version.schema,
                version.table,
            )

    def _routed(self, version: TableVersion) -> PackedTable:
        """Raises ConfigError for settings that do not fit the table."""
        if self.into_database:
            dropped = self._selectors.dropped(version, set())
            return PackedTable(
                version,
                self._topic,
                self._spread(version),
                row_filter=self._events.row_filter(version),
                dropped=dropped,
                target=self._target(version),
            )
        topic = self._place(self._described(version))
        rule = DispatchRule(DispatchMode.PHYSICAL) if topic is not None else self._dispatcher.rule(version)
        hashed = {c.id for c in hashed_columns(rule, version.info)}
        return PackedTable(
            version,
            topic if topic is not None else self._dispatcher.topic(version.schema, version.table, self._topic),
            rule,
            row_filter=self._events.row_filter(version),
            dropped=self._selectors.dropped(version, hashed),
            target=self._target(version),
        )

    def _described(self, version: TableVersion) -> TableVersion:
        """A table as the sink hears of it: under its name downstream. Tables of a lake do not have the columns that selectors leave out."""
        if self._sink.only_delivered_columns and (dropped := self._selectors.dropped(version, set())):
            version = replace(version, info=without(version.info, dropped))
        return routed_version(version, self._routes)

    def _target(self, version: TableVersion) -> tuple[str, str] | None:
        target = self._routes.table(*version.name)
        return target if target != version.name else None

    def _spread(self, version: TableVersion) -> DispatchRule:
        """How the rows of a table are shared among the tasks that write into a database: by the columns of its one unique key, or all go to
        one task."""
        columns = spread_columns(version.info) if self._sink.shares_tables(self._uri) else ()
        return DispatchRule(DispatchMode.COLUMNS, columns=columns) if columns else DispatchRule()

    def rows(self, version: TableVersion) -> bool:
        """Whether rows of a table are delivered."""
        return self.passes(version.schema, version.table) and self._eligible(version.info) and version.info.has_rows

    def topic(self, event: DdlEvent) -> str:
        """The topic of a DDL: that of its table, by the name before the DDL if there was one; the sink's topic for a DDL of a schema.

        A name that a table has only within a RENAME of several tables has no topic."""
        if not event.table:
            return self._topic
        name = (event.pre_schema, event.pre_table) if event.pre_table else (event.schema, event.table)
        if event.steps and event.before is not None:
            name = event.before.name
        return self._dispatcher.topic(*name, self._topic)

    def routed(self, event: DdlEvent) -> DdlEvent:
        """A DDL under the names that it has downstream. Raises TableRoutingFailed."""
        if event.group:
            event = replace(event, group=tuple(self.routed(member) for member in event.group))
        if self.into_database:
            return database_ddl(event, self._routes)
        found = routed_ddl(event, self._routes) if self._routes else event
        if not self._sink.only_delivered_columns:
            return found
        before, after, other = (one and self._described(one) for one in (event.before, event.after, event.other))
        return replace(found, before=before, after=after, other=other)

    def ddl(self, event: DdlEvent) -> bool:
        """Whether a DDL is delivered: its table passes the filter before or after it, can be replicated, and no event filter ignores it.

        In BDR mode only the primary cluster's DDLs are, as in TiCDC. The rows of all clusters follow them."""
        if not self._concerns(event):
            return False
        if self._bdr and event.bdr_role != BDR_PRIMARY:
            return False
        self._tell(event)
        return not self._events.ignores_ddl(event)

    def _tell(self, event: DdlEvent) -> None:
        """Warn once of a DDL by which a table enters or leaves the delivered ones, also if the DDL itself is not delivered."""
        place = event.job_id, event.seq
        if place not in self._told and (crossing := self.crossing(event)):
            self._told.add(place)
            log.warning("%s", crossing)

    def _concerns(self, event: DdlEvent) -> bool:
        if not event.table:
            return self.passes_schema(event.schema)
        names = [(event.schema, event.table), *([(event.pre_schema, event.pre_table)] if event.pre_table else [])]
        if not any(self.passes(*name) for name in names):
            return False
        versions = [v for v in (event.before, event.after) if v is not None]
        if self.into_database:  # a table may get its key later, and has to be there then
            return not any(version.info.is_sequence for version in versions)
        return not versions or any(self._eligible(v.info) for v in versions)

    def crossing(self, event: DdlEvent) -> str:
        """What a DDL means for the consumer, if a table enters or leaves the delivered ones by it; else empty."""
        if event.type == Action.EXCHANGE_PARTITION:
            return self._crossing_exchange(event)
        if event.before is None or event.after is None:
            return ""
        before, after = self.rows(event.before), self.rows(event.after)
        if before == after:
            return ""
        old, new = f"{event.before.schema}.{event.before.table}", f"{event.after.schema}.{event.after.table}"
        if after:
            return f"{new} (before: {old}) is delivered from {event.ts} on; load what it held by then by other means"
        return f"{old} (now: {new}) is not delivered any more from {event.ts} on"

    def _crossing_exchange(self, event: DdlEvent) -> str:
        """EXCHANGE PARTITION moves rows between a partition and a plain table without a change event for any row."""
        inside = self.passes(event.schema, event.table)
        if inside == self.passes(event.pre_schema, event.pre_table):
            return ""
        whole, plain = f"{event.schema}.{event.table}", f"{event.pre_schema}.{event.pre_table}"
        shown, hidden = (whole, plain) if inside else (plain, whole)
        return f"{shown} exchanged rows with {hidden}, which is not delivered; load what {shown} holds at {event.ts} by other means"

    def passes(self, schema: str, table: str) -> bool:
        """Whether the rules let a table in."""
        return not is_system_schema(schema) and self._filter.matches(schema, table)

    def passes_schema(self, schema: str) -> bool:
        """Whether DDLs of a schema itself are delivered."""
        return not is_system_schema(schema) and self._filter.matches_schema(schema)

    def delivers(self, version: TableVersion) -> bool:
        """Whether DDLs of a table are delivered: for a database also before it has a key."""
        if not self.passes(version.schema, version.table) or version.info.is_sequence:
            return False
        return self.into_database or self._eligible(version.info)

    def _eligible(self, info: TableInfo) -> bool:
        """TiCDC's rule: a usable key, or forced; views always, sequences never. Temporary tables count, though they have no rows."""
        if info.is_sequence:
            return False
        return self._force or info.is_view or info.has_usable_key


def control_messages_of(options: EncodingOptions) -> ControlMessages | None:
    """The protocol's messages besides rows; None without a protocol."""
    if options.protocol is None:
        return None
    spec = spec_of(options.protocol)
    given = {"clock": wall_clock_ms} if Needs.CLOCK in spec.needs else {}
    control_messages: ControlMessages = load(spec.control)(options, **given)
    return control_messages


class SinkEvents:
    """DDLs for the sink, and for a sink of messages what these are. See `batch.Events`."""

    def __init__(self, settings: Settings, router: TableRouter, packs: PackStore, sink: DriverSink) -> None:
        self._router, self._packs = router, packs
        self._control: ControlMessages | None = None
        self._takes_ddls = True
        if isinstance(sink, MessageDriver):
            self._control = control_messages_of(settings.sink.encoding)
            self._takes_ddls = self._control is not None
            sink.speak(EventMessages(self._control, packs.partitions, self.targets))

    def downstream(self, event: DdlEvent) -> tuple[DdlEvent, str] | None:
        return (self._router.routed(event), self._router.topic(event)) if self._takes_ddls else None

    def bootstraps(self) -> Iterator[tuple[str, bytes | None, bytes | None, Sequence[int]]]:
        """The bootstrap messages of all tables, for the begin of a delivery."""
        control_messages = self._control
        if not isinstance(control_messages, SendsBootstrap):
            return
        for table in self._packs.wanted():
            partitions = 1 if control_messages.bootstrap_first_partition_only else self._packs.partitions(table.topic)
            yield table.topic, *control_messages.bootstrap(table.shown), range(partitions)

    @property
    def sends_bootstrap(self) -> bool:
        """Whether the protocol has bootstrap messages."""
        return isinstance(self._control, SendsBootstrap) and self._control.sends_bootstrap

    def targets(self) -> Sequence[Target]:
        return self._packs.targets
