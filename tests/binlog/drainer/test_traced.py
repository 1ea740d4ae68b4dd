"""Traces of what a Drainer does. The whole process: tests/traces/test_drainers.py."""

from __future__ import annotations

import pytest

from tests.support.binlog.blocks import block
from tests.support.binlog.fake_pumps import BEGIN, inserted
from tests.support.traces.kept import Kept, outline
from tidemill.binlog.drainer.traced import SentTraces
from tidemill.binlog.messages import fake
from tidemill.errors import SinkError


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def traces(kept: Kept) -> SentTraces:
    return SentTraces("file", kept)


def test_a_delivery_has_what_came_for_it(traces: SentTraces, kept: Kept) -> None:
    merge = traces.merge(BEGIN)
    merge.join("p1")
    merge.add("p1", block(fake(BEGIN + 1)))
    merge.add("p1", block(inserted(BEGIN + 2, 1), inserted(BEGIN + 3, 2)))
    found = merge.next(10)
    with traces.step("read"):
        traces.read(found, ddl=False)
    with traces.writing():
        pass
    traces.over(BEGIN + 3)
    [span] = kept.spans
    assert outline(span) == "drain(pull, merge, read, write)"
    assert span.attributes == {
        "tidemill.destination": "file",
        "tidemill.from_ts": BEGIN + 2,
        "tidemill.to_ts": BEGIN + 3,
        "tidemill.binlogs": 2,
        "tidemill.bytes": int(found.sizes.sum()),
        "tidemill.ddls": 0,
    }
    assert span.children[0].attributes == {"tidemill.pump": "p1", "tidemill.lots": 1, "tidemill.bytes": int(found.sizes.sum())}


def test_a_round_that_delivers_nothing_has_no_trace_and_a_save_has_one(traces: SentTraces, kept: Kept) -> None:
    traces.merge(BEGIN).next(10)
    traces.over(BEGIN)
    assert kept.spans == []
    with traces.step("flush"):
        pass
    with traces.step("save"):
        pass
    traces.over(BEGIN + 9)
    [span] = kept.spans
    assert outline(span) == "save(flush)"
    assert span.attributes == {"tidemill.destination": "file", "tidemill.to_ts": BEGIN + 9}


@pytest.mark.parametrize("error", [SinkError("the disk is gone"), OSError("the disk is gone")], ids=["ours", "the system's"])
def test_a_failure_is_told_at_its_step_and_at_the_trace(traces: SentTraces, kept: Kept, error: SinkError | OSError) -> None:
    with pytest.raises(type(error)) as told, traces.writing():
        raise error
    assert isinstance(told.value, SinkError | OSError)
    traces.failed(told.value)
    [span] = kept.spans
    assert outline(span) == "drain(write)"
    assert [(one.error, one.message) for one in (span, *span.children)] == [(span.error, "the disk is gone")] * 2
    assert span.error == (error.code if isinstance(error, SinkError) else "OSError")
