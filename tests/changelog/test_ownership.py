"""Several writers of one log: each publishes in its own folders, and one that was replaced publishes in none."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from tests.changelog.conftest import META
from tests.support.changelog.log_writer_process import upstream
from tests.support.changelog.logs import START, Change, batch_of, changes_of, order, put, read_changes
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage import flock
from tidemill.changelog.storage.open import LocalStorage, Storage
from tidemill.changelog.verify import verify
from tidemill.changelog.writer import LogWriter, Share
from tidemill.errors import LogError, LogFenced, LogLocked

ROOT = Path(__file__).parent.parent.parent
COORDINATOR = Share(schema=True, partitions=frozenset())


def group(*partitions: int) -> Share:
    return Share(schema=False, partitions=frozenset(partitions))


def faults(storage: Storage) -> list[str]:
    """What `verify` finds, but for made-up tables that no schema knows."""
    return [str(p) for p in verify(storage).problems if "schema history does not know" not in p.text]


@pytest.fixture
def place(tmp_path: Path) -> Storage:
    """A log of four partitions."""
    storage = LocalStorage(tmp_path / "log", sync=False)
    LogWriter.create(storage, LogIdentity("7051", START, 4), snapshot=META).close()
    return storage


def test_writers_share_a_log(place: Storage) -> None:
    coordinator = LogWriter.open(place, share=COORDINATOR)
    one, two = LogWriter.open(place, share=group(0, 2)), LogWriter.open(place, share=group(1, 3))
    assert (coordinator.partitions, one.partitions, two.partitions) == ([], [0, 2], [1, 3])
    for p, writer in ((0, one), (1, two), (2, one), (3, two)):
        writer.partition(p).publish(START + 10 + p, [batch_of([put(70 + p, 1, START + 1)])])
    coordinator.schema.set_head(START + 12)
    assert (coordinator.resolved_ts, one.resolved_ts, two.resolved_ts) == (START + 12, START + 10, START + 11)
    assert LogReader(place).resolved_ts() == START + 10
    assert [read_changes(place.location, p) for p in range(4)] == [[put(70 + p, 1, START + 1)] for p in range(4)]


def test_folders_of_others_are_not_handed_out(place: Storage) -> None:
    coordinator, one = LogWriter.open(place, share=COORDINATOR), LogWriter.open(place, share=group(0))
    for attempt in (
        lambda: coordinator.partition(0),
        lambda: one.partition(1),
        lambda: one.schema,
        lambda: one.declare(split_tables=[1]),
    ):
        with pytest.raises(LogError, match="is not this writer's"):
            attempt()


def test_a_share_of_nothing_or_of_what_is_not_there_is_refused(place: Storage) -> None:
    with pytest.raises(LogError, match="neither"):
        LogWriter.open(place, share=group())
    with pytest.raises(LogError, match="partitions 0 to 3, not 4"):
        LogWriter.open(place, share=group(3, 4))


def test_only_the_coordinator_locks_the_log(place: Storage) -> None:
    coordinator = LogWriter.open(place, share=COORDINATOR)
    for share in (None, COORDINATOR):
        with pytest.raises(LogLocked):
            LogWriter.open(place, share=share)
    LogWriter.open(place, share=group(0))
    coordinator.close()
    LogWriter.open(place).close()


def test_a_group_that_was_taken_over_publishes_nothing(place: Storage) -> None:
    old, other = LogWriter.open(place, share=group(0)), LogWriter.open(place, share=group(1))
    old.partition(0).publish(START + 10, [])
    new = LogWriter.open(place, share=group(0))
    for attempt in (
        lambda: old.partition(0).publish(START + 20, [batch_of([put(7, 1, START + 11)])]),
        lambda: old.partition(0).set_head(START + 20),
    ):
        with pytest.raises(LogFenced, match="epoch 3"):
            attempt()
    other.partition(1).publish(START + 20, [])
    assert new.partition(0).last_to == START + 10
    new.partition(0).publish(START + 30, [batch_of([put(7, 1, START + 11)])])
    assert read_changes(place.location, 0) == [put(7, 1, START + 11)]
    assert faults(place) == []


def test_of_writers_that_open_at_once_one_is_the_last(place: Storage) -> None:
    with ThreadPoolExecutor(8) as pool:
        writers = list(pool.map(lambda _: LogWriter.open(place, share=group(0)), range(8)))
    epochs = [w.ownership.epoch("rows/0") for w in writers]
    assert sorted(epochs) == list(range(2, 10))
    for writer, epoch in zip(writers, epochs, strict=True):
        if epoch < 9:
            with pytest.raises(LogFenced, match="epoch 9"):
                writer.partition(0).publish(START + 10, [])
        else:
            writer.partition(0).publish(START + 10, [])


# ---- processes that end or stand still


def writer_process(place: Storage, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.changelog.killed_writer", place.location, *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def until_it_stands(process: subprocess.Popen[str]) -> None:
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)


def after_it_goes_on(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGCONT)
    return process.communicate()[0].strip()


def rows(place: Storage, end: int) -> list[Change]:
    return upstream(0, START, START + end)


def test_a_writer_that_stood_still_before_it_published_is_fenced(place: Storage) -> None:
    with writer_process(place, "stop", "before") as old:
        until_it_stands(old)
        new = LogWriter.open(place, share=group(0))
        new.partition(0).publish(START + 20, [batch_of(rows(place, 20))])
        newest = LogWriter.open(place, share=group(0))
        assert after_it_goes_on(old) == LogFenced.code
    newest.partition(0).publish(START + 40, [batch_of(upstream(0, START + 20, START + 40))])
    with pytest.raises(LogFenced):
        new.partition(0).set_head(START + 50)
    assert read_changes(place.location, 0) == rows(place, 40)
    assert faults(place) == []
    assert not list(Path(place.location).rglob("*.tmp"))


def test_a_writer_that_stands_still_while_it_publishes_is_named_and_its_segment_counts(
    place: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flock, "PATIENCE", 0.2)
    with writer_process(place, "stop", "inside") as old:
        until_it_stands(old)
        with pytest.raises(LogLocked, match=rf"process {old.pid} on host {socket.gethostname()} is in the middle of a step") as e:
            LogWriter.open(place, share=group(0))
        assert "kill -9" in e.value.hint
        assert e.value.retryable
        LogWriter.open(place, share=group(1))
        monkeypatch.undo()
        taking = ThreadPoolExecutor(1).submit(LogWriter.open, place, share=group(0))
        assert after_it_goes_on(old) == "published"
        new = taking.result()
    assert new.partition(0).last_to == START + 30
    assert read_changes(place.location, 0) == rows(place, 30)


def test_a_writer_that_stands_still_while_it_publishes_may_be_killed(place: Storage) -> None:
    with writer_process(place, "stop", "inside") as old:
        until_it_stands(old)
        taking = ThreadPoolExecutor(1).submit(LogWriter.open, place, share=group(0))
        old.kill()
        new = taking.result()
    assert new.partition(0).last_to == START
    new.partition(0).publish(START + 20, [batch_of(rows(place, 20))])
    assert read_changes(place.location, 0) == rows(place, 20)
    assert not list(Path(place.location).rglob("*.tmp"))


def test_a_writer_that_is_killed_at_any_file_operation_loses_nothing(place: Storage) -> None:
    with writer_process(place, "every") as process:
        killed = int(process.communicate()[0])
    assert killed > 30
    reader = LogReader(place)
    head = reader.head(0)
    found = [c for i in reader.chain(0, START, head) for p in i.parts for c in changes_of(reader.open_segment(p).read_all())]
    assert sorted(found, key=order) == upstream(0, START, head)
    assert head > START + 35 * 10
    assert faults(place) == []
    assert not list(Path(place.location).rglob("*.tmp"))


# ---- neighbours


def test_opening_leaves_what_a_neighbour_is_writing(place: Storage) -> None:
    one = LogWriter.open(place, share=group(0))

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch_of([put(7, 1, START + 1)])
        LogWriter.open(place, share=COORDINATOR).close()
        LogWriter.open(place, share=group(1))
        yield batch_of([put(7, 1, START + 2)])

    one.partition(0).publish(START + 10, rows())
    assert [c.commit_ts for c in read_changes(place.location, 0)] == [START + 1, START + 2]
