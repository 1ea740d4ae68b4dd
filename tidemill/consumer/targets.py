"""The consumer's targets by URI: SQLite tables, messages again, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from tidemill.config.values import parse_duration
from tidemill.consumer.order.progress import Progress
from tidemill.consumer.upstream import Upstream
from tidemill.errors import ConfigError, redact
from tidemill.protocols.open.events import DdlMessage, RowEvent
from tidemill.rules.names import did_you_mean


class ConsumerTarget(Protocol):
    """Takes transactions and DDLs in order. They take effect with `commit`. Raises Fenced, SinkError, SinkUnavailable, SchemaError."""

    @property
    def commits_before_ddls(self) -> bool:
        """Whether everything before a DDL is to be committed first: the DDL takes effect at once."""

    def progress(self) -> Progress:
        """Return the progress of the last commit."""

    def rows(self, events: Sequence[RowEvent]) -> None:
        """Take all rows of one commit ts."""

    def ddl(self, ddl: DdlMessage) -> None:
        """Take a DDL, after all rows before it."""

    def commit(self, progress: Progress) -> None:
        """Make everything taken durable, together with `progress`."""

    def abandon(self) -> None:
        """Drop everything that was not committed."""

    def close(self) -> None:
        """Close files and connections."""


class Nowhere:
    """`blackhole://`: drops everything, also progress."""

    commits_before_ddls = False

    def progress(self) -> Progress:
        return Progress()

    def rows(self, events: Sequence[RowEvent]) -> None:
        pass

    def ddl(self, ddl: DdlMessage) -> None:
        pass

    def commit(self, progress: Progress) -> None:
        pass

    def abandon(self) -> None:
        pass

    def close(self) -> None:
        pass


def open_target(
    uri: str, *, zone: tzinfo = UTC, state: Path | None = None, config: Path | None = None, consumer: str = "tidemill"
) -> ConsumerTarget:
    """Return the target of a URI. `consumer`: the name of its progress in a database. Raises ConfigError."""
    scheme = uri.partition("://")[0]
    if scheme == "sqlite":
        return _tables(uri, zone)
    if scheme == "blackhole":
        return Nowhere()
    if scheme in ("mysql", "mysql+ssl", "tidb", "tidb+ssl"):
        from tidemill.config.file import load_config
        from tidemill.consumer.database import DatabaseTables

        return DatabaseTables(load_config(config).sink_uri(uri), consumer, zone=zone)
    if scheme in ("kafka", "kafka+ssl", "file", "messages"):
        from tidemill.config.file import load_config
        from tidemill.consumer.resend import Republish, default_state

        settings = load_config(config)
        sink = settings.sink_uri(uri)
        return Republish(sink, settings, state or default_state(sink))
    raise ConfigError(
        f"--sink-uri {redact(uri)}: no such sink",
        hint="Give sqlite:///FILE, mysql://, tidb://, kafka://, file://, messages:// or blackhole://.",
    )


def check_loop(source: Upstream, uri: str) -> None:
    """Check that the target does not write to a topic that is read. Raises ConfigError."""
    if uri.partition("://")[0] not in ("kafka", "kafka+ssl"):
        return
    parts = urlsplit(uri)
    topic = unquote(parts.path).lstrip("/")
    if set(parts.netloc.split(",")) & set(source.kafka.hosts) and source.wants(topic):
        raise ConfigError(f"--sink-uri {redact(uri)}: topic {topic} is among those that are read", hint="Name another topic to write to.")


def _tables(uri: str, zone: tzinfo) -> ConsumerTarget:
    from tidemill.consumer.tables.sqlite import KEEP_DROPPED_MS, SqliteTables

    parts = urlsplit(uri)
    path = unquote(parts.path)
    if parts.netloc or not path.startswith("/") or path.endswith("/"):
        raise ConfigError(f"--sink-uri {uri}: expected sqlite:///FILE with an absolute path")
    keep = KEEP_DROPPED_MS
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name != "keep-dropped":
            raise ConfigError(f"--sink-uri: unknown parameter {name}{did_you_mean(name, ['keep-dropped'])}")
        try:
            keep = 0 if value in ("0", "0s") else parse_duration(value)
        except ValueError as error:
            raise ConfigError(f"--sink-uri: keep-dropped = {value!r}: {error}") from None
    return SqliteTables(path, zone=zone, keep_dropped_ms=keep)
