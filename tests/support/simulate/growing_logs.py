"""A log that grows while changefeeds read it: the part of a capture that `tidemill resync` is about. Each of its requests is an effect.

Rows and DDLs are in the log before; only its heads move. They never go back: a capture of the past does not own them any more.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from tests.support.changelog.sqllogs import SqlLog
from tests.support.simulate.actors import Actor
from tests.support.simulate.drivers import History
from tidemill.capture.initial_load import Loading, LoadOrder, plan_what_is_asked
from tidemill.changelog import initial_load, log_format
from tidemill.changelog.initial_load import Part
from tidemill.changelog.reader import read_head
from tidemill.changelog.storage.base import Draft
from tidemill.changelog.storage.open import LocalStorage
from tidemill.errors import LogUnavailable, SinkUnavailable
from tidemill.events import RAW_CHANGE, Op
from tidemill.tidb.schema.tracking.history import SchemaHistory
from tidemill.tidb.schema.tracking.versions import SchemaSnapshot

T = TypeVar("T")
SPARE = 12
"""Timestamps behind each step at which a table may be read."""
ROWS = log_format.rows_folder(0)


class GatedLog(LocalStorage):
    """A log on a file system."""

    def __init__(self, root: str, actor: Actor) -> None:
        super().__init__(root, sync=False)
        self._actor = actor

    def _gated(self, request: str, act: Callable[[], T]) -> T:
        try:
            return self._actor.gate(request, act)
        except SinkUnavailable as error:
            raise LogUnavailable(str(error)) from error

    def read(self, name: str) -> bytes | None:
        return self._gated(f"read {name}", partial(super().read, name))

    def below(self, folder: str) -> list[str]:
        return self._gated(f"list {folder}", partial(super().below, folder))

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        self._gated(f"put {name}", partial(super().replace, name, data, durable=durable))

    def delete(self, name: str) -> None:
        self._gated(f"delete {name}", partial(super().delete, name))

    def delete_folder(self, folder: str) -> None:
        self._gated(f"delete {folder}", partial(super().delete_folder, folder))

    def draft(self, folder: str) -> Draft:
        made = super().draft(folder)
        publish = made.publish
        made.publish = lambda name: self._gated(f"create {folder}/{name}", lambda: publish(name))  # type: ignore[method-assign]
        return made


@dataclass
class GrowingLog:
    """One of a run. `spare`: timestamps at which nothing is committed, a few behind each step."""

    history: History
    spare: list[int]
    taken: int = 0
    storage: LocalStorage = field(init=False)

    def __post_init__(self) -> None:
        self.storage = LocalStorage(self.history.log, sync=False)

    @classmethod
    def of(cls, folder: Path, before: Iterable[str], steps: Iterable[Iterable[str]]) -> GrowingLog:
        """As `History.of`."""
        sql, spare, cuts = SqlLog(*before), list[int](), list[int]()
        for statements in steps:
            cuts.append(sql.run(*statements))
            spare += [sql.playground.cluster.oracle.next() for _ in range(SPARE)]
        return cls(History(sql.write(folder), sql.start_ts, cuts, sql), spare)

    def copy(self, folder: Path) -> GrowingLog:
        """One whose heads are at its start."""
        shutil.copytree(self.history.log, folder)
        made = GrowingLog(replace(self.history, log=str(folder)), self.spare)
        made._raise(self.history.start_ts)
        return made

    @property
    def head(self) -> int:
        return read_head(self.storage, ROWS) or 0

    async def tso(self) -> int:
        """As PD's: a ts that is behind everything that is committed, and everything that the log is complete up to."""
        head = self.head
        self.taken = next(n for n, ts in enumerate(self.spare) if n >= self.taken and ts > head) + 1
        return self.spare[self.taken - 1]

    def answer(self, actor: Actor) -> None:
        """Plan what is asked for, and read the tables of all plans."""
        storage = GatedLog(self.history.log, actor)
        asyncio.run(plan_what_is_asked(storage, self, 1, self._tables, lambda _: True, lambda _: None, lambda _: None))  # type: ignore[arg-type]
        for plan, _ in Loading(storage, LoadOrder((), "", Path()))._lacking():
            for part in initial_load.missing(storage, plan):
                initial_load.write_part(storage, part, [self._rows(part)])

    def grow(self, actor: Actor, ts: int) -> None:
        """The log is complete up to a ts."""
        if self.head < ts:
            actor.gate(f"raise the head to {ts}", lambda: self._raise(max(ts, self.head)))

    def _raise(self, ts: int) -> None:
        self.storage.replace(f"{ROWS}/{log_format.HEAD}", log_format.format_head(ts, 0))

    def _tables(self) -> SchemaSnapshot:
        ts = self.history.start_ts
        return SchemaHistory.bootstrap(ts, self.history.sql.meta_at(ts)).snapshot(ts)

    def _rows(self, part: Part) -> pa.RecordBatch:
        found = self.history.sql.mvcc.scan(part.start, part.end, part.ts)
        rows: list[dict[str, Any]] = [
            {
                "table_id": part.table_id,
                "op": Op.PUT,
                "start_ts": part.ts,
                "commit_ts": part.ts,
                "key": key,
                "value": value,
                "old_value": None,
            }
            for key, value in found
            if isinstance(value, bytes)
        ]
        return pa.RecordBatch.from_pylist(rows, schema=RAW_CHANGE)
