"""Column selectors ([[sink.column-selectors]] of TiCDC): the columns that a table's messages have.

The first selector whose matcher lets the table in counts. It must keep the columns of the handle key and those that the dispatcher hashes.
Routing and the split of updates use all columns, as in TiCDC.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from tidemill.errors import ConfigError
from tidemill.rules.table_filter import ColumnFilter, TableFilter
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion


@dataclass(frozen=True, slots=True)
class ColumnSelector:
    """One [[sink.column-selectors]]."""

    matcher: TableFilter
    columns: ColumnFilter


class ColumnSelectors:
    """All column selectors of a changefeed."""

    def __init__(self, selectors: Sequence[ColumnSelector] = ()) -> None:
        self._selectors = tuple(selectors)

    def dropped(self, version: TableVersion, hashed: Collection[int]) -> frozenset[int]:
        """Return the ids of the columns that a table's messages do not have. `hashed` are those that its dispatcher needs.

        Raises ConfigError if a needed column would be dropped, or none is left.
        """
        name = f"{version.schema}.{version.table}"
        selector = next((s for s in self._selectors if s.matcher.matches(version.schema, version.table)), None)
        if selector is None:
            return frozenset()
        dropped = [c for c in version.info.output_columns if not selector.columns.matches(c.name)]
        for column in dropped:
            if column.id in version.info.handle_key_ids:
                raise ConfigError(f"column selector for {name}: column {column.name!r} of the handle key cannot be left out")
            if column.id in hashed:
                raise ConfigError(f"column selector for {name}: column {column.name!r} cannot be left out, the dispatcher needs it")
        if len(dropped) == len(version.info.output_columns):
            raise ConfigError(f"column selector for {name}: no column is left")
        return frozenset(c.id for c in dropped)


def without(info: TableInfo, dropped: Collection[int]) -> TableInfo:
    """Return the table with some columns hidden, so that its rows are delivered without them."""
    return replace(info, columns=tuple(replace(c, hidden=True) if c.id in dropped else c for c in info.columns)) if dropped else info
