"""What a DDL does to the tables of the lake, as messages for the driver half. Pure."""

from __future__ import annotations

import base64
import enum
import json
from dataclasses import dataclass

import pyarrow as pa

from tidemill.errors import SinkError
from tidemill.protocols.common.messages import KeyValue
from tidemill.sinks.lake.shapes import LakeTable, lake_table
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.tracking.versions import TableVersion


class Do(enum.Enum):
    """What is done to a table."""

    BEGIN = "begin"  # a table of this name begins
    SHAPE = "shape"  # it gets these columns
    EMPTY = "empty"
    RENAME = "rename"
    DROP = "drop"
    DROP_SCHEMA = "drop schema"  # all tables of it


_REFUSED = {
    Action.DROP_TABLE_PARTITION: "rows leave the table",
    Action.TRUNCATE_TABLE_PARTITION: "rows leave the table",
    Action.EXCHANGE_PARTITION: "rows move between two tables",
    Action.RECOVER_TABLE: "rows come back",
    Action.RECOVER_SCHEMA: "rows come back",
    Action.FLASHBACK_CLUSTER: "rows become those of an earlier time",
}
"""DDLs after which the rows differ, without a change for any of them."""


@dataclass(frozen=True)
class LakeDdl:
    """One step. `old`: schema and table before a rename, or what is dropped. `table`: what the table is afterwards."""

    do: Do
    ts: int
    old: tuple[str, str]
    table: LakeTable | None

    def text(self) -> bytes:
        """Return the message."""
        found: dict[str, object] = {"do": self.do.value, "ts": self.ts, "old": self.old}
        if self.table is not None:
            one, sink = self.table, pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, one.fields) as writer:
                writer.write_batch(one.first)
            found["table"] = [*one.name, one.table_id, one.keys, one.history]
            found["first"] = base64.b64encode(sink.getvalue().to_pybytes()).decode()
        return json.dumps(found).encode()

    @classmethod
    def parse(cls, text: bytes) -> LakeDdl:
        """Return what a message holds."""
        found = json.loads(text)
        table = None
        if "table" in found:
            schema, name, table_id, keys, history = found["table"]
            first = pa.ipc.open_stream(base64.b64decode(found["first"])).read_next_batch()
            table = LakeTable(schema, name, table_id, first, tuple(keys), history)
        return cls(Do(found["do"]), found["ts"], tuple(found["old"]), table)


class LakeControl:
    """See `protocols.common.messages.ControlMessages`."""

    ddl_on_first_partition = True

    def __init__(self, *, history: bool) -> None:
        self._history = history

    def ddl_message(self, event: DdlEvent) -> KeyValue | None:
        """Return what is to be done; None for a DDL that concerns no table's columns or rows. Raises SinkError for one that cannot be."""
        found = self._step(event)
        return (b"", found.text()) if found is not None else None

    def _step(self, event: DdlEvent) -> LakeDdl | None:
        if event.type in _REFUSED and not self._history:
            raise SinkError(
                f"{event.schema}.{event.table}: {_REFUSED[Action(event.type)]} by a DDL, and no change says which: {event.query}",
                hint="Let an event filter ignore the DDL, or load the table again into an empty place.",
            )
        if event.type == Action.DROP_SCHEMA:
            return LakeDdl(Do.DROP_SCHEMA, event.ts, (event.schema, ""), None)
        before, after = event.before, event.after
        if after is None or not after.info.has_rows:
            drops = before is not None and before.info.has_rows and event.type == Action.DROP_TABLE
            return LakeDdl(Do.DROP, event.ts, before.name, None) if drops and before is not None else None
        table = lake_table(after, history=self._history)
        if event.type == Action.TRUNCATE_TABLE:
            return LakeDdl(Do.SHAPE if self._history else Do.EMPTY, event.ts, after.name, table)
        if before is None:
            return LakeDdl(Do.BEGIN, event.ts, after.name, table)
        return LakeDdl(Do.RENAME if _renamed(before, after) else Do.SHAPE, event.ts, before.name, table)

    def resolved_message(self, ts: int) -> KeyValue | None:
        """None."""
        return None


def _renamed(before: TableVersion, after: TableVersion) -> bool:
    return before.name != after.name
