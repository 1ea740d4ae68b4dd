"""Parts are appended to in writes of a bounded size, a new part is never an old one, and a listing that lacks some publishes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.delivery.messages import context, messages_of
from tidemill.errors import SinkError, SinkUnavailable
from tidemill.sinks import parts
from tidemill.sinks.base import BatchContext
from tidemill.sinks.spec import open_driver_sink, open_task_sink

PLACES = ("file://{}/out?protocol=open-protocol&topic=t", "messages://{}/out.jsonl?protocol=open-protocol&topic=t")


def test_long_texts_are_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the system takes less of a piece than it was given."""
    sizes = []
    write = os.write

    def stingy(descriptor: int, data: memoryview | bytes) -> int:
        sizes.append(len(data))
        return write(descriptor, data[:700])

    monkeypatch.setattr(parts, "PIECE", 1000)
    monkeypatch.setattr(os, "write", stingy)
    head, text = b"head", os.urandom(2500)
    parts.append_to(tmp_path / "a", head, memoryview(text), fresh=True)
    assert sizes == [4, 1000, 1000, 1000, 400]
    parts.append_to(tmp_path / "a", b"", b"tail", fresh=False)
    assert (tmp_path / "a").read_bytes() == head + text + b"tail"


def test_only_a_new_part_is_made(tmp_path: Path) -> None:
    parts.append_to(tmp_path / "a", b"1", fresh=True)
    with pytest.raises(FileExistsError):
        parts.append_to(tmp_path / "a", b"2", fresh=True)
    with pytest.raises(FileNotFoundError):
        parts.append_to(tmp_path / "b", b"2", fresh=False)
    assert (tmp_path / "a").read_bytes() == b"1"


@pytest.mark.parametrize("place", PLACES)
def test_a_task_whose_folder_became_a_file_is_abandoned_quietly(place: str, tmp_path: Path) -> None:
    """What it cannot remove is not the changefeed's end: the sink is away, and comes back."""
    here = tmp_path / "here"
    here.mkdir()
    sink = place.format(here)
    driver, ctx = open_driver_sink(sink), context(1, epoch=1)
    driver.begin_batch(ctx)
    task = open_task_sink(sink)
    task.begin(ctx)
    here.rename(tmp_path / "away")
    here.touch()
    messages = messages_of([(0, None, b"1")])
    with pytest.raises(SinkError):
        task.deliver(messages, [("t", 0)])
    task.abandon()


@pytest.mark.parametrize("place", PLACES)
def test_a_batch_is_not_published_while_a_listing_lacks_a_task(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of NFS may be listed as it was some seconds ago."""
    sink = place.format(tmp_path)
    driver, late = open_driver_sink(sink), context(1, epoch=1)
    driver.begin_batch(late)
    deliver(sink, late, b"1")
    shown = {*tmp_path.rglob("*")}
    deliver(sink, replace(late, item=1), b"2")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", listing_of(shown))
        with pytest.raises(SinkUnavailable, match="has 1 of 2 messages"):
            driver.finish_batch(replace(late, acked=2))
    driver.discard(late)
    assert not published(tmp_path)
    again = context(1, epoch=2)
    driver.begin_batch(again)
    for item in range(2):
        deliver(sink, replace(again, item=item), b"%d" % item)
    driver.finish_batch(replace(again, acked=2))
    assert len(published(tmp_path)) == 1
    driver.close()


@pytest.mark.parametrize("place", PLACES)
def test_an_attempt_whose_parts_are_gone_is_repeated(place: str, tmp_path: Path) -> None:
    """Another driver has removed them."""
    driver, other = open_driver_sink(place.format(tmp_path)), open_driver_sink(place.format(tmp_path))
    driver.begin_batch(context(1, epoch=1))
    other.begin_batch(context(1, epoch=2))
    with pytest.raises(SinkUnavailable, match="the attempt is over"):
        driver.finish_batch(context(1, epoch=1))


def deliver(place: str, ctx: BatchContext, value: bytes) -> None:
    task = open_task_sink(place)
    task.begin(ctx)
    task.deliver(messages_of([(0, b"k", value)]), [("t", 0)])
    assert task.flush() == 1


def listing_of(shown: set[Path]) -> Callable[[Path], Iterator[Path]]:
    iterdir = Path.iterdir
    return lambda folder: (path for path in iterdir(folder) if path in shown)


def published(folder: Path) -> list[Path]:
    """The files that readers see, with messages in them."""
    return [path for path in (*folder.rglob("*.messages"), *folder.glob("*.jsonl")) if path.stat().st_size]
