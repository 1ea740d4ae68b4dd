"""What a history forgets, and where it begins, changes nothing that it tells later: of every recorded stream, at every ts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterator
from functools import lru_cache
from typing import Any

import pytest

from tests.support.schema import schema_streams as streams
from tests.support.schema.schema_streams import Stream
from tests.support.thorough import all_but
from tidemill.changelog.retention import between_ddls
from tidemill.tidb.schema.codes import SchemaState
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.job import DdlJob
from tidemill.tidb.schema.tracking import catalog
from tidemill.tidb.schema.tracking import history as tracked
from tidemill.tidb.schema.tracking.history import SchemaHistory
from tidemill.tidb.schema.tracking.view import public_view

STREAMS: dict[str, Callable[[], Stream]] = {
    "golden": streams.golden,
    "golden, jobs alone": streams.golden_jobs,
    "recorded": streams.recorded,
    "recorded jobs": streams.recorded_jobs,
    **{words: lambda words=words: streams.windows()[words] for words in streams.windows()},
    **{f"side by side {seed}": lambda seed=seed: streams.side_by_side(seed) for seed in range(1, 4)},
    **{f"playground {seed}": lambda seed=seed: streams.playground(seed) for seed in range(1, 5)},
}

LONG = ("golden", "side by side 3", "playground 3", "playground 4")
"""Streams of the same kinds as shorter ones."""
view = lru_cache(None)(public_view)
FOLLOWED = 16
"""For so many transactions a history that has forgotten is followed before it forgets again: longer than what is left of a job."""


@pytest.fixture(scope="module", autouse=True)
def read_once() -> Iterator[None]:
    """Hundreds of histories follow the same bytes here: what a byte string says, and what users see of a table, is worked out once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DdlJob, "parse", staticmethod(lru_cache(None)(DdlJob.parse)))
        patch.setattr(catalog, "_table", lru_cache(None)(catalog._table.__wrapped__))
        patch.setattr(catalog, "public_view", view)
        patch.setattr(tracked, "read_statement", lru_cache(None)(tracked.read_statement))
        yield


@pytest.fixture(scope="module", params=all_but(STREAMS, LONG))
def stream(request: pytest.FixtureRequest) -> Stream:
    return STREAMS[request.param]()


def told(history: SchemaHistory, from_ts: int, to_ts: int) -> list[Any]:
    """All that users and subscriptions are told of (from_ts, to_ts]."""
    return [history.ddl_events(from_ts, to_ts), history.barriers(from_ts, to_ts), history.next_table_changes(from_ts, to_ts)]


@pytest.mark.slow
def test_forgetting_changes_nothing(stream: Stream) -> None:
    """Each of FOLLOWED histories forgets at another transaction, so that one forgets at each of them; one forgets at all."""
    whole, histories = stream.history(), [stream.history() for _ in range(FOLLOWED + 1)]
    asked = [stream.ts] * len(histories)
    for index, (ts, changes) in enumerate(stream.transactions):
        for history in (whole, *histories):
            history.advance(changes, ts)
        described = whole.described_snapshot(ts).tables
        for number in (index % FOLLOWED, FOLLOWED):
            history = histories[number]
            assert told(history, asked[number], ts) == told(whole, asked[number], ts)
            assert history.described_snapshot(ts).tables == described
            history.forget(ts)
            assert history.described_snapshot(ts).tables == described
            asked[number] = ts
    for history, since in zip(histories, asked, strict=True):
        assert told(history, since, stream.end) == told(whole, since, stream.end)


@pytest.mark.slow
@pytest.mark.parametrize("lag", all_but([1, 3, 9], [3]))
def test_forgetting_behind_the_head_changes_nothing(stream: Stream, lag: int) -> None:
    """Schemas are followed further than rows: what is forgotten lies some transactions back."""
    whole, history = stream.history(), stream.history()
    moments = [stream.ts, *(ts for ts, _ in stream.transactions)]
    for index, (ts, changes) in enumerate(stream.transactions):
        whole.advance(changes, ts)
        history.advance(changes, ts)
        at = moments[max(0, index - lag)]
        assert told(history, history.start_ts, ts) == told(whole, history.start_ts, ts)
        history.forget(at)
        assert history.described_snapshot(at).tables == whole.described_snapshot(at).tables


def seen(history: SchemaHistory, ts: int, but: Container[int] = ()) -> dict[int, Any]:
    """The tables as statements and subscriptions see them."""
    tables = history.snapshot(ts).tables
    return {i: (v.schema_id, v.physical_ids, view(v.schema, v.info)) for i, v in tables.items() if i not in but}


def names(events: list[DdlEvent], known_to: int) -> list[Any]:
    """What is told of events where the schema is known up to a ts. A job has its schema version when it is done."""
    return [
        (e.ts, e.job_id, e.seq, e.type, e.schema, e.table, e.pre_schema, e.pre_table, e.table_id, e.query)
        + ((e.done_ts, e.schema_version) if 0 < e.done_ts <= known_to else (0, 0))
        for e in events
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", all_but([name for name in STREAMS if "jobs" not in name], LONG))
def test_beginning_between_ddls_changes_nothing(name: str) -> None:
    """A history that begins where retention lets a log begin, for a cut at each ts, and is followed for some transactions."""
    stream = STREAMS[name]()
    whole = stream.history()
    whole.advance([change for _, changes in stream.transactions for change in changes], stream.end)
    states, by_ts = dict(stream.states()), dict(stream.transactions)
    moments = [stream.ts, *by_ts]
    followed = stream.history()
    last_start = -1
    for cut in moments:
        followed.advance(by_ts.get(cut, ()), cut)
        start = max(stream.ts, between_ddls(followed, cut))
        followed.forget(start - 1)
        if start == last_start:
            continue
        last_start = start
        at = moments[bisect_right(moments, start) - 1]
        later = stream.transactions[bisect_right(moments, start) - 1 :][:FOLLOWED]
        history = SchemaHistory.bootstrap(start, states[at])
        # A description does not tell whether its table is being created or dropped; there are no rows yet, or none to come.
        unsettled = {i for i, v in history.snapshot(start).tables.items() if v.info.state != SchemaState.PUBLIC}
        assert seen(history, start, but=unsettled) == seen(whole, start, but=unsettled)
        end = later[-1][0] if later else start
        history.advance([change for _, changes in later for change in changes], end)
        assert names(history.ddl_events(start, end), end) == names(whole.ddl_events(start, end), end)
        assert history.barriers(start, end) == whole.barriers(start, end)
        assert seen(history, end) == seen(whole, end)
