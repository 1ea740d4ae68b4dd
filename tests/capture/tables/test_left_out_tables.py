"""EXCHANGE PARTITION with tables that the capture rules leave out: a partition's rows go on where its next table is."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.support.capture.captures import partition_changes
from tests.support.simulation import simulator
from tidemill.capture.rules import wants_of
from tidemill.capture.tikv.tables import Moved, TableSpans
from tidemill.changelog.log_format import CaptureRules
from tidemill.changelog.reader import LogReader
from tidemill.changelog.spread import partition_of
from tidemill.tidb.keys import record_key

N = 3
PARTED = "(id int primary key) partition by range (id) (partition p0 values less than (100), partition p1 values less than maxvalue)"
BETWEEN = {
    "to another table": [
        "create table outstage (id int primary key)",
        "alter table orders exchange partition p0 with table outstage",
        "alter table archive exchange partition p0 with table outstage",
        "insert into archive values (7)",
    ],
    "back": [
        "create table keep (id int primary key)",
        "alter table orders exchange partition p0 with table keep",
        "rename table keep to outkeep",
        "alter table orders exchange partition p0 with table outkeep",
        "insert into orders values (7)",
    ],
}


class Simulator(simulator.Simulator):
    """Captures some tables only."""

    def verify(self) -> None:
        self.heads = self._heads()


@pytest.mark.parametrize("lags", [False, True], ids=["live", "behind"])
@pytest.mark.parametrize("way", BETWEEN)
def test_a_partition_that_a_left_out_table_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, lags: bool) -> None:
    """`behind`: a region of the first table sends no resolved ts meanwhile, so that its spans are still there at the end."""
    left: list[Moved] = []
    wants = wants_of(CaptureRules(from_ts=1, rules=("*.*", "!test.out*")))
    monkeypatch.setattr(simulator, "TableSpans", partial(TableSpans, wants=wants, left=left.append))
    sim = Simulator(tmp_path, 1, stores=1, partitions=N)
    tables = ["orders", "filler0", "filler1", "archive"]
    for table in tables:
        sim.session.execute(f"create table {table} {'(id int primary key)' if 'filler' in table else PARTED}")
    sim.begin()
    sim.catch_up()
    found = {version.table: version for version in sim.history.snapshot(sim.history.resolved_ts).tables.values()}
    part, other = found["orders"].physical_ids
    home, target = partition_of(found["orders"].table_id, N), partition_of(found["archive"].table_id, N)
    assert home != target
    if lags:
        sim.cluster.split([record_key(other, 0)[:9]])
        sim.catch_up()
        sim.frozen = {region.id for region in sim.cluster.regions if region.holds(record_key(other, 1000))}
    for statement in BETWEEN[way]:
        sim.session.execute(statement)
        for _ in range(4):
            sim.settle()
            sim.cluster.tick()
            sim.settle()
            sim.seal()
            for moved in left:
                sim.receiver.call(partial(sim.receiver.moved_for_good, moved.old, moved.physical_id, moved.ts))
            left.clear()
            sim.pass_time(1.0)
    sim.frozen = set()
    sim.catch_up()
    reader, heads = LogReader(tmp_path / "log"), sim._heads()
    rows = [p for p in range(N) for row in partition_changes(reader, p, reader.identity.start_ts, heads[p]) if row.table_id == part]
    assert rows == [home if way == "back" else target]
    assert sim.failures == []
    sim.kill()
