"""Where a consumer's rows go, by URI: tables, messages again, or nowhere."""

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
    """Takes transactions and DDLs in order; nothing counts before `commit`. Raises SinkError, SinkUnavailable, SchemaError."""

    def progress(self) -> Progress:
        """What was kept with the last commit."""

    def rows(self, events: Sequence[RowEvent]) -> None:
        """All rows of one commit ts."""

    def ddl(self, ddl: DdlMessage) -> None:
        """A DDL; all rows before it were taken."""

    def commit(self, progress: Progress) -> None:
        """Make what was taken durable, and `progress` with it."""

    def abandon(self) -> None:
        """Forget what was not committed."""

    def close(self) -> None:
        """Give back files and connections."""


class Nowhere:
    """`blackhole://`: takes everything and keeps nothing, not even progress."""

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


def open_target(uri: str, *, zone: tzinfo = UTC, state: Path | None = None, config: Path | None = None) -> ConsumerTarget:
    """The target of a URI. Raises ConfigError."""
    scheme = uri.partition("://")[0]
    if scheme == "sqlite":
        return _tables(uri, zone)
    if scheme == "blackhole":
        return Nowhere()
    if scheme in ("kafka", "kafka+ssl", "file", "messages"):
        from tidemill.config.file import load_config
        from tidemill.consumer.resend import Republish, default_state

        settings = load_config(config)
        sink = settings.sink_uri(uri)
        return Republish(sink, settings, state or default_state(sink))
    raise ConfigError(
        f"--sink-uri {redact(uri)}: no such sink", hint="Give sqlite:///FILE, kafka://, file://, messages:// or blackhole://."
    )


def check_loop(source: Upstream, uri: str) -> None:
    """A topic that is written into is not to be read. Raises ConfigError."""
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
