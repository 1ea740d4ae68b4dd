"""The trace of a seal."""

from __future__ import annotations

from pathlib import Path

from tests.support.capture.eventfeeds import message, resolved
from tests.support.capture.receiving import commit, key, prewrite, two_pieces
from tests.support.traces.kept import Kept, outline
from tidemill.capture.tikv.receive.ingest import Options
from tidemill.capture.tikv.receive.seal_spans import Fed, SealTraces, seal_span, seal_traces
from tidemill.capture.tikv.sort.partition import Sealed

S = 1_000_000_000
DONE = Sealed(500, ["a", "b"], rows=7, bytes=900, seconds=3.0, sort_seconds=1.0)


def test_a_seal() -> None:
    span = seal_span("2", DONE, 100 * S, Fed(90 * S, 96 * S, 4, 2_500_000))
    assert outline(span) == "seal(feed, sort, write)"
    assert [(one.begun_ns // S, one.ended_ns // S) for one in (span, *span.children)] == [(90, 100), (90, 96), (97, 98), (98, 100)]
    assert span.children[0].attributes == {"tidemill.lots": 4, "tidemill.busy_ms": 2.5}
    assert span.attributes == {
        "tidemill.partition": "2", "tidemill.to_ts": 500, "tidemill.rows": 7, "tidemill.bytes": 900, "tidemill.files": 2
    }  # fmt: skip


def test_a_seal_of_rows_that_came_before_an_earlier_one() -> None:
    span = seal_span("2", DONE, 100 * S, None)
    assert outline(span) == "seal(sort, write)"
    assert (span.begun_ns, span.ended_ns) == (97 * S, 100 * S)


def test_a_receiver_sends_a_trace_for_each_seal_with_rows(tmp_path: Path) -> None:
    tracer = Kept()
    _, receiver, sealed = two_pieces(tmp_path, Options(seal_every=0), SealTraces(["3", "schema"], tracer))
    receiver.step([0], [message(2, 7, [prewrite(key(1), 20, b"x"), commit(key(1), 20, 30)])])
    receiver.step([0], [resolved(40, 7, 1, 2)])
    receiver.stop()
    receiver._seal(force=True)
    receiver._finish_seals(wait=True)
    assert sorted(sealed) == [0, 1]
    [span] = tracer.spans  # partition 3 had no rows: only its head has moved
    assert outline(span) == "seal(feed, sort, write)"
    assert (span.attributes["tidemill.partition"], span.attributes["tidemill.rows"]) == ("schema", 1)
    assert span.begun_ns <= span.children[0].begun_ns <= span.children[1].begun_ns <= span.ended_ns


def test_without_a_tracer_there_is_none() -> None:
    assert seal_traces(["0"]) is None
