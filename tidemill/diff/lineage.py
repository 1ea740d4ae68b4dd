"""What DDLs did to tables between the start of a log and a ts, as far as the log's rows do not show it. Pure.

TiDB rewrites rows without a change event when it converts a column to another type, and when it moves rows to new partitions (REORGANIZE
PARTITION, PARTITION BY, REMOVE PARTITIONING).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.tracking.history import SchemaHistory

_MOVING = frozenset({Action.REORGANIZE_PARTITION, Action.ALTER_PARTITIONING, Action.REMOVE_PARTITIONING})


@dataclass(slots=True)
class Lineage:
    """`converted`: of a table the columns that got another type: the ts and the new column's id. `owners`: the logical tables that a
    physical table belonged to. `parents`: the physical tables whose rows were moved into one. `removed`: when a physical table ended."""

    converted: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    owners: dict[int, set[int]] = field(default_factory=dict)
    parents: dict[int, set[int]] = field(default_factory=dict)
    removed: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, history: SchemaHistory, start: int, ts: int) -> Lineage:
        """Return what happened in (start, ts]."""
        found = cls()
        for version in history.snapshot(start).tables.values():
            found._own(version.table_id, version.physical_ids)
        for change in history.next_table_changes(start, ts):
            before = {version.table_id: version for version in change.ended}
            found.removed |= dict.fromkeys(change.removed, change.ts)
            for version in change.begun:
                found._own(version.table_id, version.physical_ids)
                known = before.get(version.table_id)
                if known is not None:
                    old, new = ({c.id for c in one.info.output_columns} for one in (known, version))
                    if old - new:
                        found.converted.setdefault(version.table_id, []).extend((change.ts, id_) for id_ in new - old)
        for event in history.ddl_events(start, ts, lambda event: event.type in _MOVING):
            if event.before is not None and event.after is not None:
                gone = set(event.before.physical_ids) - set(event.after.physical_ids)
                for id_ in set(event.after.physical_ids) - set(event.before.physical_ids):
                    found.parents.setdefault(id_, set()).update(gone)
        return found

    def _own(self, logical: int, physical: Iterable[int]) -> None:
        for id_ in physical:
            self.owners.setdefault(id_, set()).add(logical)

    def ancestors(self, physical: Iterable[int]) -> set[int]:
        """Return the physical tables out of which rows were moved into these, directly or not."""
        found: set[int] = set()
        todo = [*physical]
        while todo:
            for parent in self.parents.get(todo.pop(), ()):
                if parent not in found:
                    found.add(parent)
                    todo.append(parent)
        return found
