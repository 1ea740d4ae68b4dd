"""`progress = "table"`: each log partition is delivered up to its own head, and what is promised of DDLs, order and resolved ts
still holds."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.changelog.logs import START, Change, changes_of, write_segment
from tests.support.delivery.deliveries import batch_driver, clock_of, settings
from tests.support.delivery.feeds import PARTITIONED, PLAIN, UNIQUE, Delivered, World, expected
from tests.support.delivery.saved import plan, saved
from tests.support.thorough import few_of
from tidemill.changefeed.feed_folder import FeedFolder
from tidemill.changefeed.replay import replay
from tidemill.changelog.reader import LogReader
from tidemill.config.file import parse_config
from tidemill.delivery.batch import BatchDriver
from tidemill.delivery.epoch_fence import Fence
from tidemill.delivery.inputs import log_source
from tidemill.delivery.position import Plan, Position, end_of, levelled, ranges_of
from tidemill.errors import ConfigError
from tidemill.spark.local import LocalRunner

PARTS = 3
Make = Callable[[str], BatchDriver]


def test_positions() -> None:
    assert Position.of([5, 5]) == Position(5)
    apart = Position.of([5, 9])
    assert (apart.ts, apart.at(0), apart.at(1), apart.at(7), apart.furthest) == (5, 5, 9, 5, 9)
    assert apart.covers(Position(5))
    assert not Position(6).covers(apart)
    assert not apart.covers(Position(6))
    assert Position(6).joined(apart) == Position.of([6, 9])
    assert apart.capped(7) == Position.of([5, 7])
    assert apart.capped(4) == Position(4)
    assert Position.from_dict(json.loads(json.dumps(apart.to_dict()))) == apart
    assert Position.from_dict({"ts": 3}) == Position(3)
    assert ranges_of(Position(5), Position(8)) == ()
    ranges = ranges_of(Position(5), apart)
    assert ranges == ((5, 5), (5, 9))
    assert end_of(5, ranges) == apart


def test_partitions_that_share_tables_go_together() -> None:
    assert levelled([5, 9, 7, 8], (0, 1, 2, 3)) == [5, 9, 7, 8]
    assert levelled([5, 9, 7, 8], (0, 1, 0, 1)) == [5, 8, 5, 8]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """A batch driver that runs its items here, into tmp_path/out."""
    with ExitStack() as stack:
        yield lambda log: stack.enter_context(batch_driver(tmp_path, log, LocalRunner()))


def set_head(log: str, folder: str, ts: int) -> None:
    (Path(log) / folder / "head.json").write_text(json.dumps({"resolved_ts": ts}))


@pytest.mark.slow
@pytest.mark.parametrize("seed", few_of(range(8), 3))
def test_partitions_that_stand_still_hold_back_no_others(make: Make, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads move at random, one stands still for long; whatever the batches are, each event comes once, in order, with DDLs in between."""
    monkeypatch.setattr(log_source, "MAX_BATCH_BYTES", random.Random(seed).choice((6000, 1 << 20)))
    rng = random.Random(seed)
    world = World.make(seed=seed)
    commits = sorted({c.commit_ts for c in world.rows})
    switches = sorted(rng.sample(commits[30:], 2))
    for table, ts in zip((PLAIN, UNIQUE), switches, strict=True):
        world.add_column(table, ts)
    log = world.log(tmp_path / "log", partitions=PARTS, segments=6)
    heads, stuck = [START] * PARTS, rng.randrange(PARTS)
    for p, head in enumerate(heads):
        set_head(log, f"rows/{p}", head)

    def barrier_above(ts: int) -> int:
        return next((barrier for barrier in switches if barrier > ts), world.end)

    driver, clock = make(log), clock_of(log, Position(START), by_table=True)
    delivered, batch, ahead = Position(START), 0, 0
    while delivered != Position(world.end):
        for p in range(PARTS):
            if p != stuck or min(heads[:p] + heads[p + 1 :]) >= barrier_above(delivered.ts) or rng.random() < 0.02:
                heads[p] = min(world.end, heads[p] + rng.randrange(40))
                set_head(log, f"rows/{p}", heads[p])
        end = clock.next(delivered)
        assert end.covers(delivered)
        assert all(end.at(p) <= heads[p] for p in range(PARTS))
        if end == delivered:
            continue
        assert end.furthest <= barrier_above(delivered.ts)
        report = driver.run(batch, delivered.ts, end.ts, ranges_of(delivered, end))
        assert report.end == end
        ahead += bool(end.parts) and report.stats.rows
        batch, delivered = batch + 1, end
    got = Delivered.read(tmp_path / "out")
    replay(log, settings(tmp_path / "again", partitions=2, mode="index-value"))
    assert got.events == Delivered.read(tmp_path / "again").events
    assert got.late == 0
    assert all(ts == sorted(set(ts)) for ts in got.resolved.values()), "each resolved ts once"
    assert ahead > 0


def test_a_partition_that_is_stuck_keeps_back_its_own_tables_alone(make: Make, tmp_path: Path) -> None:
    world = World.make(seed=3)
    log = world.log(tmp_path / "log", partitions=PARTS, segments=3)
    half = sorted(c.commit_ts for c in world.rows)[len(world.rows) // 2]
    stuck = PARTITIONED % PARTS
    set_head(log, f"rows/{stuck}", half)
    whole, end = (clock_of(log, Position(START), by_table=by).next(Position(START)) for by in (False, True))
    assert whole.furthest <= half
    assert (end.ts, end.at(stuck), end.furthest) == (half, half, world.end + 1)
    driver = make(log)
    driver.run(0, START, half, ranges_of(Position(START), end))
    got, all_of_it = Delivered.read(tmp_path / "out"), expected(world, "index-value", 2)
    until_half = expected(world, "index-value", 2, to_ts=half)
    for part, tables in all_of_it.items():
        for table, events in tables.items():
            wanted = until_half[part].get(table, []) if table % PARTS == stuck else events
            assert got.events[part].get(table, []) == wanted
    assert got.resolved == {0: [half], 1: [half]}, "a promise is for all tables"
    report = driver.run(1, half, half, ranges_of(end, end))
    assert report.stats.rows == 0
    assert Delivered.read(tmp_path / "out").resolved == {0: [half], 1: [half]}


def test_a_batch_that_passes_a_ddl_in_one_partition_is_refused(make: Make, tmp_path: Path) -> None:
    world = World.make(seed=3)
    switch = sorted(c.commit_ts for c in world.rows)[40]
    world.add_column(PLAIN, switch)
    driver = make(world.log(tmp_path / "log", partitions=PARTS))
    with pytest.raises(Exception, match="DDL barrier"):
        driver.run(0, START, switch - 1, ((START, switch - 1), (START, switch + 1), (START, switch)))


def test_a_feed_goes_back_to_one_ts(tmp_path: Path) -> None:
    """With `progress = "global"` again: partitions that are ahead wait for the others."""
    world = World.make(seed=5)
    log = world.log(tmp_path / "log", partitions=2, segments=4)
    third = sorted(c.commit_ts for c in world.rows)[len(world.rows) // 3]
    set_head(log, "rows/0", third)
    begin = Position.of([third - 10, world.end])
    clock = clock_of(log, begin)
    end = clock.next(begin)
    assert end == Position.of([third, world.end])
    assert clock.next(end) == end
    set_head(log, "rows/0", world.end)
    assert clock.next(end).ts > third


def test_the_batch_that_was_under_way_is_run_over_its_ranges(tmp_path: Path) -> None:
    world = World.make(seed=5)
    log = world.log(tmp_path / "log", partitions=2, segments=4)
    commits = sorted({c.commit_ts for c in world.rows})
    begin, planned = Position.of([commits[3], commits[9]]), Position.of([commits[5], commits[12]])
    assert clock_of(log, begin, first_end=planned, by_table=True).next(begin) == planned
    fence = Fence.at(tmp_path / "f")
    fence.advance(Plan(saved(begin), planned))
    after = Fence.at(tmp_path / "f")
    after.take()
    assert after.planned == (commits[3], commits[5])
    assert after.planned_ranges == ranges_of(begin, planned)
    after.advance(plan(7, 8))
    third = Fence.at(tmp_path / "f")
    third.take()
    assert (third.planned, third.planned_ranges) == ((7, 8), ())


def test_how_far_each_partition_is_outlives_the_process(tmp_path: Path) -> None:
    folder = FeedFolder(tmp_path, "f")
    assert folder.position() is None
    folder.save_checkpoint(5, (5, 9))
    assert FeedFolder(tmp_path, "f").position() == Position.of([5, 9])
    assert FeedFolder(tmp_path, "f").checkpoint() == 5
    FeedFolder(tmp_path, "f").claim("another driver", 99)
    assert FeedFolder(tmp_path, "f").position() == Position.of([5, 9])
    again = FeedFolder(tmp_path, "f")
    again.claim("yet another", 100)
    again.save_checkpoint(10)
    assert FeedFolder(tmp_path, "f").position() == Position(10)


def test_who_may_have_it() -> None:
    config = parse_config('progress = "table"')
    assert config.by_table
    assert config.given() == {}, "it may change at any start"
    config.sink_uri("kafka://b:9092/t?protocol=open-protocol")
    with pytest.raises(ConfigError, match="intervals of time"):
        config.sink_uri("file:///tmp/x?protocol=canal-json")
    with pytest.raises(ConfigError, match="global, table"):
        parse_config('progress = "tables"')


@pytest.mark.parametrize("by_table", [False, True])
@pytest.mark.parametrize("seed", few_of([1, 2], 1))
def test_a_log_that_grows_under_a_running_changefeed(make: Make, tmp_path: Path, seed: int, *, by_table: bool) -> None:
    """From 2 partitions to 3: the clock and the driver, which knew the log before, deliver every event once and in order."""
    rng = random.Random(seed)
    world = World.make(seed=seed)
    commits = sorted({c.commit_ts for c in world.rows})
    switch = commits[len(commits) // 2]
    parts = {before: world_log(world, tmp_path / f"log{before}", before) for before in (2, 3)}
    log = parts[2]
    for p in range(2):
        keep_rows(Path(parts[3]), Path(log), p, switch)
    new = Path(log) / "new"
    write_segment(
        new, START, world.end + 1, [row for row in _rows(next((Path(parts[3]) / "rows/2").glob("*.arrow"))) if row.commit_ts > switch]
    )
    heads = {f"rows/{p}": START for p in range(2)}
    for folder in heads:
        set_head(log, folder, START)
    set_head(log, "schema", switch)  # no folder passes it before log.json says what follows
    driver, clock = make(log), clock_of(log, Position(START), by_table=by_table)
    delivered, batch, grown = Position(START), 0, False
    while delivered != Position(world.end):
        for folder in heads:
            if rng.random() < 0.6:
                heads[folder] = min(world.end if grown else switch, heads[folder] + rng.randrange(40))
                set_head(log, folder, heads[folder])
        if not grown and min(heads.values()) == switch and rng.random() < 0.5:
            new.rename(Path(log) / "rows/2")
            identity = LogReader(log).identity
            (Path(log) / "log.json").write_text(
                replace(identity, format=2).grown(switch, 3).to_json().replace('"format": 3', '"format": 1')
            )
            set_head(log, "schema", world.end)
            heads["rows/2"], grown = switch, True
        end = clock.next(delivered)
        if end == delivered:
            continue
        assert delivered.ts >= switch or end.furthest <= switch
        driver.run(batch, delivered.ts, max(delivered.ts, end.ts), ranges_of(delivered, end))
        batch, delivered = batch + 1, end
    got = Delivered.read(tmp_path / "out")
    assert got.events == expected(world, "index-value", 2)
    assert got.late == 0


def world_log(world: World, folder: Path, partitions: int) -> str:
    return world.log(folder, partitions=partitions, segments=1)


def keep_rows(grown: Path, log: Path, partition: int, switch: int) -> None:
    """The partition's rows up to the switch as they were spread before, and above it as they are after."""
    (before,), (after,) = ((folder / f"rows/{partition}").glob("*.arrow") for folder in (log, grown))
    end = int(before.name[21:41])
    halves = [(begin, to, _rows(path)) for path, begin, to in ((before, START, switch), (after, switch, end))]
    before.unlink()
    for begin, to, rows in halves:
        write_segment(log / f"rows/{partition}", begin, to, rows)


def _rows(path: Path) -> list[Change]:
    with pa.OSFile(str(path)) as file:
        return changes_of(pa.ipc.open_file(file).read_all())
