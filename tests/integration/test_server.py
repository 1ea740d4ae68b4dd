"""A server with three changefeeds, as an operator has it for a week: created, one sink broken and mended, one changefeed paused, brought to
another place, resumed and removed, the log's disk filled, the server ended and started again. Nothing holds up another changefeed, and
nothing is lost.

All its processes send their traces to a collector of the test.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import httpx
import pytest

from tests.support.delivery.runs import Truth, assert_equal, audited, await_that
from tests.support.faults.disks import small_disk_if_allowed
from tests.support.server.servers import Server
from tests.support.traces.collector import Collector, collector
from tidemill.changelog.reader import LogReader
from tidemill.demo.delivered import from_jsonl
from tidemill.demo.session import Upstream, tables_of

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

FEEDS = ("one", "two", "bad")
DISK, FILLED = "560m", 64 << 20
"""The log's disk, and what fills it below the mark of 512 MiB."""


def sink(folder: Path, feed: str) -> str:
    return f"messages://{folder}/{feed}/out.jsonl?protocol=open-protocol&partition-num=2"


def advanced(server: Server, *feeds: str) -> None:
    """Wait until each of them has got further than it is."""
    for feed, at in [(feed, server.checkpoint(feed)) for feed in feeds]:
        await_that(lambda feed=feed, at=at: server.checkpoint(feed) > at, f"{feed} gets further")


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector to which the processes of the test send their traces."""
    with collector() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.endpoint)
        yield found


def metric(server: Server, name: str) -> float:
    """The value of a metric, with its labels in the name; 0 for one that is not there."""
    text = httpx.get(f"http://{server.address}/metrics", timeout=60).text
    return next((float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"{name} ")), 0.0)


def fill_the_disk(server: Server) -> None:
    """The capture waits while the log's disk is low, and goes on as soon as there is room."""
    filler = server.log / "filler"
    filler.write_bytes(bytes(FILLED))
    await_that(lambda: metric(server, "tidemill_capture_paused") == 1, "the capture says that it waits")
    filler.unlink()
    await_that(lambda: metric(server, "tidemill_capture_paused") == 0, "it goes on")
    advanced(server, "one")


def traced(there: Collector) -> dict[str, set[str]]:
    """The roots of traces by the part of the server that sent them."""
    return {part: {one.name for one in there.parts[part] if not one.parent_span_id} for part in ("server", "delivery", "capture")}


def test_three_changefeeds_of_one_server(tmp_path: Path, there: Collector) -> None:
    options = ("--resolved-interval", "0.3", "--ddl-every", "60", "--region-every", "80")
    with (
        small_disk_if_allowed(tmp_path / "log", DISK) as small,
        Upstream(tmp_path, seed=5, rate=15, options=options) as upstream,
        Server(tmp_path, upstream.pd, "--trigger-ms", "200") as server,
    ):
        for feed in FEEDS:
            (tmp_path / feed).mkdir()
            answer = server.create(feed, sink(tmp_path, feed), start_ts=upstream.began_ts)
            assert answer.get("id") == feed, answer
        assert server.create("one", sink(tmp_path, "one"))["error_code"] == "CDC:ErrChangeFeedAlreadyExists"
        advanced(server, *FEEDS)

        (tmp_path / "bad").rename(tmp_path / "away")
        (tmp_path / "bad").touch()
        await_that(lambda: server.state("bad") == "warning", "the broken sink shows")
        advanced(server, "one", "two")
        await_that(lambda: metric(server, 'tidemill_changefeed_errors_total{changefeed="bad"}') > 0, "failed attempts are counted")
        await_that(lambda: metric(server, 'tidemill_changefeed_batch_seconds_count{changefeed="one"}') > 0, "batches are timed")
        if small:
            fill_the_disk(server)

        server.call("POST", "changefeeds/two/pause")
        await_that(lambda: server.state("two") == "stopped", "it is paused")
        (host,) = server.children("server.host.process")
        host.kill()
        assert server.call("PUT", "changefeeds/two", {"sink_uri": "blackhole://"})["error_code"] == "CDC:ErrChangefeedUpdateRefused"
        (tmp_path / "moved").mkdir()
        moved = server.call("PUT", "changefeeds/two", {"sink_uri": sink(tmp_path, "moved")})
        assert moved.get("sink_uri") == sink(tmp_path, "moved"), moved
        server.call("POST", "changefeeds/two/resume", {})
        advanced(server, "one", "two")

        server.kill()
        server.start()
        (tmp_path / "bad").unlink()
        (tmp_path / "away").rename(tmp_path / "bad")
        server.call("POST", "changefeeds/bad/resume", {})
        end_ts = upstream.rest()
        truth: Truth = tables_of(upstream, end_ts)
        for feed in FEEDS:
            await_that(lambda feed=feed: server.checkpoint(feed) >= end_ts, f"{feed} has everything")
            assert server.state(feed) == "normal"

        assert server.call("DELETE", "changefeeds/two") == {}
        assert server.feed("two")["error_code"] == "CDC:ErrChangeFeedNotExists"
        assert not (server.data / "changefeeds/two").exists()
        assert LogReader(server.log).feeds().keys() == {"one", "bad"}
        assert server.stop() == 0
        said = server.said.read_text()
        for words in ("changefeed bad is in state pending", "changefeed two is removed", "the delivery host ended and starts again"):
            assert words in said, words
        assert not small or "disk low" in said
        assert "Traceback" not in said
        for places in (("one",), ("bad",), ("two", "moved")):
            delivered = chain.from_iterable(from_jsonl(tmp_path / place / "out.jsonl") for place in places)
            assert_equal(audited(delivered), server.log, truth, end_ts)
        roots = traced(there)
        assert {"POST /api/v2/changefeeds", "PUT /api/v2/changefeeds/{changefeed_id}"} <= roots["server"]
        assert (roots["delivery"], roots["capture"]) == ({"batch"}, {"seal"})
