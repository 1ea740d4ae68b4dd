"""Packs over a real session's DDLs: always what the snapshot says, small beside a base, loaded by path alone."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Set
from pathlib import Path

import pytest

from tests.support.changelog.logs import START, golden_log
from tests.support.delivery.feeds import KEYLESS, NAMES, PARTITION_IDS, PLAIN, UNIQUE, World
from tests.support.delivery.packs import OUTPUT, choose, count
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader
from tidemill.delivery.inputs import table_pack as packs
from tidemill.delivery.inputs.log_source import tables_with_rows
from tidemill.delivery.inputs.table_pack import Output, PackedTable, PackStore
from tidemill.errors import SinkUnavailable, TopicCollision
from tidemill.protocols.options import EncodingOptions
from tidemill.rules.dispatch import DispatchRule
from tidemill.tidb.schema.tracking.history import TableVersion


def test_every_pack_of_a_session_is_what_the_snapshot_says(tmp_path: Path) -> None:
    reader = LogReader(golden_log(tmp_path / "log"))
    history = load_history(reader)
    store = PackStore(tmp_path / "packs", OUTPUT, choose, count, ["topic"])
    stops = [history.start_ts, *history.barriers(history.start_ts, history.resolved_ts)]
    assert len(stops) > 250
    paths, sizes = [], []
    for ts in stops:
        snapshot = history.snapshot(ts)
        path = store.pack(snapshot)
        pack = packs.load(path)
        for physical, version in snapshot.by_physical.items():
            table = pack.table(physical)
            if choose(version) is None:
                assert table is None
                assert pack.knows(physical)
            else:
                assert table is not None
                assert (table.version.name, table.version.from_ts) == (version.name, version.from_ts)
                assert table.version.info == version.info
        assert all(pack.table(physical) is None and pack.knows(physical) for physical in snapshot.retired)
        assert not pack.knows(10**12)
        paths.append(path)
        sizes.append(Path(path).stat().st_size)
    assert len(set(paths)) < len(paths)  # DDLs without a change for us share a pack
    assert len(list((tmp_path / "packs").iterdir())) <= 2  # a base and what differs


def test_a_pack_beside_its_base_is_small(tmp_path: Path) -> None:
    world = World.make()
    world.add_column(PLAIN, world.end + 10)
    reader = LogReader(world.log(tmp_path / "log"))
    history = load_history(reader)
    store = PackStore(tmp_path / "packs", OUTPUT, choose, count)
    before = packs.load(store.pack(history.snapshot(world.end - 1)))
    path = store.pack(history.snapshot(world.end))
    after = packs.load(path)
    assert store.pack(history.snapshot(world.end)) == path
    old, new = before.table(PLAIN), after.table(PLAIN)
    assert old is not None
    assert new is not None
    assert len(new.version.info.columns) == len(old.version.info.columns) + 1
    assert before.table(PARTITION_IDS[0]) is after.table(PARTITION_IDS[0])  # what is compiled of it is kept
    assert after.table(KEYLESS) is None
    assert after.knows(KEYLESS)
    assert after.targets == (("topic", 0), ("topic", 1), ("topic", 2))
    assert after.first_target == {"topic": 0}


def test_new_ids_reach_the_pack_without_a_wanted_table(tmp_path: Path) -> None:
    world = World.make()
    reader = LogReader(world.log(tmp_path / "log"))
    history = load_history(reader)
    store = PackStore(tmp_path / "packs", OUTPUT, lambda version: None, count)
    assert packs.load(store.pack(history.snapshot(world.end))).table(PLAIN) is None
    assert all(packs.load(store.pack(history.snapshot(world.end))).knows(t) for t in (*PARTITION_IDS, PLAIN, KEYLESS) if t in NAMES)


def test_only_its_user_may_read_a_pack_which_has_passwords(tmp_path: Path) -> None:
    world = World.make()
    history = load_history(LogReader(world.log(tmp_path / "log")))
    path = PackStore(tmp_path / "packs", OUTPUT, choose, count).pack(history.snapshot(world.end))
    assert stat.S_IMODE(Path(path).stat().st_mode) & 0o077 == 0


def test_a_store_begins_with_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "1-1-1.pack").write_bytes(b"old")
    PackStore(tmp_path, OUTPUT, choose, count)
    assert list(tmp_path.iterdir()) == []


def test_topics_are_asked_for_once(tmp_path: Path) -> None:
    asked: list[Set[str]] = []

    def counting(topics: Set[str]) -> dict[str, int]:
        asked.append(set(topics))
        return dict.fromkeys(topics, 2)

    store = PackStore(tmp_path, OUTPUT, choose, counting, ["a"])
    assert store.targets == [("a", 0), ("a", 1)]
    assert store.partitions("b") == 2
    assert store.partitions("a") == 2
    assert asked == [{"a"}, {"b"}]


@pytest.mark.parametrize("zone", ["+08:00", "Asia/Shanghai"])
def test_zones_survive_the_file(tmp_path: Path, zone: str) -> None:
    from tidemill.delivery.zone import parse_zone

    world = World.make(transactions=3)
    history = load_history(LogReader(world.log(tmp_path / "log")))
    output = Output(EncodingOptions(max_message_bytes=1 << 20), parse_zone(zone))
    store = PackStore(tmp_path / "packs", output, choose, count)
    assert packs.load(store.pack(history.snapshot(world.end))).output == output


class Schemas:
    """Counts what it is asked; away at one call, if wanted; refuses tables by name."""

    def __init__(self, away_at: int = 0, refused: Set[str] = frozenset()) -> None:
        self.asked: list[tuple[str, str, int]] = []
        self.away_at, self.refused = away_at, set(refused)
        self.tables: list[tuple[tuple[str, str], str]] = []

    def register(self, version: TableVersion, topic: str) -> tuple[int, int]:
        self.asked.append((version.table, topic, len(version.info.columns)))
        if len(self.asked) == self.away_at:
            raise SinkUnavailable("away")
        return -1, 100 + len(self.asked)

    def check(self, ts: int, tables: Iterable[tuple[tuple[str, str], str]]) -> None:
        self.tables = list(tables)
        if any(name in self.refused for (_, name), _ in self.tables):
            raise TopicCollision("no")


def test_only_tables_with_rows_are_registered_each_version_once(tmp_path: Path) -> None:
    world = World.make()
    world.add_column(PLAIN, world.end + 10)
    history = load_history(LogReader(world.log(tmp_path / "log")))
    schemas = Schemas()
    store = PackStore(tmp_path / "packs", OUTPUT, choose, count, schemas=schemas)
    first, second = history.snapshot(world.end - 1), history.snapshot(world.end)
    assert packs.load(store.pack(first, lambda ids: frozenset())).table(PLAIN).schema_ids is None  # type: ignore[union-attr]
    path = store.pack(first, lambda ids: frozenset({PARTITION_IDS[0], PARTITION_IDS[1], PLAIN}))
    pack = packs.load(path)
    assert [pack.table(t).schema_ids for t in (PLAIN, *PARTITION_IDS)] == [(-1, 101), (-1, 102), (-1, 102)]  # type: ignore[union-attr]
    assert pack.table(UNIQUE).schema_ids is None  # type: ignore[union-attr]
    assert store.pack(first, lambda ids: {PLAIN} & ids) == path
    assert [name for name, *_ in schemas.asked] == [NAMES[PLAIN], "t3"]
    pack = packs.load(store.pack(second, lambda ids: ids))
    assert pack.table(PLAIN).schema_ids == (-1, 103)  # type: ignore[union-attr]
    assert schemas.asked == [("t1", "topic", 3), ("t3", "topic", 3), ("t1", "topic", 4), ("t2", "topic", 3)]


def test_what_was_registered_before_a_refusal_is_in_the_next_pack(tmp_path: Path) -> None:
    history = load_history(LogReader(World.make().log(tmp_path / "log")))
    schemas = Schemas(away_at=2)
    store = PackStore(tmp_path / "packs", OUTPUT, choose, count, schemas=schemas)
    snapshot = history.snapshot(history.resolved_ts)
    with pytest.raises(SinkUnavailable):
        store.pack(snapshot)
    pack = packs.load(store.pack(snapshot))
    assert [name for name, *_ in schemas.asked] == ["t1", "t2", "t2", "t3"]
    assert [pack.table(t).schema_ids for t in (PLAIN, UNIQUE)] == [(-1, 101), (-1, 103)]  # type: ignore[union-attr]


def test_topics_are_made_after_the_tables_are_agreed_to(tmp_path: Path) -> None:
    history = load_history(LogReader(World.make().log(tmp_path / "log")))
    made: list[Set[str]] = []

    def making(topics: Set[str]) -> dict[str, int]:
        made.append(set(topics))
        return dict.fromkeys(topics, 1)

    schemas = Schemas(refused={"t2"})
    store = PackStore(tmp_path / "packs", OUTPUT, lambda v: PackedTable(v, f"of-{v.table}", DispatchRule()), making, schemas=schemas)
    for _ in range(2):
        with pytest.raises(TopicCollision):
            store.follow(history.snapshot(history.resolved_ts))
    assert made == []
    schemas.refused.clear()
    store.follow(history.snapshot(history.resolved_ts))
    assert made == [{"of-t1", "of-t2", "of-t3", "of-t4"}]
    assert dict(schemas.tables) == {("app", name): f"of-{name}" for name in NAMES.values()}


def test_tables_with_rows_of_an_interval_are_found_in_the_files(tmp_path: Path) -> None:
    world = World.make()
    reader = LogReader(world.log(tmp_path / "log", segments=4))
    chains = [part for i in reader.chain(0, START, world.end) for part in i.parts]
    every = {PLAIN, UNIQUE, KEYLESS, *PARTITION_IDS, 10**9}
    for at in (START, world.rows[20].commit_ts, world.rows[-1].commit_ts - 1):
        for to in (at, world.rows[25].commit_ts, world.end):
            truth = {row.table_id for row in world.rows if at < row.commit_ts <= to}
            assert tables_with_rows([chains], at, to, every) == truth
            assert tables_with_rows([chains], at, to, {UNIQUE, 5}) == truth & {UNIQUE}
