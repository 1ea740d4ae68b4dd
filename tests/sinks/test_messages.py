"""messages://: joining parts of a batch, repeated and failed attempts, torn lines."""

from __future__ import annotations

import base64
import errno
import io
import json
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from tests.support.delivery.messages import context, messages_of
from tidemill.config.uri import parse_sink_uri
from tidemill.errors import Fenced, SinkError, SinkUnavailable
from tidemill.sinks.base import BatchContext, DriverSink, TaskSink
from tidemill.sinks.messages import MessagesTaskSink, whole_lines, write_all
from tidemill.sinks.spec import open_driver_sink

TARGETS = [("t", 0), ("t", 1)]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"messages://{tmp_path}/out/m.jsonl?protocol=open-protocol&topic=t&partition-num=2"


def task(uri: str) -> TaskSink:
    return MessagesTaskSink(parse_sink_uri(uri))


def lines(uri: str) -> list[tuple[str, int, bytes, bytes | None]]:
    def plain(line: dict[str, Any]) -> tuple[str, int, bytes, bytes | None]:
        value = None if line["value"] is None else base64.b64decode(line["value"])
        return line["topic"], line["partition"], base64.b64decode(line["key"]), value

    text = Path(parse_sink_uri(uri).path).read_text()
    return [plain(json.loads(line)) for line in text.splitlines()]


def run_batch(uri: str, driver: DriverSink, number: int, rows: list[list[tuple[int, bytes, bytes]]], *, epoch: int = 1) -> None:
    """One batch whose items deliver these rows, one chunk a row."""
    ctx = context(batch=number, epoch=epoch)
    driver.begin_batch(ctx)
    for item, items in enumerate(rows):
        sink = task(uri)
        sink.begin(context(batch=number, epoch=epoch, item=item))
        for row in items:
            sink.deliver(messages_of([row]), TARGETS)
        assert sink.flush() == len(items)
    driver.send_resolved(TARGETS, b"resolved", b"%d" % number)
    driver.finish_batch(ctx)


def test_a_batch_is_rows_by_partition_then_ddl_then_resolved(uri: str) -> None:
    driver = open_driver_sink(uri)
    assert driver.ensure_topics({"t"}) == {"t": 2}
    driver.begin_batch(context())
    for item in (1, 0):
        sink = task(uri)
        sink.begin(context(item=item))
        sink.deliver(messages_of([(1, b"a", b"%d" % item), (0, b"b", None)]), TARGETS)
        sink.deliver(messages_of([(1, b"c", b"%d" % item)]), TARGETS)
        assert sink.flush() == 3
    driver.send("t", b"ddl", None, range(2))
    driver.send_resolved(TARGETS, b"resolved", b"1")
    driver.finish_batch(context())
    assert lines(uri) == [
        *(("t", 0, b"b", None), ("t", 0, b"b", None)),
        *(("t", 1, b"a", b"0"), ("t", 1, b"c", b"0"), ("t", 1, b"a", b"1"), ("t", 1, b"c", b"1")),
        *(("t", 0, b"ddl", None), ("t", 1, b"ddl", None)),
        *(("t", 0, b"resolved", b"1"), ("t", 1, b"resolved", b"1")),
    ]
    driver.close()
    path = Path(parse_sink_uri(uri).path)
    assert [p.name for p in path.parent.iterdir()] == [path.name], "no parts are left"


def test_a_run_appends_and_a_replay_starts_anew(uri: str) -> None:
    for fresh, expected in ((True, [1]), (False, [1, 2]), (True, [3])):
        driver = open_driver_sink(uri, fresh=fresh)
        run_batch(uri, driver, expected[-1], [[(0, b"k", b"v")]])
        driver.close()
        assert [int(value or b"") for _, p, key, value in lines(uri) if key == b"resolved" and p == 0] == expected


def test_a_torn_last_line_is_cut(uri: str) -> None:
    driver = open_driver_sink(uri)
    run_batch(uri, driver, 1, [[(0, b"k", b"v")]])
    driver.close()
    path = Path(parse_sink_uri(uri).path)
    whole = path.read_bytes()
    for torn in (b'{"topic":"t"', b'{"topic":"' + b"x" * 200_000, b""):
        path.write_bytes(whole + torn)
        driver = open_driver_sink(uri)
        driver.begin_batch(context(batch=2))
        driver.close()
        assert path.read_bytes() == whole
    path.write_bytes(b'{"topic":"no newline at all')
    driver = open_driver_sink(uri)
    driver.begin_batch(context(batch=2))
    assert path.read_bytes() == b""
    driver.close()


def test_only_the_try_that_succeeded_is_joined_whatever_late_tasks_do(uri: str) -> None:
    driver = open_driver_sink(uri)
    late, unfinished = task(uri), task(uri)
    driver.begin_batch(context(epoch=1))
    late.begin(context(epoch=1, item=0))
    late.deliver(messages_of([(0, b"old", b"1")]), TARGETS)
    unfinished.begin(context(epoch=1, item=1))
    unfinished.deliver(messages_of([(0, b"old", b"2")]), TARGETS)
    driver.discard(context(epoch=1))
    driver.begin_batch(context(epoch=2))
    winner = task(uri)
    winner.begin(context(epoch=2, item=0))
    winner.deliver(messages_of([(0, b"new", b"1")]), TARGETS)
    assert winner.flush() == 1
    with pytest.raises(SinkError):
        late.deliver(messages_of([(0, b"old", b"3")]), TARGETS)
    with pytest.raises(SinkError):
        late.flush()
    later = task(uri)
    later.begin(context(epoch=1, item=2))
    with pytest.raises(SinkError):
        later.deliver(messages_of([(1, b"old", b"4")]), TARGETS)
    unfinished.abandon()
    driver.finish_batch(context(epoch=2))
    assert [key for _, _, key, _ in lines(uri)] == [b"new"]
    driver.close()


def test_what_a_task_did_not_flush_does_not_count(uri: str) -> None:
    driver = open_driver_sink(uri)
    driver.begin_batch(context())
    sink = task(uri)
    sink.begin(context())
    sink.deliver(messages_of([(0, b"a", b"1")]), TARGETS)
    assert sink.flush() == 1
    sink.deliver(messages_of([(0, b"b", b"1")]), TARGETS)
    driver.finish_batch(context())
    assert [key for _, _, key, _ in lines(uri)] == [b"a"]
    driver.close()


def test_a_full_disk_leaves_no_part_of_a_batch(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = open_driver_sink(uri)
    run_batch(uri, driver, 1, [[(0, b"k", b"v")]])
    before = lines(uri)

    def full(file: Any, data: bytes) -> None:
        write_all(file, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("tidemill.sinks.messages.write_all", full)
        with pytest.raises(SinkUnavailable, match="No space left") as caught:
            run_batch(uri, driver, 2, [[(0, b"k", b"v2")]])
    assert caught.value.retryable
    driver.discard(context(batch=2))
    assert lines(uri) == before
    run_batch(uri, driver, 2, [[(0, b"k", b"v2")]], epoch=2)
    assert [key for _, p, key, _ in lines(uri) if p == 0] == [b"k", b"resolved", b"k", b"resolved"]
    driver.close()


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    driver = open_driver_sink(f"messages://{tmp_path}/file/m.jsonl?protocol=open-protocol")
    with pytest.raises(SinkError, match="opening the messages file") as caught:
        driver.begin_batch(context())
    assert not caught.value.retryable


class Fence:
    """The epoch in force, as two drivers see it."""

    def __init__(self) -> None:
        self.epoch = 1

    def of(self, epoch: int, **more: int) -> BatchContext:
        def check(*, now: bool = False) -> None:
            if self.epoch != epoch:
                raise Fenced(f"epoch {epoch} is over")

        return replace(context(epoch=epoch, **more), check_fence=check)


def deliver(uri: str, driver: DriverSink, ctx: BatchContext, key: bytes) -> None:
    driver.begin_batch(ctx)
    sink = task(uri)
    sink.begin(ctx)
    sink.deliver(messages_of([(0, key, b"v")]), TARGETS)
    assert sink.flush() == 1


@pytest.mark.parametrize("where", ["before", "in the middle", "after"])
def test_a_driver_that_slept_while_it_appended_takes_nothing_of_the_next_one_away(
    uri: str, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    fence, old, new = Fence(), open_driver_sink(uri), open_driver_sink(uri)
    deliver(uri, old, fence.of(1), b"old")

    def sleep(file: Any, data: bytes) -> None:
        monkeypatch.undo()
        at = {"before": 0, "in the middle": 10, "after": len(data)}[where]
        write_all(file, data[:at])
        fence.epoch = 2
        deliver(uri, new, fence.of(2), b"new")
        new.finish_batch(fence.of(2))
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("tidemill.sinks.messages.write_all", sleep)
    with pytest.raises(Fenced):
        old.finish_batch(fence.of(1))
    old.discard(fence.of(1))
    old.close()
    assert [key for *_, key, _ in lines(uri)] == [*([b"old"] if where == "after" else []), b"new"]


def test_a_driver_that_sleeps_while_it_cuts_keeps_the_next_one_out(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fence, old, new = Fence(), open_driver_sink(uri), open_driver_sink(uri)
    deliver(uri, old, fence.of(1), b"old")
    monkeypatch.setattr("tidemill.changelog.storage.flock.PATIENCE", 0.0)

    def fail(file: Any, data: bytes) -> None:
        write_all(file, data)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("tidemill.sinks.messages.write_all", fail)
    real, slept = FileIO.truncate, []

    class File(FileIO):
        def truncate(self, size: int | None = None) -> int:
            if not slept:
                slept.append(size)
                fence.epoch = 2
                with pytest.raises(SinkUnavailable, match="in the middle of a step"):
                    new.begin_batch(fence.of(2))
            return real(self, size)

    old.close()
    monkeypatch.setattr("tidemill.sinks.messages.FileIO", File)
    deliver(uri, old, fence.of(1, batch=2), b"old")
    with pytest.raises(SinkUnavailable, match="Input/output error"):
        old.finish_batch(fence.of(1, batch=2))
    monkeypatch.undo()
    assert slept
    deliver(uri, new, fence.of(2, batch=3), b"new")
    new.finish_batch(fence.of(2, batch=3))
    old.discard(fence.of(1, batch=2))
    old.close()
    assert [key for *_, key, _ in lines(uri)] == [b"new"]


def test_what_is_joined_to_a_torn_line_of_an_older_driver_is_cut_off_and_appended_again(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = open_driver_sink(uri)
    deliver(uri, driver, context(), b"new")

    def behind_a_torn_line(file: Any, data: bytes) -> None:
        with Path(parse_sink_uri(uri).path).open("ab") as late:
            late.write(b'{"topic":"t"')
        write_all(file, data)

    with monkeypatch.context() as patch:
        patch.setattr("tidemill.sinks.messages.write_all", behind_a_torn_line)
        with pytest.raises(SinkUnavailable, match="appended late"):
            driver.finish_batch(context())
    driver.discard(context())
    deliver(uri, driver, context(epoch=2), b"new")
    driver.finish_batch(context(epoch=2))
    with Path(parse_sink_uri(uri).path).open("ab") as late:
        late.write(b'{"topic":"t"')
    deliver(uri, driver, context(epoch=2, batch=2), b"newer")
    driver.finish_batch(context(epoch=2, batch=2))
    driver.close()
    assert [key for *_, key, _ in lines(uri)] == [b"new", b"newer"]


def test_a_line_that_is_appended_in_part_is_not_completed_later(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class File(FileIO):
        def write(self, data: Any) -> int:
            return super().write(data[:-3])

    driver = open_driver_sink(uri)
    monkeypatch.setattr("tidemill.sinks.messages.FileIO", File)
    deliver(uri, driver, context(), b"k")
    with pytest.raises(SinkUnavailable, match="No space left"):
        driver.finish_batch(context())
    assert lines(uri) == []


def test_a_driver_that_another_one_has_replaced_leaves_the_parts_of_that_one(uri: str) -> None:
    fence, old, new = Fence(), open_driver_sink(uri), open_driver_sink(uri)
    deliver(uri, old, fence.of(1), b"old")
    fence.epoch = 2
    deliver(uri, new, fence.of(2), b"new")
    old.discard(fence.of(1))
    old.begin_batch(fence.of(1, batch=2))
    old.close()
    new.finish_batch(fence.of(2))
    assert [key for *_, key, _ in lines(uri)] == [b"new"]
    new.close()


def test_a_driver_that_another_one_has_replaced_appends_nothing(uri: str) -> None:
    fence, old = Fence(), open_driver_sink(uri)
    deliver(uri, old, fence.of(1), b"old")
    fence.epoch = 2
    with pytest.raises(Fenced):
        old.finish_batch(fence.of(1))
    with pytest.raises(Fenced):
        open_driver_sink(uri, fresh=True).begin_batch(fence.of(1))
    assert lines(uri) == []


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_pieces_of_a_file_end_with_a_line(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("tidemill.sinks.messages._PIECE", size)
    text = b"one\n\nthree and more\n4\n" * 3
    pieces = list(whole_lines(io.BytesIO(text)))
    assert b"".join(pieces) == text
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert b"".join(whole_lines(io.BytesIO(text + b"torn"))) == text + b"torn"


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("content", [b"root:x:0:0\n", b"[1]\n", b'{"topic": "of another"}', b"\x00"])
def test_a_file_of_others_is_neither_cut_nor_written_to(uri: str, content: bytes, fresh: bool) -> None:
    path = Path(parse_sink_uri(uri).path)
    path.parent.mkdir()
    path.write_bytes(content)
    driver = open_driver_sink(uri, fresh=fresh)
    with pytest.raises(SinkError, match="has not begun"):
        driver.begin_batch(context(batch=1))
    assert path.read_bytes() == content
