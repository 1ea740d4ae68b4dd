"""Schema ids of tables, from the cache or else the registry. Where the registry refuses, the error says what to do.

A table version costs at most one call for its key and one for its value, and none for a schema that is cached. A DDL costs another call
only if some compatibility level refuses such a change: the registry is asked beforehand, to warn.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from tidemill.config.registry_address import parse_address
from tidemill.errors import RegistryError, RegistryUnavailable, SchemaIncompatible
from tidemill.protocols.all import spec_of
from tidemill.protocols.avro.schema import AvroSchemas, Side, subject
from tidemill.protocols.options import EncodingOptions
from tidemill.protocols.spec import load
from tidemill.registry.answers import Forbidden, NotThere
from tidemill.registry.cache import IdCache
from tidemill.registry.client import RegistryClient
from tidemill.registry.compare import Fault, faults
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.tracking.history import TableVersion
from tidemill.tso import describe
from tidemill.visible import short_statement

log = logging.getLogger(__name__)

NO_KEY = -1
"""The key's id of a table whose messages have no key."""
Sent = tuple[TableVersion, str]
"""A table as its messages have it, and its topic."""


class Registrar:
    """The schemas of one changefeed."""

    def __init__(self, client: RegistryClient, cache: IdCache, options: EncodingOptions) -> None:
        self._client, self._cache, self._options = client, cache, options
        assert options.protocol is not None, "only messages have schemas"
        self._table_schemas = load(spec_of(options.protocol).schemas)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def meet(self) -> None:
        """Check that the registry answers, and drop cached subjects that it no longer has. Raises RegistryUnavailable, RegistryError.

        A registry that refuses to list its subjects is trusted.
        """
        try:
            self._cache.keep(self._client.subjects())
        except Forbidden as error:
            log.info("%s does not list its subjects: %s", self._client.address, error.message)

    def ids(self, version: TableVersion, topic: str) -> tuple[int, int]:
        """Return the ids of a table's key (NO_KEY: none) and value. Raises SchemaIncompatible, RegistryError, RegistryUnavailable."""
        texts = self._schemas(version)
        key = self._id(version, topic, Side.KEY, texts.key) if texts.key is not None else NO_KEY
        return key, self._id(version, topic, Side.VALUE, texts.value)

    def _schemas(self, version: TableVersion) -> AvroSchemas:
        found: AvroSchemas = self._table_schemas(version, self._options)
        return found

    def _id(self, version: TableVersion, topic: str, side: Side, text: str) -> int:
        name = subject(topic, side)
        known = self._cache.get(name, text)
        if known is not None:
            return known
        try:
            schema_id = self._client.register(name, text)
        except SchemaIncompatible as error:
            raise self._explained(error, version, name, text) from None
        log.info(
            "schema %d is registered for %s, %s.%s as of %s", schema_id, name, version.schema, version.table, describe(version.from_ts)
        )
        self._cache.put(name, text, schema_id)
        return schema_id

    def _explained(self, error: SchemaIncompatible, version: TableVersion, name: str, text: str) -> SchemaIncompatible:
        """Return the refusal as an error that names table, subject, columns and level, and what to do."""
        level, found = self._why(name, text)
        told = f"subject {name}" + (f" (compatibility {level})" if level else "")
        why = "; ".join(map(str, found)) or "the registry's answer says which column"
        return SchemaIncompatible(
            f"table {version.schema}.{version.table} as it is from {describe(version.from_ts)} on: the schema registry refuses its schema "
            f"for {told}: {why}. {error.message}",
            hint=f"Nothing past that DDL is delivered. Set the compatibility of {name} to NONE, or remove the subject if no reader needs "
            "its old versions, then start the changefeed again: it goes on where it is.",
        )

    def _why(self, name: str, text: str) -> tuple[str, tuple[Fault, ...]]:
        """Return the subject's compatibility level, and why a schema is incompatible, as far as the registry answers."""
        level = ""
        try:
            level = self._level(name)
            return level, faults(self._client.latest(name), text, level)
        except (RegistryError, RegistryUnavailable, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            log.debug("why %s is refused is not known: %s", name, error)
            return level, ()

    def _level(self, name: str) -> str:
        """Return the compatibility level that refuses. It is not NONE; the answers for a subject without its own level differ."""
        try:
            level = self._client.compatibility(name)
        except NotThere:
            level = "NONE"
        return level if level != "NONE" else self._client.compatibility()

    def foresee(self, event: DdlEvent, before: Sent | None, after: Sent | None) -> None:
        """Warn of a DDL after which the registry will refuse the table's schema. Never fails, because registering decides.

        The table before and after the DDL; None where its rows are not delivered.
        """
        if after is None:
            return
        version, topic = after
        new = self._schemas(version)
        old = self._schemas(before[0]) if before is not None else None
        for side, text in ((Side.KEY, new.key), (Side.VALUE, new.value)):
            name = subject(topic, side)
            if text is None or self._cache.get(name, text) is not None:
                continue
            if old is not None and before is not None and subject(before[1], side) == name:
                old_text = old.key if side is Side.KEY else old.value
                asks = old_text is not None and bool(faults(old_text, text))
            else:
                asks = self._cache.knows(name)
            if asks:
                self._warn(event, name, text)

    def _warn(self, event: DdlEvent, name: str, text: str) -> None:
        try:
            answer = self._client.check(name, text)
        except (RegistryError, RegistryUnavailable) as error:
            log.warning(
                "whether the registry will take the schema of %s.%s could not be asked: %s", event.schema, event.table, error.message
            )
            return
        if answer is None or answer[0]:
            return
        level, found = self._why(name, text)
        log.warning(
            "the DDL at %s, %s, makes a schema that the registry will refuse for subject %s%s: %s%s. The changefeed fails at the first row "
            "past it, unless the subject's compatibility is set to NONE before",
            describe(event.ts),
            short_statement(event.query),
            name,
            f" (compatibility {level})" if level else "",
            "; ".join(map(str, found)) or "no column is known",
            f". It says: {answer[1]}" if answer[1] else "",
        )


def open_registrar(
    options: EncodingOptions,
    cache: Path | None = None,
    stop: threading.Event | None = None,
    took: Callable[[float], None] = lambda seconds: None,
) -> Registrar:
    """Return the registrar of a changefeed. Its options name the registry. `stop` ends pauses, `took` is told of each request. Raises
    ConfigError."""
    address = parse_address(options.avro.registry)
    return Registrar(RegistryClient(address, stop, took=took), IdCache(cache, address.url), options)
