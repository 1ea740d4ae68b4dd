"""Event filters, column selectors and splits by dispatched columns in replays, against plain predicates over the same rows."""

from __future__ import annotations

import base64
import csv
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.changelog.logs import START, Change
from tests.support.delivery.feeds import (
    KEYLESS,
    NAMES,
    PARTITION_IDS,
    PARTITIONED,
    PLAIN,
    UNIQUE,
    Delivered,
    World,
    expected,
    logical_id,
)
from tests.support.schema.tables import column, table
from tidemill.changefeed.replay import replay
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader
from tidemill.config.file import ChangefeedConfig, parse_config
from tidemill.config.uri import parse_sink_uri
from tidemill.delivery.batch import BatchDriver
from tidemill.delivery.epoch_fence import Fence
from tidemill.delivery.inputs.log_source import LogSource
from tidemill.delivery.inputs.table_pack import PackStore
from tidemill.delivery.inputs.table_router import Settings, SinkEvents, TableRouter
from tidemill.delivery.task import chunker
from tidemill.delivery.task.row_filter import RowFilters
from tidemill.errors import ConfigError, MalformedRow
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord, row_array
from tidemill.protocols.open.encode import OpenTable
from tidemill.rules.dispatch import DispatchMode, DispatchRule, partition
from tidemill.rules.event_filter import RowFilter
from tidemill.rules.selectors import without
from tidemill.sinks.spec import open_driver_sink
from tidemill.spark.local import LocalRunner
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows.reader import RowReader
from tidemill.tidb.rows.write import encode_row_v2
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion


@pytest.fixture(autouse=True)
def _tiny_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several chunks, and a transaction that takes many."""
    monkeypatch.setattr(chunker.Chunker.__init__, "__defaults__", (16, 32 << 20))


def delivered(world: World, folder: Path, toml: str, *, partitions: int = 1) -> Delivered:
    config = parse_config(toml)
    uri = f"messages://{folder / 'out'}?protocol=open-protocol&partition-num={partitions}"
    settings = Settings("test", config.sink_uri(uri), config, UTC)
    replay(world.log(folder / "log", partitions=2, segments=2), settings)
    return Delivered.read(folder / "out")


Cells = tuple[Any, ...] | None
Predicate = Callable[[int, Cells, Cells, Change], bool]
"""Is a change left out, by its table, the cells (id, u, text) before and after, and the change itself?"""


def kept(world: World, left_out: Predicate) -> World:
    readers = {t: RowReader(TableInfo.from_json(i), UTC) for t, i in world.infos.items()}

    def stays(c: Change) -> bool:
        table = logical_id(c.table_id)
        images = (readers[table].read(c.key, v) if v is not None else None for v in (c.old_value, c.value))
        return not left_out(table, *images, c)

    return replace(world, rows=[c for c in world.rows if stays(c)])


def _update(before: Cells, after: Cells) -> bool:
    return before is not None and after is not None


CASES: dict[str, tuple[str, Predicate]] = {
    "kinds": (
        "matcher = ['app.t1', 'app.t3']\nignore-event = ['insert', 'delete', 'all ddl']",
        lambda t, old, new, c: t in (PLAIN, PARTITIONED) and not _update(old, new),
    ),
    "all changes": ("matcher = ['*.*', '!app.t2']\nignore-event = ['all dml']", lambda t, old, new, c: t != UNIQUE),
    "insert values": (
        "matcher = ['app.*']\nignore-insert-value-expr = 'u = 1 or text like \"x%\"'",
        lambda t, old, new, c: old is None and new is not None and (new[1] == 1 or new[2].startswith(b"x")),
    ),
    "update values": (
        "matcher = ['app.t2', 'app.t3']\nignore-update-new-value-expr = 'u > 2'\nignore-update-old-value-expr = 'u is null'",
        lambda t, old, new, c: (
            t in (UNIQUE, PARTITIONED) and old is not None and new is not None and ((new[1] is not None and new[1] > 2) or old[1] is None)
        ),
    ),
    "delete values": (
        "matcher = ['*.*']\nignore-delete-value-expr = 'id % 2 = 0 and (u in (1, 2) or text = \"\")'",
        lambda t, old, new, c: new is None and old is not None and old[0] % 2 == 0 and (old[1] in (1, 2) or old[2] == b""),
    ),
    "unchanged": (
        "matcher = ['app.t1', 'app.t2']\nignore-update-only-columns = ['text', 'nothing']",
        lambda t, old, new, c: t in (PLAIN, UNIQUE) and old is not None and new is not None and old[1] == new[1],
    ),
    "unique column listed": (
        "matcher = ['app.t2']\nignore-update-only-columns = ['text', 'u']",
        lambda t, old, new, c: t == UNIQUE and old is not None and new is not None and old[1] == new[1],
    ),
    "two rules": (
        "matcher = ['app.t1']\nignore-event = ['delete']\n"
        "[[filter.event-filters]]\nmatcher = ['app.*']\nignore-update-only-columns = ['u']\n"
        "[[filter.event-filters]]\nmatcher = ['app.t1']\nignore-update-only-columns = ['text']",
        lambda t, old, new, c: (
            (t == PLAIN and new is None)
            or (_update(old, new) and old[2] == new[2] and (t != UNIQUE or old[1] == new[1]))  # type: ignore[index]
            or (t == PLAIN and _update(old, new) and old[1] == new[1])  # type: ignore[index]
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_are_left_out(tmp_path: Path, name: str) -> None:
    toml, left_out = CASES[name]
    world = World.make(seed=3, huge=60)
    rest = kept(world, left_out)
    assert 0 < len(rest.rows) < len(world.rows)
    got = delivered(world, tmp_path, f"[[filter.event-filters]]\n{toml}", partitions=2)
    assert got.events == expected(rest, "default", 2, to_ts=world.end)
    assert got.resolved == {p: [world.end + 1] for p in range(2)}


def test_whole_transactions_are_left_out(tmp_path: Path) -> None:
    world = World.make(seed=3)
    starts = sorted({c.start_ts for c in world.rows})[::3]
    rest = kept(world, lambda t, old, new, c: c.start_ts in starts)
    got = delivered(world, tmp_path, f"[filter]\nignore-txn-start-ts = {starts}")
    assert got.events == expected(rest, "default", 1, to_ts=world.end)


def test_a_filter_that_does_not_fit_ends_the_delivery_before_it_begins(tmp_path: Path) -> None:
    world = World.make(transactions=3)
    with pytest.raises(ConfigError, match=r"event filter for app\.t1: 'uu = 1': there is no column 'uu'; did you mean `u`"):
        delivered(world, tmp_path, "[[filter.event-filters]]\nmatcher = ['*.*']\nignore-insert-value-expr = 'uu = 1'")


def test_a_number_out_of_range_names_the_row(tmp_path: Path) -> None:
    world = World.make(transactions=20)
    with pytest.raises(MalformedRow, match=r"event filter: table app\.t\d, key 74[0-9a-f]+, commit_ts \d+: .* out of range"):
        delivered(world, tmp_path, "[[filter.event-filters]]\nmatcher = ['*.*']\nignore-insert-value-expr = 'id * 9223372036854775807 > 1'")


# Column selectors


def test_columns_are_left_out_of_messages_not_of_routing(tmp_path: Path) -> None:
    """The unique column `u` still splits updates, though no message has it."""
    world = World.make(seed=5)
    toml = "[[sink.column-selectors]]\nmatcher = ['app.t1', 'app.t2']\ncolumns = ['*', '!u']"
    got = delivered(world, tmp_path, toml)
    shown = {t: without(TableInfo.from_json(i), {2}) if t in (PLAIN, UNIQUE) else TableInfo.from_json(i) for t, i in world.infos.items()}
    encoders = {t: OpenTable("app", NAMES[t], info, UTC) for t, info in shown.items()}
    whole = expected(world, "default", 1)[0]
    seen = {t: [key for key, _ in events] for t, events in whole.items()}
    assert {t: [key for key, _ in events] for t, events in got.events[0].items()} == seen
    changes = [c for c in world.rows if c.table_id == PLAIN and (c.value or c.old_value)]
    in_order = [c for _, txn in groupby(changes, key=lambda c: (c.commit_ts, c.start_ts)) for c in sorted(txn, key=_kind_and_key)]
    assert got.events[0][PLAIN] == [encoders[PLAIN].row(c.key, c.value, c.old_value, c.commit_ts) for c in in_order]
    assert all(b'"u":{"t"' not in value for t in (PLAIN, UNIQUE) for _, value in got.events[0][t])
    assert all(b'"u":{"t"' in value for _, value in got.events[0][PARTITIONED])


def _kind_and_key(change: Change) -> tuple[int, bytes]:
    return (0 if change.value is None else 2 if change.old_value is None else 1), change.key


@pytest.mark.parametrize("protocol", ["canal-json", "simple", "csv"])
def test_columns_are_left_out_in_every_protocol(tmp_path: Path, protocol: str) -> None:
    world = World.make(seed=5, transactions=30)
    config = parse_config("[[sink.column-selectors]]\nmatcher = ['*.*']\ncolumns = ['*', '!U']")
    sink = config.sink_uri(f"messages://{tmp_path / 'out'}?protocol={protocol}")
    replay(world.log(tmp_path / "log"), Settings("test", sink, config, UTC))
    values = [base64.b64decode(json.loads(line)["value"] or "") for line in (tmp_path / "out").read_text().splitlines()]
    if protocol == "csv":
        lines = [line for value in values for line in csv.reader(value.decode().splitlines())]
        assert {len(line) for line in lines} == {3 + 2}, "operation, table, schema; id, text"
        return
    found = [json.loads(value) for value in values]
    images = [image for m in found for image in (m.get("data"), m.get("old")) if image]
    rows = [row for image in images for row in (image if isinstance(image, list) else [image])]
    assert len(rows) > 20
    assert {frozenset(row) for row in rows} == {frozenset({"id", "text"})}


def test_a_dispatched_column_stays(tmp_path: Path) -> None:
    toml = """
    [[sink.dispatchers]]
    matcher = ["app.t1"]
    partition = "columns"
    columns = ["u"]
    [[sink.column-selectors]]
    matcher = ["app.*"]
    columns = ["*", "!u"]
    """
    with pytest.raises(ConfigError, match=r"column selector for app\.t1: column 'u' cannot be left out, the dispatcher needs it"):
        delivered(World.make(transactions=3), tmp_path, toml, partitions=2)


# Dispatch by columns


@pytest.mark.parametrize("split", [False, True])
def test_updates_are_split_by_dispatched_columns_if_asked(tmp_path: Path, split: bool) -> None:
    """The rows of t1 go by the column u, which is not a key: without a split an update goes to its new partition as a whole."""
    world = World.make(seed=7)
    toml = f"""
    sink.split-on-dispatch-key = {str(split).lower()}
    [[sink.dispatchers]]
    matcher = ["app.t1"]
    partition = "columns"
    columns = ["u"]
    """
    got = delivered(world, tmp_path, toml, partitions=3)
    rule = DispatchRule(DispatchMode.COLUMNS, columns=("u",))
    version = TableVersion("app", 500, TableInfo.from_json(world.infos[PLAIN]), (), 0)
    table = OpenTable("app", "t1", version.info, UTC)
    want: dict[int, list[tuple[bytes, bytes]]] = {}
    split_rows = 0
    changes = [c for c in world.rows if c.table_id == PLAIN and (c.value or c.old_value)]
    for _, transaction in groupby(changes, key=lambda c: (c.commit_ts, c.start_ts)):
        halves: list[Change] = []
        for c in transaction:
            images = [table.reader.read(c.key, v) if v is not None else None for v in (c.old_value, c.value)]
            if split and images[0] is not None and images[1] is not None and images[0][1] != images[1][1]:
                halves += [c._replace(value=None), c._replace(old_value=None)]
                split_rows += 1
            else:
                halves.append(c)
        for c in sorted(halves, key=_kind_and_key):
            before, after = (table.reader.read(c.key, v) if v is not None else None for v in (c.old_value, c.value))
            place = partition(rule, version, before, after, c.commit_ts, 3)
            want.setdefault(place, []).append(table.row(c.key, c.value, c.old_value, c.commit_ts))
    assert {p: tables[PLAIN] for p, tables in got.events.items() if PLAIN in tables} == want
    assert bool(split_rows) == split


def test_an_index_by_name(tmp_path: Path) -> None:
    """index-value:u hashes the unique column, by its index's name in any case."""
    world = World.make(seed=8)
    toml = "[[sink.dispatchers]]\nmatcher = ['app.t2']\npartition = 'index-value'\nindex = 'U'"
    got = delivered(world, tmp_path, toml, partitions=4)
    rule = DispatchRule(DispatchMode.INDEX_VALUE, index="U")
    version = TableVersion("app", 500, TableInfo.from_json(world.infos[UNIQUE]), (), 0)
    reader = RowReader(version.info, UTC)
    places = {partition(rule, version, None, reader.read(c.key, c.value), 0, 4) for c in world.rows if c.table_id == UNIQUE and c.value}
    assert {p for p, tables in got.events.items() if UNIQUE in tables} == places
    wrong = "[[sink.dispatchers]]\nmatcher = ['app.*']\npartition = 'index-value'\nindex = 'uk'"
    with pytest.raises(ConfigError, match=r"dispatcher for app\.t1: there is no index 'uk'"):
        delivered(world, tmp_path / "again", wrong, partitions=4)


# Settings that do not fit


def test_a_table_may_be_made_before_it_is_as_the_settings_expect(tmp_path: Path) -> None:
    """t1 has no column `more` at first: its first row ends the delivery, unless none comes before the column does."""
    world = World.make(seed=6)
    commits = sorted({c.commit_ts for c in world.rows})
    world.add_column(PLAIN, commits[30])
    toml = "[[sink.dispatchers]]\nmatcher = ['app.t1']\npartition = 'columns'\ncolumns = ['more']"
    with pytest.raises(ConfigError, match=r"dispatcher for app\.t1: there is no column 'more'"):
        delivered(world, tmp_path / "start", toml, partitions=2)

    late = replace(world, rows=[c for c in world.rows if c.table_id != PLAIN or c.commit_ts > commits[30]])
    config = parse_config(toml)
    assert delivered_leniently(late, tmp_path / "late", config)
    with pytest.raises(ConfigError, match=r"there is no column 'more'"):
        delivered_leniently(world, tmp_path / "early", config)


def delivered_leniently(world: World, folder: Path, config: ChangefeedConfig) -> int:
    """Rows, as a changefeed delivers them that was running before."""
    sink = parse_sink_uri("blackhole:///?partition-num=2")
    chosen = Settings("test", sink, config, UTC)
    reader = LogReader(world.log(folder / "log"))
    router = TableRouter(chosen)
    packs = PackStore(folder / "packs", chosen.output, router.table, lambda topics: dict.fromkeys(topics, 2), ["t"], lenient=True)
    opened = open_driver_sink(sink.text)
    driver = BatchDriver(
        feed="test",
        source=LogSource(reader, load_history(reader), packs, router.ddl, router.rows),
        events=SinkEvents(chosen, router, packs, opened),
        sink=opened,
        sink_uri=sink.text,
        runner=LocalRunner(),
        fence=Fence.at(folder),
    )
    rows, at = 0, START
    for batch, to_ts in enumerate([*load_history(reader).barriers(START, world.end), world.end]):
        rows += driver.run(batch, at, to_ts).stats.rows
        at = to_ts
    return rows


# The filter alone


def test_without_filters_rows_are_not_touched() -> None:
    info = TableInfo.from_json(World().infos[PLAIN])
    assert not RowFilters([None], [TableProgram("app", "t1", info)], frozenset())


def test_rows_of_other_tables_pass() -> None:
    infos = [TableInfo.from_json(World().infos[t]) for t in (PLAIN, KEYLESS)]
    programs = [TableProgram("app", name, info) for name, info in zip(("t1", "t4"), infos, strict=True)]
    filters = RowFilters([None, RowFilter(kinds=frozenset({2}))], programs, frozenset())
    change = World.make(transactions=40)
    records = [RawRecord(c.key, c.value, c.old_value, c.start_ts, c.commit_ts, int(c.table_id == KEYLESS)) for c in change.rows]
    rows, buffer = row_array(records)
    left = filters.kept(rows)
    assert len(left) == sum(not (r.table == 1 and r.value is not None and r.old_value is not None) for r in records)
    assert filters.kept(left) is left
    assert isinstance(buffer, np.ndarray)
    assert set(PARTITION_IDS) & {c.table_id for c in change.rows}


def test_conditions_on_numbers_near_their_limits() -> None:
    """A DECIMAL of 38 digits is computed exactly; where TiDB has no result the error says which row it is."""
    info = table([column(MySQLType.LONGLONG, name="id"), column(MySQLType.NEWDECIMAL, name="n", Flen=38, Decimal=4)], pk_is_handle=True)
    program = TableProgram("app", "t", info)
    record = RawRecord(record_key(100, 1), encode_row_v2([1, "1234567890123456789012345678901234.5678"], info), None, 5, 4, 0)
    rows, buffer = row_array([record])

    def left_out(text: str) -> bool:
        return not len(RowFilters([RowFilter(insert=(text,))], [program], frozenset()).kept(rows))

    for text in ("n * 1 = n", "n + 0.0000000001 > n", "-n + n = 0", "cast(n as signed) = 9223372036854775807", "floor(n) < n"):
        assert left_out(text), text
    assert left_out(f"n % 7 = {1234567890123456789012345678901234 % 7}.5678")
    with pytest.raises(MalformedRow, match=r"event filter: table app\.t, key 74[0-9a-f]+, commit_ts \d+: .* out of range"):
        left_out("n div 3 > 1")
    assert isinstance(buffer, np.ndarray)
