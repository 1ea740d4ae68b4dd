"""The seals under way, one per partition, with the rows taken for them.

A seal that finds no disk space, or storage that does not answer, keeps its rows and is tried again after a pause, without limit. Pauses for
storage grow. The partition does not advance meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tidemill.capture.tikv.receive.memory import Array
from tidemill.capture.tikv.receive.workers import Workers
from tidemill.capture.tikv.sort.partition import NOT_NOW, PartitionLog, Sealed
from tidemill.changelog.storage.retry import StorageRetry, pause_after
from tidemill.errors import DiskLow, LogUnavailable

AGAIN = 1.0
"""Seconds after which a seal without disk space is tried again."""


@dataclass(slots=True, eq=False)
class _Seal:
    rows: Array
    to_ts: int
    future: Future[tuple[Sealed, float]]
    refusal: str = ""
    failures: int = 0  # storage failures in a row
    again_at: float = 0.0


class Sealing:
    """Belongs to the ingest thread; seals run on the workers' threads. `note_import` as in `Receiver`."""

    def __init__(
        self,
        logs: Sequence[PartitionLog],
        workers: Workers,
        note_import: Callable[[int, int], None],
        retry: StorageRetry | None = None,
        on_done: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_done` is called, on a sealing thread, when nothing is being written any more."""
        self._on_done = on_done
        self._retry = retry
        self._logs, self._workers, self._note_import = logs, workers, note_import
        self._under_way: dict[int, _Seal] = {}
        self._notes: deque[tuple[int, int]] = deque()
        self._noted: deque[Future[None]] = deque()
        self._noting = threading.Lock()
        self.cpu = 0.0  # seconds

    def __contains__(self, partition: object) -> bool:
        return partition in self._under_way

    @property
    def refusal(self) -> str:
        """Why a seal waits for another try; empty: none waits. Any thread may ask: it reads a copy."""
        return next((text for one in tuple(self._under_way.values()) if (text := one.refusal)), "")

    def futures(self) -> list[Future[Any]]:
        """Return the futures of the running seals."""
        return [*self._noted, *(one.future for one in tuple(self._under_way.values()))]

    def note(self, ts: int, table_id: int) -> None:
        """Note an import. It is recorded before any seal that begins from now on."""
        self._notes.append((ts, table_id))
        self._noted.append(self._workers.seal.submit(self._write_notes))
        self._noted[-1].add_done_callback(self._ended)

    def begin(self, partition: int, rows: Array, to_ts: int) -> None:
        """Begin to seal a partition that has no seal under way."""
        one = self._under_way[partition] = _Seal(rows, to_ts, self._submit(partition, rows, to_ts))
        one.future.add_done_callback(self._ended)

    def finished(self) -> list[tuple[int, Array, Sealed]]:
        """Return the seals that are done, with their rows. Retry waiting seals that are due. Raises what a seal raised."""
        while self._noted and self._noted[0].done():
            with suppress(*NOT_NOW):  # else the next seal records it first
                self._noted.popleft().result()
        found = []
        for p, one in list(self._under_way.items()):
            if not one.future.done():
                continue
            if one.refusal:
                if self._workers.now() >= one.again_at:
                    one.refusal, one.future = "", self._submit(p, one.rows, one.to_ts)
                    one.future.add_done_callback(self._ended)
                continue
            try:
                done, cpu = one.future.result()
            except NOT_NOW as e:
                one.refusal, one.again_at = e.message, self._workers.now() + self._pause(one, e)
                continue
            self._storage_answered(one)
            self.cpu += cpu
            del self._under_way[p]
            found.append((p, one.rows, done))
        return found

    def _ended(self, future: Future[Any]) -> None:
        if all(one.done() for one in self.futures()):
            self._on_done()

    def _pause(self, one: _Seal, error: DiskLow | LogUnavailable) -> float:
        """Return the seconds until the next attempt."""
        if isinstance(error, DiskLow):
            self._storage_answered(one)
            return AGAIN
        one.failures += 1
        if self._retry is not None:
            self._retry.begun(error, first=one.failures == 1)
        return pause_after(one.failures)

    def _storage_answered(self, one: _Seal) -> None:
        """Note that the storage answered."""
        if one.failures and self._retry is not None:
            self._retry.over(back=True)
        one.failures = 0

    def _submit(self, partition: int, rows: Array, to_ts: int) -> Future[tuple[Sealed, float]]:
        return self._workers.seal.submit(self._seal, partition, rows, to_ts)

    def _seal(self, partition: int, rows: Array, to_ts: int) -> tuple[Sealed, float]:
        begun, begin = time.perf_counter(), time.thread_time()
        self._write_notes()
        done = self._logs[partition].seal(rows, to_ts)
        done.seconds = time.perf_counter() - begun
        return done, time.thread_time() - begin

    def _write_notes(self) -> None:
        with self._noting:
            while self._notes:
                self._note_import(*self._notes[0])
                self._notes.popleft()
