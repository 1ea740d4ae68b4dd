"""How a changefeed's settings become what the batches need: which tables, which DDLs, in which words, in which zone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Protocol

from tidemill.changefeed.config import ChangefeedConfig
from tidemill.changefeed.dispatch import Dispatcher, DispatchRule
from tidemill.changefeed.filter import TableFilter
from tidemill.changefeed.uri import MessageFormat, SinkUri
from tidemill.events import DdlEvent
from tidemill.pipeline.pack import Output, PackStore, Target
from tidemill.protocols.open import encode as open_protocol
from tidemill.tidb.keys import is_system_schema
from tidemill.tidb.schema.history import TableVersion
from tidemill.tidb.schema.model import TableInfo


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user asks of a delivery."""

    feed: str
    sink: SinkUri
    config: ChangefeedConfig
    zone: tzinfo

    @property
    def output(self) -> Output:
        """How rows become messages."""
        sink = self.sink
        return Output(sink.protocol, self.zone, sink.max_batch_size, sink.max_message_bytes)


class Chooser:
    """Which tables and DDLs a changefeed delivers."""

    def __init__(self, settings: Settings) -> None:
        self._filter: TableFilter = settings.config.table_filter()
        self._force = settings.config.force_replicate
        self._dispatcher: Dispatcher = settings.config.dispatcher()
        self._topic = settings.sink.topic

    def table(self, version: TableVersion) -> tuple[str, DispatchRule] | None:
        """Topic and dispatch rule of a table whose rows are delivered, else None. Raises ConfigError for a rule that does not fit it."""
        if not self._passes(version.schema, version.table) or not self._eligible(version.info) or not version.info.has_rows:
            return None
        return self._topic, self._dispatcher.rule(version)

    def topic(self, event: DdlEvent) -> str:
        """Where a DDL goes."""
        return self._topic

    def ddl(self, event: DdlEvent) -> bool:
        """Is a DDL delivered? It is where its table, before or after it, passes the filter and can be replicated."""
        if not event.table:
            return not is_system_schema(event.schema) and self._filter.matches_schema(event.schema)
        names = [(event.schema, event.table), *([(event.pre_schema, event.pre_table)] if event.pre_table else [])]
        if not any(self._passes(*name) for name in names):
            return False
        versions = [v for v in (event.before, event.after) if v is not None]
        return not versions or any(self._eligible(v.info) for v in versions)

    def _passes(self, schema: str, table: str) -> bool:
        return not is_system_schema(schema) and self._filter.matches(schema, table)

    def _eligible(self, info: TableInfo) -> bool:
        """TiCDC's rule: a usable key, or forced; views always, sequences never. Temporary tables count, though they have no rows."""
        if info.is_sequence:
            return False
        return self._force or info.is_view or info.has_usable_key


class _Words(Protocol):
    def ddl_message(self, event: DdlEvent) -> tuple[bytes, bytes | None]: ...
    def resolved_message(self, ts: int) -> tuple[bytes, bytes | None]: ...


def words_of(protocol: MessageFormat | None) -> _Words | None:
    """The module that prints a protocol's DDL and resolved messages; None where nothing is printed."""
    match protocol:
        case MessageFormat.OPEN:
            return open_protocol
        case None:
            return None


class SinkEvents:
    """DDL and resolved events for the sink. See `batch.Events`."""

    def __init__(self, settings: Settings, chooser: Chooser, packs: PackStore) -> None:
        self._words, self._chooser, self._packs = words_of(settings.sink.protocol), chooser, packs

    def ddl(self, event: DdlEvent) -> tuple[str, bytes, bytes | None, Sequence[int]] | None:
        if self._words is None:
            return None
        topic = self._chooser.topic(event)
        key, value = self._words.ddl_message(event)
        return topic, key, value, range(self._packs.partitions(topic))

    def resolved(self, ts: int) -> tuple[bytes, bytes | None] | None:
        return self._words.resolved_message(ts) if self._words is not None else None

    def targets(self) -> Sequence[Target]:
        return self._packs.targets
