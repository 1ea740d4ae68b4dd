"""Column selectors: which columns a table's messages have. [[sink.column-selectors]] of TiCDC.

The first selector whose matcher lets the table in counts. The columns of the handle key stay, or rows could not be told apart; so do
those that the dispatcher hashes. Routing and the split of updates look at all columns, as in TiCDC.
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
        """Ids of the columns that a table's messages do not have. `hashed`: those that its dispatcher needs.

        Raises ConfigError where one of them may not be dropped, or none is left.
        """
        name = f"{version.schema}.{version.table}"
        selector = next((s for s in self._selectors if s.matcher.matches(version.schema, version.table)), None)
        if selector is None:
            return frozenset()
        dropped = [c for c in version.info.output_columns if not selector.columns.matches(c.name)]
        for column in dropped:
            if column.id in version.info.handle_key_columns:
                raise ConfigError(f"column selector for {name}: column {column.name!r} of the handle key cannot be left out")
            if column.id in hashed:
                raise ConfigError(f"column selector for {name}: column {column.name!r} cannot be left out, the dispatcher needs it")
        if len(dropped) == len(version.info.output_columns):
            raise ConfigError(f"column selector for {name}: no column is left")
        return frozenset(c.id for c in dropped)


def without(info: TableInfo, dropped: Collection[int]) -> TableInfo:
    """A table whose rows are delivered without some columns: they are hidden."""
    return replace(info, columns=tuple(replace(c, hidden=True) if c.id in dropped else c for c in info.columns)) if dropped else info
