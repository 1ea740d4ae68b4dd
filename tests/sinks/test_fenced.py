"""Tasks whose try is over while they wait for their sink, or publish: they notice by themselves, and what they had queued never arrives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.delivery.messages import context, messages_of
from tidemill.config.uri import parse_sink_uri
from tidemill.errors import Fenced, SinkUnavailable
from tidemill.sinks.base import BatchContext
from tidemill.sinks.kafka import options
from tidemill.sinks.kafka.driver import KafkaDriverSink
from tidemill.sinks.kafka.task import KafkaTaskSink
from tidemill.sinks.parts import PartReader, PartWriter
from tidemill.sinks.spec import open_driver_sink, open_task_sink
from tidemill.sinks.storage import parts as tables
from tidemill.sinks.storage.store import LocalStore

NOBODY = "kafka://127.0.0.1:1/t?protocol=open-protocol&partition-num=1"


class Ending:
    """A look that finds the attempt over at the `at`-th time."""

    def __init__(self, at: int) -> None:
        self.at, self.looks = at, 0

    def __call__(self, *, now: bool = False) -> None:
        self.looks += 1
        if self.looks >= self.at:
            raise Fenced("epoch 1 is over")


def during(look: Ending, **more: int) -> BatchContext:
    return replace(context(**more), check_fence=look)


def test_a_flush_to_kafka_ends_with_the_epoch() -> None:
    sink, look = KafkaTaskSink(parse_sink_uri(NOBODY)), Ending(3)
    sink.begin(during(look))
    sink.deliver(messages_of([(0, b"k", b"v")]), [("t", 0)])
    with pytest.raises(Fenced):
        sink.flush()
    sink.abandon()
    assert look.looks == 3


def test_a_wait_for_room_ends_with_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "WINDOW_BYTES", 1000)
    sink, look = KafkaTaskSink(parse_sink_uri(NOBODY)), Ending(3)
    sink.begin(during(look))
    sink.deliver(messages_of([(0, b"k", b"v" * 900)]), [("t", 0)])
    with pytest.raises(Fenced):
        sink.deliver(messages_of([(0, b"k", b"v" * 900)]), [("t", 0)])
    sink.abandon()


def test_a_drivers_flush_ends_with_the_epoch() -> None:
    sink, look = KafkaDriverSink(parse_sink_uri(NOBODY)), Ending(2)
    ctx = during(look)
    sink.begin_batch(ctx)
    sink.send_resolved([("t", 0)], b"k", b"")
    with pytest.raises(Fenced):
        sink.finish_batch(ctx)
    sink.discard(ctx)


@pytest.mark.parametrize(("sink", "folder"), [("file:///{}?protocol=open-protocol", "out/.parts"), ("file:///{}?protocol=canal-json", "")])
def test_parts_are_not_published_behind_the_epoch(tmp_path: Path, sink: str, folder: str) -> None:
    uri = sink.format(str(tmp_path / "out").lstrip("/"))
    driver, task = open_driver_sink(uri), open_task_sink(uri)
    look = Ending(1000)
    if folder:
        driver.begin_batch(context())
    else:
        tables.begin(LocalStore(tmp_path / "out"), context(), 0)
    task.begin(during(look))
    task.deliver(messages_of([(0, b"k", b"v")]), [("app.t", 0)] if folder else [('["app","t"]', 0)])
    look.at = look.looks + 1
    with pytest.raises(Fenced):
        task.flush()
    task.abandon()
    assert not [p for p in (tmp_path / "out").rglob("*") if p.suffix == ".part" or p.name == "0.0.json"]


def test_two_processes_with_one_item_never_write_into_one_file(tmp_path: Path) -> None:
    """A torn row that one of them left is not what the other's rows come behind."""
    reader = PartReader(tmp_path / "messages")
    reader.begin(context())
    one, other = PartWriter(tmp_path / "messages"), PartWriter(tmp_path / "messages")
    for writer in (one, other):
        writer.begin(context())
    one.append(("t", 0), b"whole\nto")
    other.append(("t", 0), b"whole\n")
    other.publish(1)
    assert [path.read_bytes() for path in reader.parts(context())["t", 0]] == [b"whole\n"]

    store = LocalStore(tmp_path / "tables")
    tables.begin(store, context(), 0)
    first, second = tables.PartFiles(store, 1 << 20), tables.PartFiles(store, 1 << 20)
    for files in (first, second):
        files.begin(context())
    first.append(("t", 0), "", b"whole\nto")
    second.append(("t", 0), "", b"whole\n")
    second.publish(1)
    listed = tables.listed(store, context())
    assert [store.read(part.file) for part in listed] == [b"whole\n"]
    assert [part.bytes for part in listed] == [6]


def test_a_machine_that_does_not_see_the_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(SinkUnavailable, match="does not see what the driver wrote there") as caught:
        tables.begun(LocalStore(tmp_path), context())
    assert "all machines of the Spark cluster mount" in caught.value.hint
    with pytest.raises(Fenced):
        tables.begun(LocalStore(tmp_path), during(Ending(1)))
