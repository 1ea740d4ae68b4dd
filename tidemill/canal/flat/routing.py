"""Where Canal's MQ mode sends messages: `canal.mq.partitionHash` and `canal.mq.dynamicTopic`, read from their texts.

Names are compared without regard to case. What has a character of regular expressions is one, and has to fit the whole name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tidemill.canal.flat.javatext import java_hash
from tidemill.canal.flat.messages import FlatMessage
from tidemill.errors import ConfigError
from tidemill.protocols.canal.codes import EventType
from tidemill.protocols.canal.parse import parse_head, parsed, text
from tidemill.wire import canal_entry_pb2 as pb

_WILD = frozenset("*?+|(){}[]\\$^")
_OF_TABLES = "\\."
_KEYS = "$pk$"


@dataclass(frozen=True, slots=True)
class _Name:
    """A name, or a regular expression for names of tables (`schema.table`) or of schemas."""

    text: str
    regex: re.Pattern[str] | None

    @classmethod
    def of(cls, written: str, setting: str) -> _Name:
        if not _WILD & set(written):
            return cls(written.lower(), None)
        try:
            return cls(written, re.compile(written, re.IGNORECASE | re.ASCII))
        except (re.error, OverflowError, RecursionError) as error:
            raise ConfigError(f"{setting}: {written!r} is not a regular expression: {error}") from None

    def fits(self, name: str, *, either: bool = False) -> bool:
        """`either`: whether it does not matter that an expression is for tables or for schemas."""
        if self.regex is None:
            return self.text == name.lower()
        return (either or (_OF_TABLES in self.text) == ("." in name)) and self.regex.fullmatch(name.lower()) is not None


def _items(written: str) -> list[str]:
    return [item.strip() for item in re.split("[,;]", written) if item.strip()]


@dataclass(frozen=True, slots=True)
class DynamicTopics:
    """`canal.mq.dynamicTopic`: the first item that fits the table's name gives the topic, else the first that fits the schema's."""

    items: tuple[tuple[str, _Name], ...]
    default: str

    @classmethod
    def of(cls, written: str, default: str) -> DynamicTopics:
        """Read the setting: items `name` or `topic:name`. Raises ConfigError."""
        found = []
        for item in _items(written):
            topic, colon, name = item.rpartition(":")
            if colon and not (topic.strip() and name.strip()):
                raise ConfigError(f"canal.mq.dynamicTopic: {item!r} is neither name nor topic:name")
            found.append((topic.strip(), _Name.of(name.strip(), "canal.mq.dynamicTopic")))
        return cls(tuple(found), default)

    def topic(self, schema: str, table: str) -> str:
        """The topic of a table's entries. Those without a table's name have the default one."""
        if schema and table:
            for name in (f"{schema}.{table}", schema):
                for topic, pattern in self.items:
                    if pattern.fits(name):
                        return (topic or name.lower()).replace(".", "_")
        return self.default.replace(".", "_")


@dataclass(frozen=True, slots=True)
class _Rule:
    """An item of partitionHash. Without `fields` the table's name is hashed."""

    name: _Name
    fields: tuple[str, ...] = ()

    @property
    def keys(self) -> bool:
        """Whether the fields are those of the primary key."""
        return self.fields == (_KEYS,)


@dataclass(frozen=True, slots=True)
class PartitionHash:
    """`canal.mq.partitionHash` over so many partitions. `with_database`: `canal.mq.database.hash`."""

    rules: tuple[_Rule, ...]
    partitions: int
    with_database: bool = True

    @classmethod
    def of(cls, written: str, partitions: int, *, with_database: bool = True) -> PartitionHash:
        """Read the setting: items `name:field^field`, `name:$pk$` or `name`. Raises ConfigError."""
        if partitions < 1:
            raise ConfigError(f"canal.mq.partitionsNum: {partitions} is not a number of partitions")
        rules = []
        for item in _items(written):
            name, colon, fields = item.rpartition(":") if ":" in item else (item, "", "")
            chosen = tuple(field.strip() for field in fields.split("^") if field.strip())
            if colon and not (chosen and name.strip()):
                raise ConfigError(f"canal.mq.partitionHash: {item!r} is neither name nor name:field")
            rules.append(_Rule(_Name.of(name.strip(), "canal.mq.partitionHash"), chosen))
        return cls(tuple(rules), partitions, with_database)

    def split_message(self, message: FlatMessage) -> dict[int, FlatMessage]:
        """The parts of a flat message by partition. Fields are those with exactly these names."""
        rule = self._rule(message.database, message.table)
        if message.ddl or not message.data or rule is None:
            return {0: message}
        if not rule.fields:
            return {self._of_table(message.table): message}
        names = (message.pk_names or ()) if rule.keys else rule.fields
        rows: dict[int, list[int]] = {}
        for number, row in enumerate(message.data):
            rows.setdefault(self._of_values(message.database, [row.get(name) for name in names]), []).append(number)
        return {partition: message.part(chosen) for partition, chosen in sorted(rows.items())}

    def split_entry(self, entry: bytes) -> list[tuple[int, bytes]]:
        """An entry for each row, where rows have partitions of their own, else the entry. Fields are found without regard to case.

        Raises EntryError.
        """
        _, header, content = parse_head(entry)
        rule = self._rule(header.schema, header.table)
        change = parsed(pb.RowChange, content, "storeValue")
        if change.is_ddl or not change.row_datas or rule is None:
            return [(0, entry)]
        if not rule.fields:
            return [(self._of_table(header.table), entry)]
        wanted = {field.lower() for field in rule.fields}
        deleted = change.event_type == EventType.DELETE
        found = []
        for row in change.row_datas:
            columns = row.before_columns if deleted else row.after_columns
            chosen = [c for c in columns if (c.is_key if rule.keys else text(c.name, "name").lower() in wanted)]
            values = [None if c.is_null else text(c.value, "value") for c in chosen]
            found.append((self._of_values(header.schema, values), _with_row(entry, change, row)))
        return found

    def _rule(self, schema: str, table: str) -> _Rule | None:
        return next((rule for rule in self.rules if rule.name.fits(f"{schema}.{table}", either=True)), None)

    def _of_table(self, table: str) -> int:
        return _partition(java_hash(table), self.partitions)

    def _of_values(self, database: str, values: Sequence[str | None]) -> int:
        found = java_hash(database) if self.with_database else 0
        for value in values:
            found ^= java_hash(value or "")
        return _partition(found, self.partitions)


def _partition(code: int, partitions: int) -> int:
    """Java's abs of the smallest int is itself, and its remainder has the sign of what is divided; another abs is around it."""
    return abs(code) % partitions


def _with_row(entry: bytes, change: pb.RowChange, row: pb.RowData) -> bytes:
    """The entry with this one of its rows."""
    made = pb.Entry.FromString(entry)
    one = pb.RowChange()
    one.CopyFrom(change)
    del one.row_datas[:]
    one.row_datas.append(row)
    made.store_value = one.SerializeToString()
    return made.SerializeToString()
