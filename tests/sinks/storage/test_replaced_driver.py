"""A driver that sleeps right behind its check of the fence while others publish: it wakes, and readers lose nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.storage.conftest import Place, local_files
from tests.support.delivery.messages import context
from tests.support.delivery.storage_feed import Feed, Line, content, some_lines
from tests.support.schema.tables import ddl_event, table_version
from tests.support.simulate.power import Supplies
from tidemill.config.uri import parse_sink_uri
from tidemill.errors import Fenced, SinkError, SinkUnavailable
from tidemill.sinks.base import BatchContext, FenceCheck, no_fence_check
from tidemill.sinks.publication import NOTE
from tidemill.sinks.storage.driver import StorageDriverSink
from tidemill.tidb.schema.tracking.versions import TableVersion

VERSION = table_version("d", "t")


def late(
    feed: Feed, ctx: BatchContext, lines: list[tuple[TableVersion, int, Line]], ddls: Iterable[Any], others: Callable[[], None]
) -> None:
    """A batch whose driver sleeps behind its check of the fence at the end, while others act. It ends as unavailable."""

    def check(*, now: bool = False) -> None:
        others()

    feed.driver.begin_batch(ctx)
    feed.rows(ctx, lines)
    for event in ddls:
        assert feed.driver.ddl(event, "")
    with pytest.raises(SinkUnavailable, match="another driver, of epoch"):
        feed.driver.finish_batch(replace(ctx, check_fence=once(check)))


def once(check: FenceCheck) -> FenceCheck:
    calls = iter([check])
    return lambda *, now=False: next(calls, no_fence_check)(now=now)


def test_index_and_metadata_do_not_go_back(place: Place) -> None:
    uri = place.uri("date-separator=none")
    old, new = Feed(uri), Feed(uri)
    old.batch(context(1, epoch=1, from_ts=50, to_ts=100), some_lines(50, 3, VERSION))

    def others() -> None:
        new.batch(context(2, epoch=3, from_ts=100, to_ts=200), some_lines(100, 5, VERSION))
        new.batch(context(3, epoch=4, from_ts=200, to_ts=300), some_lines(200, 5, VERSION))

    late(old, context(2, epoch=2, from_ts=100, to_ts=200), some_lines(100, 5, VERSION), (), others)
    assert json.loads(place.published()["metadata"]) == {"checkpoint-ts": 300}
    new.driver.discard(context(4, epoch=5, from_ts=300, to_ts=400))
    new.batch(context(4, epoch=6, from_ts=300, to_ts=400), some_lines(300, 5, VERSION))
    assert content(place.published()) == [*range(51, 54), *range(101, 106), *range(201, 206), *range(301, 306)]


def test_who_is_asked_to_publish_without_a_claim_publishes_nothing(place: Place) -> None:
    """The fence says nothing yet, but another driver has claimed the note."""
    uri = place.uri("date-separator=none")
    old, new = Feed(uri), Feed(uri)
    first = context(1, epoch=1, from_ts=100, to_ts=200)
    old.driver.begin_batch(first)
    old.rows(first, some_lines(100, 2, VERSION))
    new.driver.begin_batch(context(1, epoch=2, from_ts=100, to_ts=200))
    with pytest.raises(SinkUnavailable, match="is over: another driver"):
        old.driver.finish_batch(first)
    assert place.published() == {}


def test_a_driver_that_was_robbed_of_its_claim_claims_it_again(place: Place) -> None:
    """One of the past wakes before its claim, takes the note and is fenced: the driver in force goes on."""
    uri = place.uri("date-separator=none")
    new = Feed(uri)
    ctx = context(1, epoch=2, from_ts=100, to_ts=200)
    new.driver.begin_batch(ctx)
    new.rows(ctx, some_lines(100, 2, VERSION))

    def fenced(*, now: bool = False) -> None:
        raise Fenced("epoch 1 is over")

    with pytest.raises(Fenced):
        StorageDriverSink(uri, fresh=False).begin_batch(replace(context(1, epoch=1, from_ts=100, to_ts=200), check_fence=fenced))
    with pytest.raises(SinkUnavailable):
        new.driver.finish_batch(ctx)
    new.driver.discard(ctx)
    new.batch(replace(ctx, epoch=3), some_lines(100, 2, VERSION))
    assert content(place.published()) == [101, 102]


def test_files_beyond_the_index_are_not_written_over(place: Place) -> None:
    """Whoever wrote them: TiCDC before it was stopped, or a person."""
    uri = place.uri("date-separator=none")
    feed = Feed(uri)
    feed.batch(context(1, from_ts=100, to_ts=200), some_lines(100, 1, VERSION))
    store = feed.driver._store
    assert store.create("d/t/100/CDC00000000000000000002.csv", b"of somebody else\r\n")
    Feed(uri).batch(context(2, epoch=2, from_ts=200, to_ts=300), some_lines(200, 1, VERSION))
    files = place.published()
    assert files["d/t/100/CDC00000000000000000002.csv"] == b"of somebody else\r\n"
    assert files["d/t/100/meta/CDC.index"] == b"CDC00000000000000000003.csv\n"


def test_a_file_that_comes_between_is_an_error(tmp_path: Path) -> None:
    place = Place(f"file://{tmp_path}/out", lambda: local_files(tmp_path / "out"))
    feed = Feed(place.uri("date-separator=none"))
    feed.batch(context(1, from_ts=100, to_ts=200), some_lines(100, 1, VERSION))
    (tmp_path / "out/d/t/100/CDC00000000000000000002.csv").write_bytes(b"of somebody else\r\n")
    with pytest.raises(SinkError, match="did not write it"):
        feed.batch(context(2, from_ts=200, to_ts=300), some_lines(200, 1, VERSION))


def test_schema_files_of_a_late_ddl_are_those_of_the_first(place: Place) -> None:
    uri = place.uri("date-separator=none")

    def others() -> None:
        Feed(uri).batch(context(1, epoch=2, from_ts=100, to_ts=200), some_lines(100, 1, VERSION), [ddl_event(VERSION, 200)])

    late(Feed(uri), context(1, epoch=1, from_ts=100, to_ts=200), some_lines(100, 1, VERSION), [ddl_event(VERSION, 200)], others)
    assert content(place.published()) == [101]
    assert json.loads(place.files()[NOTE])["epoch"] == 2


def test_a_plan_and_what_it_needs_survive_the_loss_of_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends when its plan is durable, and the machine with it."""
    supplies = Supplies()
    supplies.install(monkeypatch)
    power = supplies.start(tmp_path / "run")
    uri = parse_sink_uri(f"file://{tmp_path}/run/out?protocol=csv&date-separator=none")
    old = Feed(uri)

    def end(moves: object) -> None:
        raise SinkUnavailable("the process ends here")

    monkeypatch.setattr(old.driver._store, "move", end)
    with pytest.raises(SinkUnavailable, match="ends here"):
        old.batch(context(1, epoch=1, from_ts=50, to_ts=100), some_lines(50, 3, VERSION))
    power.go_off()
    power.come_back()
    new = Feed(uri)
    new.batch(context(2, epoch=2, from_ts=100, to_ts=200), some_lines(100, 2, VERSION))
    supplies.stop()
    assert content(local_files(tmp_path / "run" / "out")) == [51, 52, 53, 101, 102]
