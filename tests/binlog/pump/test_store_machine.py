"""A Pump's store that takes transactions and is killed at any file operation, again and again, beside a TiDB and a Drainer.

The TiDB writes a Prewrite before it has a commit ts, and a Commit again that was not answered. The Drainer pulls from where it is. What was
answered comes once, in order, and nothing comes at or below where the Drainer is.

When a kill comes depends on threads. So what hypothesis draws does not depend on it: a rule that does not apply does nothing.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Awaitable, Collection, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.support.binlog.binlogs import commit, prewrite, pulled, rollback, until
from tests.support.binlog.watched import Watched
from tidemill.binlog.pump import log as log_module
from tidemill.binlog.pump.index import Index
from tidemill.binlog.pump.store import Store

FILE_BYTES = 150
"""A value log of many files."""


PICKS = st.lists(st.integers(0, 1000), min_size=1, max_size=5)


def picked(picks: list[int], of: Collection[int]) -> list[int]:
    """Some of what there is, by numbers of any size."""
    there = sorted(of)
    return sorted({there[pick % len(there)] for pick in picks}) if there else []


class StoreMachine(RuleBasedStateMachine):
    """A store in folder after folder: a kill leaves a copy of the folder, and the next store opens that one."""

    def __init__(self) -> None:
        super().__init__()
        self._root = Path(tempfile.mkdtemp(prefix="tidemill-pump-"))
        self._runner = asyncio.Runner()
        self._patched = pytest.MonkeyPatch()
        self._lives = 0
        self._ts = 0
        self._open: dict[int, int] = {}  # start_ts of Prewrites that were answered -> commit ts, once there is one, else 0
        self._asked: set[int] = set()  # commit ts that were written
        self._answered: set[int] = set()
        self._got: list[int] = []
        self._at = 0  # where the Drainer is
        self._left = 0  # file operations until the kill; 0: none comes
        self._killed: Path | None = None
        self._turn = threading.Lock()  # the value log and the index have a thread each

    # ---- a life of the store

    @initialize()
    def begin(self) -> None:
        """The first start."""
        put, progress = Index.put, Index.progress
        self._patched.setattr(log_module, "os", Watched(self._operation))
        self._patched.setattr(Index, "put", lambda index, entries: (self._operation("put", ()), put(index, entries))[1])
        self._patched.setattr(Index, "progress", lambda index, ts, at: (self._operation("progress", ()), progress(index, ts, at))[1])
        self._start(self._root / "0")

    def _start(self, folder: Path) -> None:
        async def start() -> None:
            self._store = Store(folder, sync=False, file_bytes=FILE_BYTES)
            self._store.start()
            await until(lambda: not self._store.behind)
            for start_ts in set(self._store.order.open) - set(self._open):
                self._store.forget(start_ts)  # what TiKV tells of a Prewrite that was not answered: it was never committed

        self._folder = folder
        self._run(start())

    def _operation(self, name: str, args: tuple[Any, ...]) -> None:
        """Called ahead of each file operation, on the threads of the store."""
        with self._turn:
            if not self._left:
                return
            self._left -= 1
            if self._left:
                return
            copy = self._root / f"killed {self._lives}"
            shutil.copytree(self._folder, copy, ignore=shutil.ignore_patterns("LOCK"))
            if name == "write":
                with max((copy / "value").glob("*.vlog")).open("ab") as file:
                    file.write(bytes(args[1][: len(args[1]) // 2]))
            self._killed = copy

    def _run(self, work: Awaitable[Any]) -> Any:
        async def awaited() -> Any:
            return await work

        return self._runner.run(awaited())

    def _write(self, payloads: Iterable[bytes]) -> list[bool]:
        """Write binlogs side by side. Returns which were answered before a kill."""

        async def one(payload: bytes) -> bool:
            await self._store.write(payload)
            return self._killed is None

        async def all_of_them() -> list[bool]:
            return await asyncio.gather(*(one(payload) for payload in payloads))

        answered: list[bool] = self._run(all_of_them())
        return answered

    def _next(self) -> int:
        self._ts += 1
        return self._ts

    # ---- the TiDB

    @rule(count=st.integers(1, 5))
    def prewrites(self, count: int) -> None:
        """Transactions begin."""
        stamps = [self._next() for _ in range(count)]
        for start_ts, answered in zip(stamps, self._write(prewrite(ts) for ts in stamps), strict=True):
            if answered:
                self._open[start_ts] = 0

    @rule(picks=PICKS)
    def commits(self, picks: list[int]) -> None:
        """Transactions are committed, also those whose Commit was not answered."""
        stamps = {start_ts: self._open[start_ts] or self._next() for start_ts in picked(picks, self._open)}
        self._open |= stamps
        self._asked |= set(stamps.values())
        for start_ts, answered in zip(stamps, self._write(commit(*one) for one in stamps.items()), strict=True):
            if answered:
                self._answered.add(self._open.pop(start_ts))

    @rule(picks=PICKS)
    def rolls_back(self, picks: list[int]) -> None:
        """Transactions are rolled back. A Rollback is not written again: TiKV tells of the transaction."""
        starts = picked(picks, [start_ts for start_ts, commit_ts in self._open.items() if not commit_ts])
        for start_ts in starts:
            del self._open[start_ts]
        self._write(rollback(start_ts) for start_ts in starts)

    # ---- what happens to the Pump

    @rule(after=st.integers(1, 12))
    def is_to_be_killed(self, after: int) -> None:
        """At the so many-th file operation from now on."""
        if self._killed is None and not self._left:
            self._left = after

    @rule()
    def starts_after_the_kill(self) -> None:
        """The next start finds what the kill left."""
        if self._killed is None:
            return
        folder, self._killed, self._lives = self._killed, None, self._lives + 1
        self._run(self._store.close())
        self._start(folder)

    @rule(without_index=st.booleans())
    def is_started_again(self, without_index: bool) -> None:
        """It is stopped by a person, who may remove the index."""
        self.starts_after_the_kill()
        self._left = 0
        self._run(self._store.close())
        if without_index:
            shutil.rmtree(self._folder / "kv")
        self._start(self._folder)

    # ---- the Drainer

    @rule()
    def is_pulled_from(self) -> None:
        """The Drainer gets what is there behind its position, and goes as far as the Pump says."""
        if self._killed is not None:
            return
        self._run(until(lambda: not self._store.behind and not self._store.waiting))
        if self._killed is not None:
            return
        found = list(pulled(self._store, self._folder, self._at))
        assert set(found) <= self._asked
        assert not set(found) & set(self._got)
        self._got += found
        self._at = max(self._at, self._store.order.max_commit_ts)

    def teardown(self) -> None:
        """Everything is committed at last, and pulled."""
        try:
            self._finish()
        finally:
            self._patched.undo()
            self._runner.close()
            shutil.rmtree(self._root)

    def _finish(self) -> None:
        self.starts_after_the_kill()
        self._left = 0
        for start_ts in self._open:
            self._open[start_ts] = self._open[start_ts] or self._next()
        stamps = dict(self._open)
        self._asked |= set(stamps.values())
        self._answered |= set(stamps.values())
        self._write(commit(start_ts, commit_ts) for start_ts, commit_ts in stamps.items())
        self.is_pulled_from()
        self._run(self._store.close())
        assert self._got == sorted(self._got)
        assert self._answered <= set(self._got) <= self._asked


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=15, stateful_step_count=25, suppress_health_check=list(HealthCheck), deadline=None)
