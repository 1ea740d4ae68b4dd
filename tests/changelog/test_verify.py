"""Whole logs pass; each kind of damage is found and named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pytest

from tests.support.changelog.logs import (
    CHANGE,
    START,
    Change,
    batch_of,
    build_log,
    delete,
    golden,
    golden_log,
    put,
    write_arrow,
    write_json,
    write_segment,
)
from tests.support.schema.described_tables import META
from tidemill.changelog.log_format import MAX_BATCH_ROWS
from tidemill.changelog.verify import verify
from tidemill.errors import LogError
from tidemill.tidb.keys import table_key

ENDS = [START + 10, START + 20, START + 30]
ROWS = [put(7, 1, START + 1), put(7, 2, START + 1), put(8, 1, START + 12), put(7, 2, START + 15), delete(7, 1, START + 25)]
SECOND = f"{START + 10:020d}-{START + 20:020d}.arrow"


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """Tables 7 and 8 in partitions 1 and 0."""
    return build_log(tmp_path / "log", ROWS, ends=ENDS, partitions=2, snapshot=META)


def test_a_whole_log_has_no_problems(built: Path) -> None:
    report = verify(built)
    assert report.problems == []
    assert report.notes == []
    assert report.is_whole
    assert (report.files, report.rows, report.tables) == (9, 5, 2)
    assert (report.start_ts, report.resolved_ts) == (START, START + 30)
    quick = verify(built, quick=True)
    assert (quick.problems, quick.files, quick.rows) == ([], 9, 5)


@pytest.mark.parametrize("segments", [7, pytest.param(1, marks=pytest.mark.thorough("one segment, beside several"))])
def test_what_a_real_tidb_did_is_whole(tmp_path: Path, segments: int) -> None:
    report = verify(golden_log(tmp_path, partitions=4, segments=segments))
    assert report.problems == []
    assert report.rows == len(golden().rows) + len(golden().schema)


def rewrite(path: Path, changes: list[Change], compression: str | None = None) -> None:
    write_arrow(path, CHANGE, changes, compression)


def in_second(*changes: Change) -> Callable[[Path], None]:
    """Table 7's second segment with other rows."""
    return lambda log: rewrite(log / "rows" / "1" / SECOND, list(changes))


def truncate(log: Path) -> None:
    path = log / "rows" / "1" / SECOND
    path.write_bytes(path.read_bytes()[:-7])


def one_large_batch(log: Path) -> None:
    rows = [put(7, h, START + 12) for h in range(MAX_BATCH_ROWS + 1)]
    with pa.OSFile(str(log / "rows" / "1" / SECOND), "wb") as sink, pa.ipc.new_file(sink, CHANGE) as writer:
        writer.write_batch(batch_of(rows))


def wrong_offsets(log: Path) -> None:
    """Bytes of a body overwritten: Arrow has no checksum, but offsets can be seen to be wrong."""
    path = log / "rows" / "1" / SECOND
    data = bytearray(path.read_bytes())
    with pa.memory_map(str(path)) as source:
        column = pa.ipc.open_file(source).get_batch(0).column("key")
        at = data.index(column.buffers()[1].to_pybytes()[:8])
    data[at : at + 8] = (1 << 30).to_bytes(4, "little") * 2
    path.write_bytes(bytes(data))


def both_partitions(log: Path) -> None:
    write_segment(log / "rows" / "0", START + 10, START + 20, [put(7, 9, START + 1 + 10), put(8, 1, START + 12)])


DAMAGE: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "missing segment": (lambda log: (log / "rows" / "1" / SECOND).unlink(), "rows/1", "nothing holds"),
    "missing first segment": (lambda log: (log / "rows" / "1" / f"{START:020d}-{ENDS[0]:020d}.arrow").unlink(), "rows/1", "nothing holds"),
    "overlap": (lambda log: write_segment(log / "rows" / "1", START + 5, START + 15, ROWS), "rows/1", "overlap"),
    "truncated": (truncate, SECOND, "not a whole Arrow file"),
    "empty file": (lambda log: (log / "rows" / "1" / SECOND).write_bytes(b""), SECOND, "empty"),
    "other columns": (lambda log: write_arrow(log / "rows" / "1" / SECOND, pa.schema([("a", pa.int8())]), []), SECOND, "other columns"),
    "overwritten bytes": (wrong_offsets, SECOND, "offset"),
    "row below": (in_second(put(7, 2, START + 10)), SECOND, "not above the interval's start"),
    "row above": (in_second(put(7, 2, START + 21)), SECOND, "above the interval's end"),
    "order": (in_second(put(7, 2, START + 15), put(7, 1, START + 15)), SECOND, "stands after"),
    "row twice": (in_second(put(7, 2, START + 15), put(7, 2, START + 15)), SECOND, "stands after"),
    "op": (in_second(put(7, 2, START + 15)._replace(op=3)), SECOND, "op 3"),
    "put without value": (in_second(put(7, 2, START + 15)._replace(value=None)), SECOND, "put without"),
    "delete with value": (in_second(delete(7, 2, START + 15)._replace(value=b"x")), SECOND, "delete with"),
    "key of another table": (in_second(put(8, 2, START + 15)._replace(table_id=7)), SECOND, "not a record key of table 7"),
    "index key": (in_second(put(7, 2, START + 15)._replace(key=put(7, 2, 1).key.replace(b"_r", b"_i"))), SECOND, "not a record key"),
    "committed before it started": (in_second(put(7, 2, START + 15, start_ts=START + 16)), SECOND, "before it started"),
    "meta key among rows": (in_second(put(7, 2, START + 15)._replace(table_id=0, key=b"mDB")), SECOND, "meta keys"),
    "unknown table": (in_second(put(9, 2, START + 15)), SECOND, "table 9, which the schema history does not know"),
    "large batch": (one_large_batch, SECOND, "65537 rows"),
    "affinity": (both_partitions, "rows", "table 7 is in partitions"),
    "stranger": (lambda log: (log / "rows" / "1" / "notes.txt").write_text("hello"), "notes.txt", "not a file of a change log"),
    "name": (lambda log: (log / "rows" / "1" / f"{9:020d}-{8:020d}.arrow").write_bytes(b""), "rows/1", "no interval"),
    "partition": (lambda log: (log / "rows" / "2").mkdir(), "rows/2", "not a partition"),
    "head": (lambda log: (log / "rows" / "0" / "head.json").write_text("{"), "rows/0/head.json", "not JSON"),
    "owner": (lambda log: (log / "rows" / "0" / "owner.json").write_text('{"epoch": "9"}'), "rows/0/owner.json", 'epoch is "9", not'),
    "no snapshot": (lambda log: (log / "schema" / f"snapshot-{START:020d}.arrow").unlink(), "schema", "no schema snapshot"),
    "snapshot": (lambda log: (log / "schema" / f"snapshot-{START:020d}.arrow").write_bytes(b"x"), "snapshot-", "not a whole Arrow file"),
    "schema": (
        lambda log: write_segment(log / "schema", START, START + 10, [Change(0, 1, START, START + 5, table_key(2, 7), b"{", None)]),
        "schema",
        "history cannot be read",
    ),
    "feed before the start": (lambda log: write_json(log / "feeds" / "a.json", {"checkpoint_ts": START - 1}), "feeds/a.json", "begins at"),
    "leftover with other rows": (lambda log: write_segment(log / "rows" / "1", START + 10, START + 18, []), "rows/1", "has 0 rows"),
}
QUICK = {"missing segment", "missing first segment", "overlap", "truncated", "empty file", "other columns", "stranger", "name", "head"}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found_and_named(built: Path, kind: str) -> None:
    damage, where, what = DAMAGE[kind]
    damage(built)
    problems = verify(built).problems
    assert any(where in p.path and what in p.text for p in problems), problems
    if kind in QUICK:
        assert verify(built, quick=True).problems


def test_all_damage_is_listed_in_one_run(built: Path) -> None:
    truncate(built)
    (built / "rows" / "0" / SECOND).unlink()
    (built / "schema" / "x").write_text("")
    problems = verify(built).problems
    assert {p.path.rpartition("/log/")[2] for p in problems} == {f"rows/1/{SECOND}", "rows/0", "schema/x"}


def test_what_harms_nobody_is_a_note(built: Path) -> None:
    folder = built / "rows" / "1"
    (folder / ".1-2.tmp").write_bytes(b"half")
    write_segment(folder, START + 30, START + 40, [], part=(1, 2))
    write_segment(folder, START + 10, START + 18, [c for c in ROWS if c.table_id == 7])
    (folder / "head.json").unlink()
    write_json(built / "rows" / "0" / "head.json", {"resolved_ts": START + 2})
    report = verify(built)
    assert report.problems == []
    assert sorted(n.text.split()[0] for n in report.notes) == ["is", "lies", "other", "says", "was"]
    assert report.resolved_ts == START + 30
    assert report.rows == 5


def test_a_table_may_move_between_partitions_at_a_ddl(built: Path) -> None:
    write_segment(built / "rows" / "0", START + 20, START + 30, [put(7, 9, START + 26)])
    assert verify(built).problems == []


def test_a_declared_hot_table_may_be_spread(tmp_path: Path) -> None:
    rows = [put(7, h, START + 1 + h) for h in range(10)]
    spread = {"partitions": 2, "partition_of": lambda c: c.commit_ts, "snapshot": META}
    assert verify(build_log(tmp_path / "a", rows, **spread)).problems
    assert verify(build_log(tmp_path / "b", rows, split_tables=[7], **spread)).problems == []
    assert verify(build_log(tmp_path / "c", rows, affinity="key", **spread)).problems == []


def test_no_log_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="not a change log"):
        verify(tmp_path)
