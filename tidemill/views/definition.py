"""Views as they are kept: DIR/<name>/view.json says what a view is, DIR/<name>/state.duckdb is its state. This module does IO.

view.json has the target's URI with its secrets, so only its owner may read it.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa

from tidemill import statefile
from tidemill.changelog.storage import durable
from tidemill.errors import redact
from tidemill.rules.names import did_you_mean
from tidemill.tso import SavedTs
from tidemill.views.plan import Column, Plan, Table, walk
from tidemill.views.refusal import ViewError
from tidemill.views.shape import Shape, shape_of
from tidemill.views.sql import plan_of

FILE, STATE, HOW_FAR, LOCK = "view.json", "state.duckdb", "progress.json", "lock"
BEGUN = "view.begun.json"
"""What is being created: it becomes view.json once the log keeps changes for it and its target is taken."""
_NOTE = statefile.Kind(ViewError, "Restore the file from a copy, or drop the view and create it again.")
_BEGUN = statefile.Kind(ViewError, "Remove the folder.", may_be_lost=True)
_PROGRESS = statefile.Kind(ViewError, "Remove it: the state of the view says how far it is.", may_be_lost=True)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_VERSION = 2


@dataclass(frozen=True, slots=True)
class Definition:
    """What a view is. `id`: unlike that of any other view, also of one that had its name before.

    `begin_ts`: where it begins. `snapshot`: with the tables of the initial load at begin_ts + 1. `base_ts`: of each table, a ts at which it
    had the columns that the view reads. `analysis`: what Spark made of the query when the view was created.
    """

    name: str
    id: str
    sql: str
    database: str
    log: str
    into: str
    begin_ts: int
    snapshot: bool
    tables: tuple[Table, ...]
    base_ts: tuple[int, ...]
    analysis: str

    @property
    def feed(self) -> str:
        """The name under which the log keeps changes for it."""
        return f"view-{self.name}-{self.id}"

    @property
    def saved_ts(self) -> SavedTs:
        """Where a view begins that is written down."""
        return SavedTs(self.begin_ts)

    def plan(self) -> Plan:
        """Return its plan. Raises ViewRefused."""
        return plan_of(self.analysis, self.tables, self.sql, self.database)

    def shape(self) -> Shape:
        """Return its columns as readers see them."""
        return shape_of(self.plan())

    def digest(self) -> str:
        """Return what tells the state of one query from that of another, and of one plan from that of another: a later version may plan
        the same query in other steps."""
        steps = [(type(one).__name__, one.number, [str(column.type) for column in one.columns]) for one in walk(self.plan().root)]
        return hashlib.sha256(json.dumps([_VERSION, self.id, self.sql, self.database, steps]).encode()).hexdigest()

    def to_json(self) -> bytes:
        """Return the file's content."""
        tables = [
            {
                "database": table.database,
                "name": table.name,
                "keys": table.keys,
                "base_ts": base,
                "nullable": [one.name for one in table.columns if one.nullable],
                "columns": base64.b64encode(pa.schema([(one.name, one.type) for one in table.columns]).serialize()).decode(),
            }
            for table, base in zip(self.tables, self.base_ts, strict=True)
        ]
        found = {"format": 2, **asdict(self), "tables": tables, "analysis_digest": _digest(self.analysis)}
        del found["base_ts"]
        return json.dumps(found, indent=1).encode()

    @classmethod
    def from_json(cls, data: bytes, where: str) -> Definition:
        """Raises ViewError naming the file."""
        found = statefile.read(data, where, _NOTE)
        tables, bases = [], []
        for one in found.parts("tables"):
            nullable = set(one.texts("nullable"))
            try:
                schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(one.text("columns"))))
            except (ValueError, pa.ArrowException):
                raise found.broken("the columns of a table cannot be read") from None
            columns = tuple(Column(field.name, field.type, field.name in nullable) for field in schema)
            tables.append(Table(one.text("database"), one.text("name"), columns, one.integers("keys")))
            bases.append(one.integer("base_ts"))
        if "analysis" not in found:
            raise ViewError(
                f"{where} is of a view that an earlier version of Tidemill has created", hint="Drop the view and create it again."
            )
        analysis = found.text("analysis")
        if found.text("analysis_digest") != _digest(analysis):
            raise found.broken("the analysis is not as it was written")
        return cls(
            name=found.text("name"),
            id=found.text("id"),
            sql=found.text("sql"),
            database=found.text("database"),
            log=found.text("log"),
            into=found.text("into"),
            begin_ts=found.integer("begin_ts"),
            snapshot=found.flag("snapshot"),
            tables=tuple(tables),
            base_ts=tuple(bases),
            analysis=analysis,
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a view is, for those who look at it while it runs."""

    resolved_ts: int
    changes: int = 0  # of the view, since it was created


class Views:
    """The views of a folder. Raises ViewError."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def names(self) -> list[str]:
        """Return the names of all views."""
        return sorted(one.parent.name for one in self.folder.glob(f"*/{FILE}"))

    def path(self, name: str) -> Path:
        """Return the folder of a view."""
        return self.folder / name

    def state(self, name: str) -> Path:
        """Return the file with a view's state."""
        return self.path(name) / STATE

    def read(self, name: str) -> Definition:
        """Return a view. Raises ViewError if there is none of the name."""
        file = self.path(name) / FILE
        try:
            return Definition.from_json(file.read_bytes(), str(file))
        except FileNotFoundError:
            near = did_you_mean(name, self.names())
            raise ViewError(
                f"there is no view {name} in {self.folder}{near}", hint="`tidemill view list` has all; --dir names the folder."
            ) from None

    @contextmanager
    def creating(self, name: str) -> Iterator[Definition | None]:
        """Take the name of a new view for the caller alone. Yields what a creation of that name has left that did not come to its end.
        Raises ViewError if there is a view of the name, or one is being created."""
        durable.make_folder(self.path(name))
        with self.lock(name):
            if (self.path(name) / FILE).exists():
                raise ViewError(f"there is a view {name} in {self.folder} already", hint=f"`tidemill view drop {name}` removes it.")
            yield self.begun(name)

    def begun(self, name: str) -> Definition | None:
        """Return a view whose creation was begun, and has not come to its end."""
        file = self.path(name) / BEGUN
        if (self.path(name) / FILE).exists():
            return None
        data = durable.read(file)
        return None if statefile.whole(data, str(file), _BEGUN) is None or data is None else Definition.from_json(data, str(file))

    def all_begun(self) -> list[str]:
        """Return the names of such views."""
        return sorted(one.parent.name for one in self.folder.glob(f"*/{BEGUN}"))

    def begin(self, view: Definition) -> None:
        """Write down what is about to be created, durably, so that what is made of it can be found again."""
        durable.write(self.path(view.name) / BEGUN, view.to_json(), mode=0o600)

    def confirm(self, view: Definition) -> None:
        """All of it is made: from now on there is a view of the name."""
        durable.write(self.path(view.name) / FILE, view.to_json(), mode=0o600)
        (self.path(view.name) / BEGUN).unlink(missing_ok=True)

    def lock(self, name: str) -> IO[bytes]:
        """Take a view for the caller alone, until the file is closed. Raises ViewError while another keeps it."""
        file = open(self.path(name) / LOCK, "ab")  # noqa: SIM115 – it is held
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise ViewError(f"the view {name} runs in another process", hint="One process at a time keeps a view: stop it first.") from None
        return file

    def remove(self, name: str) -> None:
        """Remove a view with its state."""
        shutil.rmtree(self.path(name), ignore_errors=True)

    def progress(self, name: str) -> Progress | None:
        """Return how far a view was when it last said so; None if it never ran."""
        file = self.path(name) / HOW_FAR
        found = statefile.whole(durable.read(file), str(file), _PROGRESS)
        return None if found is None else Progress(found.integer("resolved_ts"), found.integer("changes", 0, 1 << 62))

    def write_progress(self, name: str, progress: Progress) -> None:
        """Say how far a view is. Not synced: the state is what counts."""
        durable.write(self.path(name) / HOW_FAR, json.dumps(asdict(progress)).encode(), sync=False)


def _digest(analysis: str) -> str:
    return hashlib.sha256(analysis.encode()).hexdigest()


def check_name(name: str) -> None:
    """Raises ViewError for a name that a view cannot have."""
    if not _NAME.fullmatch(name):
        raise ViewError(f"{name!r} cannot be the name of a view", hint="Letters, digits and _, no digit first, at most 63.")


def new_id() -> str:
    """Return an id for a new view."""
    return secrets.token_hex(4)


def shown(view: Definition) -> dict[str, object]:
    """Return a view for people and programs, without secrets."""
    tables: Sequence[Table] = view.tables
    return {
        "name": view.name,
        "sql": view.sql,
        "log": redact(view.log),
        "into": redact(view.into),
        "begin_ts": view.begin_ts,
        "tables": [str(one) for one in tables],
    }
