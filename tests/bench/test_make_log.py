"""Benchmark logs are whole logs of the shape asked for."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path

import pytest

from bench.corpus import NAMES, load, make
from bench.make_log import DATABASE, Shape, make_log, table_name
from tests.support.changelog.logs import DELETE, changes_of
from tidemill.changelog.history import load_history
from tidemill.changelog.log_format import Affinity
from tidemill.changelog.reader import LogReader
from tidemill.changelog.verify import verify
from tidemill.tidb.rows.reader import RowReader
from tidemill.tidb.schema.model import TableInfo


@pytest.mark.parametrize("affinity", Affinity)
@pytest.mark.parametrize("name", NAMES)
def test_logs_are_whole_and_have_the_rows_asked_for(name: str, affinity: Affinity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("bench.corpus").corpus.MADE_UP_ROWS, name, 700)
    shape = Shape(name, rows=2500, tables=3, partitions=2, affinity=affinity, segment_seconds=0.05)
    make_log(tmp_path, shape)
    report = verify(tmp_path)
    assert report.problems == []
    assert (report.rows, report.tables) == (2500, 3)
    reader = LogReader(tmp_path)
    names = {(v.schema, v.table) for v in load_history(reader).snapshot(reader.start_ts).tables.values()}
    assert names == {(DATABASE, table_name(shape, i)) for i in range(3)}
    assert len(reader.chain(0, reader.start_ts, reader.resolved_ts())) > 3


@pytest.mark.parametrize("name", NAMES)
def test_made_up_rows_read_as_their_table_says(name: str) -> None:
    corpus = make(name, 3000)
    again = make(name, 3000)
    assert corpus.value.equals(again.value)
    inserts = corpus.old_value.null_count / len(corpus)
    deletes = float((corpus.op == DELETE).mean())
    assert abs(inserts - 0.6) < 0.05
    assert abs(deletes - 0.1) < 0.03
    read = RowReader(TableInfo.from_json(corpus.table_info), UTC).read
    nulls = cells = 0
    for handle, value in zip(corpus.handle.tolist()[:300], corpus.value.to_pylist()[:300], strict=True):
        if value is not None:
            row = read(_key(corpus.table_info["id"], handle), value)
            assert row[0] == handle
            nulls += sum(cell is None for cell in row)
            cells += len(row)
    assert (nulls > 0.05 * cells) == (name != "narrow")


def _key(table_id: int, handle: int) -> bytes:
    from tests.support.changelog.logs import row_key

    return row_key(table_id, handle)


def test_changes_of_a_key_follow_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inserted once, old values are those before, deleted rows do not come back."""
    monkeypatch.setitem(__import__("bench.corpus").corpus.MADE_UP_ROWS, "narrow", 500)
    make_log(tmp_path, Shape(rows=1200, tables=2, partitions=3))
    reader = LogReader(tmp_path)
    state: dict[bytes, bytes | None] = {}
    for p in range(3):
        for interval in reader.chain(p, reader.start_ts, reader.resolved_ts()):
            for change in changes_of(reader.open_segment(interval.parts[0]).read_all()):
                assert state.get(change.key) == change.old_value
                state[change.key] = change.value


def test_an_unknown_corpus_is_refused() -> None:
    with pytest.raises(ValueError, match="not a corpus"):
        load("tall")
