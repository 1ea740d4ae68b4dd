"""Writers that take each other's folder, publish, join and remove, each stopped at every request to the storage: the log is complete at
every moment, each row is there once, and no head is above the rows that are there, or goes back."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.changelog.actors import Actor, Killed, at_gate
from tests.support.changelog.logs import START, Change, batch_of, changes_of, put
from tests.support.changelog.memory_storage import Bucket, MemoryStorage
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.options import LogOptions
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage import flock
from tidemill.changelog.storage.base import Draft, Storage
from tidemill.changelog.storage.open import LocalStorage
from tidemill.changelog.verify import verify
from tidemill.changelog.writer import LogWriter, Share
from tidemill.errors import LogFenced, LogLocked, SegmentGone
from tidemill.tso import compose

OPTIONS = LogOptions(compact_rows=12, grace_s=0, low_water_bytes=0, retention_ms=0)
GROUP = Share(schema=False, partitions=frozenset({0}))
COORDINATOR = Share(schema=True, partitions=frozenset())
SHARES = {"group": GROUP, "coordinator": COORDINATOR, "whole": None}


WHERE = st.sampled_from(["create", "rename", "head.json", "owner.json", "delete", "list", "", "the end", "the end"])
"""Where an actor is stopped: before the next step whose name contains this; "": before the next step."""


def upstream(from_ts: int, to_ts: int) -> list[Change]:
    """What was committed in (from_ts, to_ts]."""
    return [put(70, h, ts, b"%d" % ts) for ts in range(from_ts + 1, to_ts + 1) if ts % 5 for h in range(ts % 3)]


@dataclass
class Process:
    """A writer and what it does just now."""

    share: Share | None
    actor: Actor
    writer: LogWriter | None = None


class WriterMachine(RuleBasedStateMachine):
    """`open_place` gives the log's storage as another process sees it."""

    open_place: ClassVar[Callable[[Any], Storage]]

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[Process] = []
        self.head = self.schema_head = self.start = START

    def place(self) -> Storage:
        return type(self).open_place(self)

    @initialize()
    def begin(self) -> None:
        LogWriter.create(self.place(), LogIdentity("1", START, 1), snapshot={}, options=OPTIONS).close()
        self.reader = LogReader(self.place())

    # ---- what happens

    @precondition(lambda self: len(self.processes) < 5)
    @rule(kind=st.sampled_from(["group", "group", "coordinator", "whole"]), where=st.sampled_from(["owner.json", "list", "the end"]))
    def open(self, kind: str, where: str) -> None:
        self._open(kind, where)

    @precondition(lambda self: len(self.processes) < 5)
    @rule(kind=st.sampled_from(["group", "whole"]), ends=st.lists(st.integers(1, 12), max_size=3), then=WHERE)
    def take_over(self, kind: str, ends: list[int], then: str) -> None:
        process = self._open(kind, "the end")
        if process in self.processes:
            self._publish(process, [*ends, 5], then)

    def _open(self, kind: str, where: str) -> Process:
        share, place = SHARES[kind], self.place()
        process = Process(share, Actor(lambda: LogWriter.open(place, share=share, options=OPTIONS)))
        self.processes.append(process)
        self._walk(process, where)
        return process

    @precondition(lambda self: self._has_idle)
    @rule(data=st.data(), ends=st.lists(st.integers(1, 12), min_size=1, max_size=4), where=WHERE)
    def publish(self, data: st.DataObject, ends: list[int], where: str) -> None:
        self._publish(self._idle(data), ends, where)

    def _publish(self, process: Process, ends: list[int], where: str) -> None:
        for k, length in enumerate(ends):
            if process in self.processes:
                self._start(
                    process, where if k == len(ends) - 1 else "the end", partial(_publish, length=length, one_by_one=length % 2 == 0)
                )

    @precondition(lambda self: self._has_idle)
    @rule(data=st.data(), where=WHERE)
    def maintain(self, data: st.DataObject, where: str) -> None:
        now = self.head + compose(1)
        self._start(self._idle(data), where, lambda writer: writer.maintain(now))

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), where=WHERE)
    def go_on(self, data: st.DataObject, where: str) -> None:
        self._walk(data.draw(st.sampled_from(self.processes)), where)

    @precondition(lambda self: len(self.processes) > 2)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        self._end(data.draw(st.sampled_from(self.processes)))

    @property
    def _has_idle(self) -> bool:
        return any(p.actor.is_over for p in self.processes)

    def _idle(self, data: st.DataObject) -> Process:
        return data.draw(st.sampled_from([p for p in self.processes if p.actor.is_over]))

    def _start(self, process: Process, where: str, work: Callable[[LogWriter], object]) -> None:
        writer = process.writer
        assert writer is not None
        process.actor = Actor(lambda: work(writer))
        self._walk(process, where)

    def _walk(self, process: Process, where: str) -> None:
        """Steps of a process. After each that changes something the log is whole."""
        while not process.actor.is_over:
            before = process.actor.stands_at
            process.actor.step()
            if not before.startswith(("get", "read", "list", "the beginning")) and not before.endswith("owner.json"):
                self.the_log_is_whole()
            if where in process.actor.stands_at:
                break
        if not process.actor.is_over:
            return
        error = process.actor.error
        if isinstance(error, LogFenced | LogLocked | SegmentGone):  # the last: a join whose parts a successor has let go
            self._end(process)
        elif error is not None:
            raise error
        elif process.writer is None:
            process.writer = process.actor.result

    def _end(self, process: Process) -> None:
        self.processes.remove(process)
        process.actor.kill()
        if process.actor.error is not None and not isinstance(process.actor.error, Killed | LogFenced | LogLocked | SegmentGone):
            raise process.actor.error
        if process.writer is not None:
            process.writer.close()

    # ---- what holds

    @invariant()
    def the_log_is_whole(self) -> None:
        if not hasattr(self, "reader"):
            return
        fresh = LogReader(self.place())
        self._what_is_read(fresh)
        chain = fresh.listing("rows/0")
        assert chain.fault is None
        assert chain.incomplete == ()

    @invariant()
    def a_reader_that_stays_sees_it_too(self) -> None:
        if hasattr(self, "reader"):
            self.reader.refresh()  # replaced files do not stay for readers here
            self._what_is_read(self.reader)

    def _what_is_read(self, reader: LogReader) -> None:
        start, head, schema_head = reader.start_ts, reader.head(0), reader.schema_head()
        assert head >= self.head, "the head went back"
        assert schema_head >= self.schema_head, "the schema's head went back"
        assert start >= self.start, "the log's start went back"
        self.head, self.schema_head, self.start = head, schema_head, start
        assert _rows(reader, start, head) == upstream(start, head)

    def teardown(self) -> None:
        while self.processes:
            self._end(self.processes[0])
        if hasattr(self, "reader"):
            faults = [str(p) for p in verify(self.place()).problems if "schema history does not know" not in p.text]
            assert faults == []
            with LogWriter.open(self.place(), options=OPTIONS) as last:
                _publish(last, 5, False)
                last.maintain(self.head + compose(1))
            self.the_log_is_whole()


def _publish(writer: LogWriter, length: int, one_by_one: bool) -> None:
    """What a capture does with the next `length` timestamps."""
    if writer.partitions:
        one = writer.partition(0)
        end = one.pledged_to or one.head + length
        rows = upstream(one.head, end)
        if rows:
            one.publish(end, [batch_of([r]) for r in rows] if one_by_one else [batch_of(rows)])
        else:
            one.set_head(end)
    if len(writer.partitions) == 0 or writer.resolved_ts < one.head:
        writer.schema.set_head(writer.schema.head + length)


def _rows(reader: LogReader, from_ts: int, to_ts: int) -> list[Change]:
    chain = reader.chain(0, from_ts, to_ts)
    rows = [c for i in chain for path in i.parts for c in changes_of(reader.open_segment(path).read_all())]
    return [c for c in rows if from_ts < c.commit_ts <= to_ts]


class OnAnObjectStore(WriterMachine):
    def open_place(self) -> Storage:
        return MemoryStorage(self.bucket, at_gate)

    def __init__(self) -> None:
        super().__init__()
        self.bucket = Bucket()


class GatedStorage(LocalStorage):
    """A local folder whose file operations are steps."""

    def read(self, name: str) -> bytes | None:
        at_gate("read", name)
        return super().read(name)

    def names(self, folder: str) -> list[str]:
        at_gate("list", folder)
        return super().names(folder)

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        at_gate("replace", name)
        super().replace(name, data, durable=durable)

    def delete(self, name: str) -> None:
        at_gate("delete", name)
        super().delete(name)

    def draft(self, folder: str) -> Draft:
        draft = super().draft(folder)
        publish = draft.publish

        def gated(name: str) -> None:
            at_gate("rename", f"{folder}/{name}")
            publish(name)

        draft.publish = gated  # type: ignore[method-assign]
        return draft


class OnADisk(WriterMachine):
    def open_place(self) -> Storage:
        return GatedStorage(Path(self.folder.name) / "log", sync=False)

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


class Impatient:
    """Instead of waiting for a lock that a stopped actor has."""

    def __init__(self, handle: int) -> None:
        self.over = threading.Event()
        self.handle = handle

    def give_up(self) -> bool:
        os.close(self.handle)
        return True


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flock, "PATIENCE", 0.0)
    monkeypatch.setattr(flock, "_Waiting", Impatient)


class MoreOnAnObjectStore(OnAnObjectStore):
    """The same."""


class MoreOnADisk(OnADisk):
    """The same."""


FEW = settings(max_examples=8, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(FEW, max_examples=int(os.environ.get("TIDEMILL_EXAMPLES", "25")))
MORE_EXAMPLES = pytest.mark.thorough("the same with more examples")
TestOnAnObjectStore = pytest.mark.slow(OnAnObjectStore.TestCase)
TestOnAnObjectStore.settings = FEW
TestOnADisk = OnADisk.TestCase
TestOnADisk.settings = FEW
TestMoreOnAnObjectStore = MORE_EXAMPLES(MoreOnAnObjectStore.TestCase)
TestMoreOnAnObjectStore.settings = MANY
TestMoreOnADisk = MORE_EXAMPLES(MoreOnADisk.TestCase)
TestMoreOnADisk.settings = MANY
