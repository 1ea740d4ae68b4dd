"""The options of a DataFrame: names in any case, with or without `_` and `-`; one that does not exist is refused with the nearest name."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tidemill.config.values import duration
from tidemill.errors import ConfigError, TidemillError
from tidemill.rules.names import nearest
from tidemill.rules.table_filter import TableFilter
from tidemill.spark.cluster.connection import NAMES as CLUSTER
from tidemill.spark.cluster.connection import Cluster, cluster_of
from tidemill.tidb.columns.forms import TimeAs
from tidemill.tidb.names import quote_name
from tidemill.tso import LOGICAL_BITS, parse


class Policy(enum.StrEnum):
    """What happens where a DDL changes the columns of a table that is being read."""

    FAIL = "fail"  # the query ends, and again when it is started again, until somebody accepts the new columns
    RESTART = "restart"  # the query ends; started again, it has the new columns
    ADD_COLUMNS = "addColumns"  # columns that are added are left out until the query is started again; other changes end it


class OnDdl(enum.StrEnum):
    """What happens at a DDL that changes rows of the table without changes."""

    ERROR = "error"  # the query ends, and again when it is started again. A stream does it if nothing else is asked for
    IGNORE = "ignore"
    ROWS = "rows"  # where all rows go there is a row of kind `truncate`; at others the query ends


class Kind(enum.Enum):
    """What a row of the DataFrame is."""

    TABLE = enum.auto()  # an image of one table's row, in typed columns
    ROWS = enum.auto()  # a change of any table, its images as JSON
    RAW = enum.auto()  # a change as the log has it


_PLACES = ("log", "logFile", *CLUSTER)
NAMES = (
    *_PLACES,
    *("table", "tables", "rawChanges"),
    *("startingTs", "startingTimestamp", "endingTs", "endingTimestamp", "initialSnapshot"),
    *("columns", "strict", "timeAs", "schemaTs", "schemaChangePolicy", "onDdl"),
    *("maxBytesPerTrigger", "maxRowsPerTrigger", "logLease"),
)
"""All options. docs/spark/source.md explains them."""

EARLIEST, LATEST = "earliest", "latest"
LEASE = "48h"
"""Twice the usual retention: a stream that runs once a day may be late."""
_LEASE = duration(0, 365 * 86_400_000)
_SIZE = re.compile(r"(\d+)\s*(b|k|kb|kib|m|mb|mib|g|gb|gib)?", re.IGNORECASE)
_UNITS = {"b": 0, "k": 10, "m": 20, "g": 30}
_LAST_LOGICAL = (1 << LOGICAL_BITS) - 1
_Word = TypeVar("_Word", bound=enum.StrEnum)


@dataclass(frozen=True, slots=True)
class Options:
    """A DataFrame as its user asked for it. `log`: empty where the capture of a cluster has one of its own."""

    log: str
    kind: Kind
    table: tuple[str, str] | None = None  # database and table
    rules: tuple[str, ...] = ("*.*",)  # of the tables, where no single one is named
    start: int | str = EARLIEST  # changes above this ts; EARLIEST, LATEST
    end: int | None = None  # changes up to this ts; None: up to the log's end
    schema_ts: int | None = None  # the columns are those of this ts
    columns: tuple[str, ...] = ()  # only these; none: all
    policy: Policy = Policy.FAIL
    on_ddl: OnDdl | None = None  # None: a stream ends, a batch goes on
    time_as: TimeAs = TimeAs.STRING
    strict: bool = False
    initial_snapshot: bool = False
    max_bytes: int = 0
    max_rows: int = 0
    lease_s: float = 0.0  # how long the log waits for a stream that says nothing; 0: it does not wait
    cluster: Cluster | None = None  # a capture of it writes the log

    @property
    def what(self) -> str:
        """The tables, for messages."""
        return ".".join(self.table) if self.table else ", ".join(self.rules)

    @property
    def capture_rules(self) -> tuple[str, ...]:
        """Filter rules for a capture of these tables alone."""
        if self.table is None:
            return self.rules
        return (".".join(map(quote_name, self.table)),)

    def filter(self) -> TableFilter:
        """Which tables are read, where no single one is named. Raises ConfigError."""
        return TableFilter(self.rules, where="option tables: rule")


def plain(name: str) -> str:
    """A name as names are compared."""
    return name.replace("_", "").replace("-", "").lower()


_BY_PLAIN = {plain(name): name for name in NAMES}
_DDL_NAMES = (*_PLACES, "table", "tables", "startingTs", "startingTimestamp", "endingTs", "endingTimestamp", "logLease")
_OF_DDL = {plain(name): name for name in _DDL_NAMES}
_SPARKS = frozenset({"path", "checkpointlocation", "queryname"})
"""Spark adds these of its own accord."""


def parse_options(given: Mapping[str, str], *, ddl: bool = False) -> Options:
    """Parse Spark's options. `ddl`: those of `tidemill.ddl`. Raises ConfigError naming the option, and what may stand there."""
    found = by_name(given, _OF_DDL if ddl else _BY_PLAIN)
    if ddl and "table" not in found:
        found.setdefault("tables", "*.*")
    return _Parser(found).options()


def by_name(given: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """Spark's options by their documented names. `names`: these, by how names are compared (`plain`). Raises ConfigError."""
    found: dict[str, str] = {}
    for name, text in given.items():
        known = names.get(plain(name))
        if known is None and plain(name) in _SPARKS:
            continue
        if known is None:
            raise ConfigError(f"there is no option {name!r}", hint=_nearest(name, names))
        if known in found:
            raise ConfigError(f"option {known} is given twice")
        found[known] = text.strip()
    return found


def _nearest(name: str, names: Mapping[str, str]) -> str:
    near = nearest(name, names.values())
    return f"Did you mean {near}?" if near else f"There are {', '.join(names.values())}."


def with_session(given: Mapping[str, str], session: Mapping[str, str], places: Sequence[str] = ("log", "pd")) -> dict[str, str]:
    """Return options, with those of the session for what they leave out. `places`: what says where the data is, the first that the session
    has is taken, if the options name no place. Files for TLS go with a cluster."""
    named = {plain(name) for name in given}
    found = dict(given)
    place = next((name for name in places if name in session), None)
    if place is not None and not named & {"log", "logfile", "pd"}:
        found[place] = session[place]
    if "pd" in {plain(name) for name in found} and not any(
        text.startswith("http://") for name, text in found.items() if plain(name) == "pd"
    ):
        found |= {name: session[name] for name in ("ca", "cert", "key") if name in session and name not in named}
    return found


class OptionValues:
    """The values of options, by the options' documented names."""

    def __init__(self, found: Mapping[str, str]) -> None:
        self._found = found

    def names(self, name: str) -> tuple[str, ...]:
        """A list, as JSON or with commas."""
        text = self._found.get(name, "")
        if not text.startswith("["):
            return tuple(part for one in text.split(",") if (part := one.strip()))
        try:
            found = json.loads(text)
        except ValueError:
            return (text,)  # a rule may begin with a character class
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise ConfigError(f"option {name}: {text} is not a list of names")
        return tuple(found)

    def ts(self, name: str, words: tuple[str, ...] = (), now: int | None = None) -> int | str:
        """A ts: a TSO, a moment, or one of these words. `now`: the cluster's present, if there is a cluster to ask."""
        text = self._found[name]
        if text.lower() in words:
            return text.lower()
        try:
            return parse(text, now)
        except TidemillError as error:
            also = f" Or {', '.join(words)}." if words else ""
            raise ConfigError(f"option {name}: {error.message}", hint=f"{error.hint}{also}".strip()) from None

    def flag(self, name: str) -> bool:
        """`true` or `false`, the latter without the option."""
        text = self._found.get(name, "false").lower()
        if text not in ("true", "false"):
            raise ConfigError(f"option {name}: {text!r} is neither true nor false")
        return text == "true"

    def choice(self, name: str, kind: type[_Word], default: _Word) -> _Word:
        """One of some words."""
        text = self._found.get(name)
        if text is None:
            return default
        for one in kind:
            if plain(one) == plain(text):
                return one
        raise ConfigError(f"option {name}: {text!r} is not one of {', '.join(kind)}")

    def number(self, name: str) -> int:
        """A number above 0, with a unit such as 64m; 0: it is not given."""
        text = self._found.get(name)
        if text is None:
            return 0
        found = _SIZE.fullmatch(text)
        number = int(found[1]) << _UNITS[(found[2] or "b")[0].lower()] if found else 0
        if number <= 0:
            raise ConfigError(f"option {name}: {text!r} is not a number above 0", hint="As in 100000 or 64m.")
        return number


class _Parser(OptionValues):
    def options(self) -> Options:
        kind, table, rules = self._tables()
        end = self._moment("endingTs", "endingTimestamp", _LAST_LOGICAL)
        start = self._moment("startingTs", "startingTimestamp", -1, words=(EARLIEST, LATEST))
        if isinstance(start, int) and isinstance(end, int) and start > end:
            raise ConfigError(f"the DataFrame begins at {start}, after its end at {end}")
        if kind is not Kind.TABLE:
            self._refuse(kind, "columns", "schemaTs", "schemaChangePolicy", "timeAs", "strict", "onDdl")
        schema_ts = self.ts("schemaTs", words=(LATEST,)) if "schemaTs" in self._found else None
        return Options(
            log=self._log(),
            kind=kind,
            table=table,
            rules=rules,
            start=EARLIEST if start is None else start,
            end=end if isinstance(end, int) else None,
            schema_ts=-1 if schema_ts == LATEST else schema_ts if isinstance(schema_ts, int) else None,
            columns=self.names("columns"),
            policy=self.choice("schemaChangePolicy", Policy, Policy.FAIL),
            on_ddl=self.choice("onDdl", OnDdl, OnDdl.ERROR) if "onDdl" in self._found else None,
            time_as=self.choice("timeAs", TimeAs, TimeAs.STRING),
            strict=self.flag("strict"),
            initial_snapshot=self.flag("initialSnapshot"),
            max_bytes=self.number("maxBytesPerTrigger"),
            max_rows=self.number("maxRowsPerTrigger"),
            lease_s=self._lease(),
            cluster=self._cluster(),
        )

    def _lease(self) -> float:
        text = self._found.get("logLease", LEASE)
        try:
            return _LEASE(text) / 1000
        except ValueError as error:
            raise ConfigError(f"option logLease: {text!r}: {error}", hint="As in 48h or 30m; 0s for none.") from None

    def _cluster(self) -> Cluster | None:
        if "pd" in self._found:
            return cluster_of(self._found)
        for name in CLUSTER:
            if name in self._found:
                raise ConfigError(f"option {name} is for TLS to a cluster", hint="It goes with the option pd.")
        return None

    def _log(self) -> str:
        log, file = self._found.get("log"), self._found.get("logFile")
        if log is not None and file is not None:
            raise ConfigError("the options log and logFile exclude each other")
        if log is None and file is None:
            if "pd" in self._found:
                return ""
            raise ConfigError(
                "one of the options log, logFile and pd says where changes come from",
                hint="As in .option('log', '/data/log') for a change log, .option('pd', 'pd-0:2379') for a cluster.",
            )
        if log is not None:
            return log
        assert file is not None
        try:
            return Path(file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigError(f"option logFile: {file} cannot be read: {error.strerror}") from None

    def _tables(self) -> tuple[Kind, tuple[str, str] | None, tuple[str, ...]]:
        raw = self.flag("rawChanges")
        table, rules = self._found.get("table"), self.names("tables")
        if table is not None and rules:
            raise ConfigError("the options table and tables exclude each other")
        if table is None and not rules and not raw:
            raise ConfigError(
                "one of the options table, tables and rawChanges says what is read",
                hint="As in .option('table', 'shop.orders') or .option('tables', 'shop.*')",
            )
        name = table_name(table) if table is not None else None
        kind = Kind.RAW if raw else Kind.TABLE if name is not None else Kind.ROWS
        TableFilter(rules, where="option tables: rule")  # raises what is wrong with them
        return kind, name, rules or ("*.*",)

    def _refuse(self, kind: Kind, *names: str) -> None:
        for name in names:
            if name in self._found:
                raise ConfigError(f"option {name} is for typed columns", hint="It goes with the option table, without rawChanges.")

    def _moment(self, ts: str, timestamp: str, beside: int, words: tuple[str, ...] = ()) -> int | str | None:
        """A ts, or the moment beside it: all changes of its millisecond lie after the start and before the end."""
        if ts in self._found and timestamp in self._found:
            raise ConfigError(f"the options {ts} and {timestamp} exclude each other")
        if ts in self._found:
            return self.ts(ts, words)
        if timestamp not in self._found:
            return None
        found = self.ts(timestamp, ())
        assert isinstance(found, int), "there is no word for a moment"
        return found if self._found[timestamp].isdecimal() else found + beside


def table_name(text: str) -> tuple[str, str]:
    """Database and table, either in backticks."""
    found = re.fullmatch(r"(`(?:[^`]|``)+`|[^.`]+)\.(`(?:[^`]|``)+`|[^.`]+)", text)
    if found is None:
        raise ConfigError(f"option table: {text!r} is not a table", hint="As in shop.orders, or `a.b`.`c`.")
    database, table = (part[1:-1].replace("``", "`") if part[0] == "`" else part for part in found.groups())
    return database, table
