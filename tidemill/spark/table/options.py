"""The options of `format("tidemill.table")`. docs/spark/tables.md explains them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.errors import ConfigError
from tidemill.spark.cluster.connection import Cluster, cluster_of
from tidemill.spark.source.options import OptionValues, by_name, plain, table_name
from tidemill.tidb.columns.forms import TimeAs

NAMES = (
    "pd",
    "table",
    "asOfTs",
    "asOfTimestamp",
    "columns",
    "regionsPerTask",
    "rowsPerTask",
    "tikvScans",
    "strict",
    "timeAs",
    "ca",
    "cert",
    "key",
)

_BY_PLAIN = {plain(name): name for name in NAMES}


@dataclass(frozen=True, slots=True)
class TableOptions:
    """A table as its user asked for it. `given`: the options by their names, among them the ts, which may need the cluster's present."""

    cluster: Cluster
    table: tuple[str, str]
    given: Mapping[str, str]
    columns: tuple[str, ...] = ()
    regions_per_task: int = 1
    strict: bool = False
    time_as: TimeAs = TimeAs.STRING
    scans: int = 0  # at once at most; 0: as many as Spark runs tasks
    rows_per_task: int = 0  # at most; 0: all. Where the query has a LIMIT

    @property
    def what(self) -> str:
        """The table, for messages."""
        return ".".join(self.table)

    def ts(self, now: int) -> int:
        """The ts as of which the table is read. `now`: a fresh TSO. Raises ConfigError."""
        name = next((n for n in ("asOfTs", "asOfTimestamp") if n in self.given), None)
        found = OptionValues(self.given).ts(name, now=now) if name is not None else now
        assert isinstance(found, int), "there is no word for a ts"
        if found > now:
            raise ConfigError(f"option {name}: {self.given[name or '']} lies in the cluster's future", hint=f"It is {now} there now.")
        return found


def parse_table_options(given: Mapping[str, str]) -> TableOptions:
    """Parse Spark's options. Raises ConfigError naming the option, and what may stand there."""
    found = by_name(given, _BY_PLAIN)
    values = OptionValues(found)
    for name, example in (("pd", "pd-0:2379,pd-1:2379"), ("table", "shop.orders")):
        if not found.get(name):
            raise ConfigError(f"option {name} is missing", hint=f"As in .option('{name}', '{example}')")
    if "asOfTs" in found and "asOfTimestamp" in found:
        raise ConfigError("the options asOfTs and asOfTimestamp exclude each other")
    return TableOptions(
        cluster_of(found),
        table_name(found["table"]),
        found,
        values.names("columns"),
        values.number("regionsPerTask") or 1,
        values.flag("strict"),
        values.choice("timeAs", TimeAs, TimeAs.STRING),
        values.number("tikvScans") or 0,
        values.number("rowsPerTask"),
    )
