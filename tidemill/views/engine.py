"""The state of a view: a DuckDB database in one file, brought up to date in one transaction an interval. This module does IO.

    meta      one row: the plan's digest, the resolved ts, the ts of the changes that are still to be delivered (0: none)
    tN … oN   see `rules`
    copies    of a view without a key: how often each row is there, by its hash
    pending   the changes of the view up to the resolved ts: its columns, and _weight
    content   the view itself, where its target is memory

A process that dies leaves the state of its last transaction. Only one process at a time opens the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from tidemill.extras import extra
from tidemill.tso import SavedTs, describe
from tidemill.views import types as t
from tidemill.views.changes import CHANGE
from tidemill.views.decimals import functions_in
from tidemill.views.plan import BySpark, Plan
from tidemill.views.refusal import ViewError
from tidemill.views.rules import Rules
from tidemill.views.shape import ROW_KEY, WEIGHT, Keyed, Shape

with extra("views"):
    import duckdb
    from duckdb.func import FunctionNullHandling, PythonUDFType

if TYPE_CHECKING:
    from tidemill.views.spark.session import ViewSession

FORMAT = 2
_TIDY_ROWS = 100_000
"""A table without a key is put in order when so many rows, and a half of it, were added behind it."""


class Engine:
    """A view's state. A context manager. Raises ViewError."""

    def __init__(
        self, path: str | Path, plan: Plan, shape: Shape, digest: str, *, begin_ts: int, keeps_content: bool, threads: int = 1
    ) -> None:
        """`path`: a file, or ":memory:". `begin_ts`: the resolved ts of a new state."""
        self._plan, self.shape, self._rules, self._content = plan, shape, Rules(plan), keeps_content
        self._where = str(path)
        try:
            self._db = duckdb.connect(str(path))
        except duckdb.Error as error:
            raise _cannot_open(self._where, error) from None
        self._spark: ViewSession | None = None
        self._threads = threads
        self._functions: set[str] = set()
        self._appended: dict[int, int] = {}
        with self._errors():
            for statement in ("SET TimeZone = 'UTC'", f"SET threads = {threads}", "SET preserve_insertion_order = false"):
                self._db.execute(statement)
            self._open(digest, begin_ts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._spark is not None:
            self._spark.close()
        self._db.close()

    # ---- what it knows

    @property
    def resolved_ts(self) -> int:
        """The ts that the state is of; the begin's before the first interval."""
        return self._number("SELECT resolved_ts FROM meta")

    @property
    def saved_ts(self) -> SavedTs:
        """What the log need not keep for the view: the state has it, and its transactions are durable."""
        return SavedTs(max(self.resolved_ts, 0))

    @property
    def pending_ts(self) -> int:
        """The ts of changes that may not be delivered; 0: none."""
        return self._number("SELECT pending_ts FROM meta")

    @property
    def is_new(self) -> bool:
        """Whether no interval was applied."""
        return self._number("SELECT intervals FROM meta") == 0

    def rows(self) -> int:
        """Return how many rows its tables hold."""
        return sum(self._number(f"SELECT count(*) FROM t{i}") for i in range(len(self._plan.tables)))

    def content(self) -> pa.Table:
        """Return the view, where it is kept here."""
        return self._arrow(f"SELECT {self._names()} FROM content")

    def whole(self) -> pa.Table:
        """Return the view as computed out of its tables at rest, for comparisons: the columns of the query, in any order."""
        query = self._rules.whole()
        self._register(query)
        names = ", ".join(f"c{i} AS {_quoted(one.name)}" for i, one in enumerate(self._plan.root.columns))
        return self._arrow(f"SELECT {names} FROM (SELECT *, unnest(range(w)) AS again FROM ({query}))")

    def pending(self) -> pa.Table:
        """Return the changes that are to be delivered: the columns of the view, and WEIGHT."""
        return self._arrow(f"SELECT {self._names()}, {WEIGHT} FROM pending")

    # ---- an interval

    def advance(self, to_ts: int, changes: Mapping[int, pa.RecordBatchReader], truncated: frozenset[int] = frozenset()) -> int:
        """Bring the state to a ts. `changes`: of tables, by their numbers. `truncated`: tables that are empty at `to_ts`.

        Returns how many changes of the view are pending then, none of them delivered. Changes that were pending are forgotten. All or
        nothing of it is done.
        """
        first = self.is_new
        with self._errors(), self._transaction():
            changed = set()
            for number, reader in changes.items():
                self._arrive(number, reader)
                changed.add(number)
            for number in truncated:
                self._run(self._rules.truncated(number))
                changed.add(number)
            changed = {number for number in changed if self._number(f"SELECT count(*) FROM dt{number}")}
            found = self._apply(changed, first=first, to_ts=to_ts) if changed or first else self._nothing()
            kept = 0 if self._content or not found else to_ts
            self._db.execute("UPDATE meta SET resolved_ts = ?, pending_ts = ?, intervals = intervals + 1", [to_ts, kept])
        return found

    def delivered(self) -> None:
        """Note that the pending changes are delivered."""
        with self._errors():
            self._db.execute("UPDATE meta SET pending_ts = 0")

    def _arrive(self, number: int, reader: pa.RecordBatchReader) -> None:
        """The change of a table as a Z-set."""
        columns = self._plan.tables[number].columns
        listed = ", ".join(f"{_quoted(one.name)} AS c{i}" for i, one in enumerate(columns))
        names = ", ".join(f"c{i}" for i in range(len(columns)))
        weight = f"CASE WHEN {CHANGE} IN ('insert', 'update_postimage') THEN 1 ELSE -1 END AS w"
        self._db.register("arriving", reader)
        self._db.execute(
            f"CREATE OR REPLACE TEMP TABLE dt{number} AS SELECT {names}, CAST(sum(w) AS BIGINT) AS w "
            f"FROM (SELECT {listed}, {weight} FROM arriving) GROUP BY {names} HAVING sum(w) <> 0"
        )
        self._db.unregister("arriving")

    def _apply(self, changed: set[int], *, first: bool, to_ts: int) -> int:
        steps = self._rules.interval(changed, first=first)
        for statement in steps.compute:
            if isinstance(statement, BySpark):
                self._ask(statement)
            else:
                self._run(statement)
        found = self._deliver_out(to_ts)
        for statement in steps.checks:
            self._check(statement, to_ts)
        for statement in steps.apply:
            self._run(statement)
        for number in changed:
            self._tidy(number)
        return found

    def _ask(self, node: BySpark) -> None:
        """Let Spark compute a query over the tables as they are behind the interval."""
        if self._spark is None:
            from tidemill.views.spark.session import ViewSession  # most views need no Spark once they are created

            self._spark = ViewSession(master=f"local[{self._threads}]")
            if node.database:
                self._spark.use(node.database)
        for number, table in enumerate(self._plan.tables):
            place = self._spark.add(table) / "rows.parquet"
            names = ", ".join(f"c{i} AS {_quoted(one.name)}" for i, one in enumerate(table.columns))
            self._db.execute(f"COPY (SELECT {names} FROM ({self._rules.rows(number)})) TO '{place}' (FORMAT parquet)")
        found = self._spark.rows(node.sql, self._plan.tables)
        places = [f"c{i}" for i in range(len(node.columns))]
        self._db.register("arriving", found.rename_columns(places))
        listed = ", ".join(places)
        cast = ", ".join(f"CAST({name} AS {t.engine_type(one.type)}) AS {name}" for name, one in zip(places, node.columns, strict=True))
        self._db.execute(
            f"CREATE OR REPLACE TEMP TABLE n{node.number} AS SELECT {listed}, CAST(count(*) AS BIGINT) AS w "
            f"FROM (SELECT {cast} FROM arriving) GROUP BY {listed}"
        )
        self._db.unregister("arriving")

    def _nothing(self) -> int:
        self._db.execute("DELETE FROM pending")
        return 0

    def _check(self, query: str, to_ts: int) -> None:
        if self._number(query):
            raise ViewError(
                f"{self._where}: at {describe(to_ts)} rows go that never came: the change log lacks changes of the view's tables",
                hint="`tidemill log verify` looks for what is missing. Drop the view and create it again.",
            )

    def _tidy(self, number: int) -> None:
        if self._plan.tables[number].keys:
            return
        self._appended[number] = self._appended.get(number, 0) + self._number(f"SELECT count(*) FROM dt{number}")
        if self._appended[number] > max(_TIDY_ROWS, self._number(f"SELECT count(*) FROM t{number}") // 2):
            for statement in self._rules.tidy(number):
                self._run(statement)
            self._appended[number] = 0

    # ---- what goes out

    def _deliver_out(self, to_ts: int) -> int:
        """Turn the change of the root into the view's changes."""
        names = [f"c{i}" for i in range(len(self._plan.root.columns))]
        listed = ", ".join(names)
        hashed = self._hash()
        self._db.execute("DELETE FROM pending")
        match self.shape.keyed:
            case Keyed.COLUMNS:
                self._db.execute(f"INSERT INTO pending SELECT {listed}, w FROM d_out")
            case Keyed.HASH:
                self._db.execute(f"INSERT INTO pending SELECT {hashed}, {listed}, w FROM d_out")
            case Keyed.COPIES:
                self._copies(hashed, listed, to_ts)
        if self._content:
            same = " AND ".join(f"v.{_quoted(one)} = p.{_quoted(one)}" for one in self.shape.keys)
            self._db.execute(f"DELETE FROM content AS v USING pending AS p WHERE p.{WEIGHT} < 0 AND {same}")
            self._db.execute(f"INSERT INTO content SELECT {self._names()} FROM pending WHERE {WEIGHT} > 0")
        return self._number("SELECT count(*) FROM pending")

    def _copies(self, hashed: str, listed: str, to_ts: int) -> None:
        chosen = ", ".join(f"x.c{i}" for i in range(len(self._plan.root.columns)))
        self._db.execute(f"CREATE OR REPLACE TEMP TABLE x_out AS SELECT {hashed} AS h, {listed}, w FROM d_out")
        self._db.execute(
            f"CREATE OR REPLACE TEMP TABLE n_out AS SELECT x.h, {chosen}, x.w, coalesce(o.n, 0) AS n "
            "FROM x_out AS x LEFT JOIN copies AS o ON x.h = o.h"
        )
        self._check("SELECT count(*) FROM n_out WHERE n + w < 0", to_ts)
        copies = "unnest(range(least(n, n + w), greatest(n, n + w))) AS copy"
        self._db.execute(
            f"INSERT INTO pending SELECT h || '-' || copy, {listed}, CASE WHEN w > 0 THEN 1 ELSE -1 END "
            f"FROM (SELECT h, {listed}, w, {copies} FROM n_out)"
        )
        self._db.execute("DELETE FROM copies USING n_out WHERE copies.h = n_out.h")
        self._db.execute("INSERT INTO copies SELECT h, n + w FROM n_out WHERE n + w > 0")

    def _hash(self) -> str:
        """The hash of the columns that tell rows apart."""
        parts = []
        for i in self.shape.hashed:
            kind = self._plan.root.columns[i].type
            value = f"hex(c{i})" if kind == pa.binary() else f"CAST({f'c{i} + 0.0' if t.is_float(kind) else f'c{i}'} AS VARCHAR)"
            parts.append(f"coalesce(length({value}) || ':' || {value}, 'N')")
        return f"md5({' || '.join(parts) or repr('')})"

    # ---- the file

    def _open(self, digest: str, begin_ts: int) -> None:
        if self._number("SELECT count(*) FROM information_schema.tables WHERE table_name = 'meta'"):
            found = self._db.execute("SELECT format, digest FROM meta").fetchall()
            if found != [(FORMAT, digest)]:
                raise ViewError(
                    f"{self._where} is the state of another query, or of another version of Tidemill",
                    hint="Drop the view and create it again.",
                )
            return
        kinds = [f"{_quoted(one.name)} {t.engine_type(one.type)}" for one in self.shape.schema]
        with self._transaction():
            for statement in self._rules.setup():
                self._db.execute(statement)
            self._db.execute(f"CREATE TABLE pending ({', '.join(kinds)}, {WEIGHT} TINYINT)")
            if self._content:
                self._db.execute(f"CREATE TABLE content ({', '.join(kinds)})")
            if self.shape.keyed is Keyed.COPIES:
                self._db.execute("CREATE TABLE copies (h VARCHAR, n BIGINT)")
            self._db.execute("CREATE TABLE meta (format INTEGER, digest VARCHAR, resolved_ts BIGINT, pending_ts BIGINT, intervals BIGINT)")
            self._db.execute("INSERT INTO meta VALUES (?, ?, ?, 0, 0)", [FORMAT, digest, begin_ts])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn the engine's errors into errors of the view."""
        try:
            yield
        except duckdb.Error as error:
            text = str(error).strip().splitlines()[0]
            raise ViewError(f"{self._where}: {text}", hint=_hint_of(text)) from None

    def _run(self, statement: str) -> None:
        self._register(statement)
        self._db.execute(statement)

    def _register(self, statement: str) -> None:
        for one in functions_in(statement):
            if one.name not in self._functions:
                self._functions.add(one.name)
                nulls = FunctionNullHandling.SPECIAL if one.gives_null else FunctionNullHandling.DEFAULT
                self._db.create_function(one.name, one.run, list(one.arguments), one.result, type=PythonUDFType.ARROW, null_handling=nulls)

    def _number(self, query: str) -> int:
        ((found,),) = self._db.execute(query).fetchall()
        return int(found)

    def _arrow(self, query: str) -> pa.Table:
        relation = self._db.sql(query)
        assert relation is not None, "a query gives rows"
        found = relation.to_arrow_table()
        wanted = {one.name: one.type for one in self.shape.schema}
        return found.cast(pa.schema([pa.field(one.name, wanted.get(one.name, one.type)) for one in found.schema]))

    def _names(self) -> str:
        return ", ".join(_quoted(one) for one in self.shape.schema.names)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _cannot_open(where: str, error: duckdb.Error) -> ViewError:
    text = str(error).splitlines()[0]
    if "lock" in text.lower():
        return ViewError(f"{where} is open in another process: the view runs there", hint="One process at a time keeps a view.")
    return ViewError(f"{where} cannot be opened: {text}", hint="If the file is damaged, drop the view and create it again.")


def _hint_of(text: str) -> str:
    if "division by zero" in text:
        return "The rows stay in the log. Create the view again with a query that says what a division by zero gives."
    if "out of range" in text.lower() or "overflow" in text.lower() or "Could not cast" in text:
        return "A value does not fit its type: under ANSI rules that is an error. Create the view again with a wider CAST."
    return ""


__all__ = ["ROW_KEY", "Engine"]
