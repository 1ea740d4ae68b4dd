"""How a capture is divided into groups: partitions, settings, spans."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.capture.table_changes import N, change, version
from tidemill.capture.config import DEFAULT_PARTITIONS, CaptureConfig
from tidemill.capture.groups.divide import divide
from tidemill.capture.groups.plan import address_for, groups_of
from tidemill.capture.tikv.regions.actions import Span
from tidemill.capture.tikv.tables import Moved, TableSpans
from tidemill.changelog.spread import partition_of
from tidemill.errors import ConfigError, LogError
from tidemill.process.places import host_for, is_here, local_cores


@given(st.integers(1, 64), st.data())
def test_partitions_are_divided_evenly_and_all_of_them(partitions: int, data: st.DataObject) -> None:
    groups = data.draw(st.integers(1, partitions))
    divided = divide(partitions, groups)
    assert len(divided) == groups
    assert sorted(itertools.chain(*divided)) == list(range(partitions))
    sizes = {len(one) for one in divided}
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("weights", "groups", "expected"),
    [
        ([10, 1, 8, 1], 2, [(0,), (1, 2, 3)]),
        ([9, 1, 9, 1], 2, [(0, 1), (2, 3)]),
        ([0, 0, 0, 0], 2, [(0, 2), (1, 3)]),
        ([5, 0, 0, 0], 4, [(0,), (1,), (2,), (3,)]),
        ([7, 0, 0, 0], 2, [(0,), (1, 2, 3)]),
    ],
)
def test_groups_have_about_as_many_tables(weights: list[int], groups: int, expected: list[tuple[int, ...]]) -> None:
    assert divide(len(weights), groups, weights) == expected


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=64), st.data())
def test_no_group_is_far_above_what_one_partition_forces(weights: list[int], data: st.DataObject) -> None:
    groups = data.draw(st.integers(1, len(weights)))
    divided = divide(len(weights), groups, weights)
    assert len(divided) == groups
    assert all(divided)
    assert sorted(itertools.chain(*divided)) == list(range(len(weights)))
    heaviest = max(sum(weights[p] for p in group) for group in divided)
    assert heaviest <= sum(weights) / groups + max(weights)


def test_a_store_without_conditional_put_is_refused_without_asking_it() -> None:
    with pytest.raises(LogError, match=r"gs://bucket/log: a capture in groups needs a log on a store with conditional PUT"):
        groups_of(CaptureConfig(pd=("h:1",), log="gs://bucket/log", workers=2))


@pytest.mark.parametrize("groups", [0, 5])
def test_more_groups_than_partitions_are_refused(groups: int) -> None:
    with pytest.raises(ConfigError, match=f"--workers {groups}: the log has 4 partitions"):
        divide(4, groups)


@pytest.mark.parametrize(
    ("master", "cores"),
    [(None, None), ("local", 1), ("local[3]", 3), ("local[3,5]", 3), ("spark://h:7077", None), ("local-cluster[2,1,1024]", None)],
)
def test_how_many_tasks_a_master_runs_here(master: str | None, cores: int | None) -> None:
    assert local_cores(master) == cores


def settings(**more: Any) -> CaptureConfig:
    return CaptureConfig(pd=("h:1",), log="/log", **more)


def test_the_number_of_workers() -> None:
    assert settings().worker_count(8) == 1
    assert settings(master="local[4]").worker_count(8) == 1, "on one machine nobody asked for more"
    assert settings(master="spark://h:7077").worker_count(8) == DEFAULT_PARTITIONS
    assert settings(master="spark://h:7077").worker_count(2) == 2
    assert settings(master="spark://h:7077", workers=1).worker_count(8) == 1
    assert settings(workers=3).worker_count(8) == 3
    for wrong in ({"workers": 0}, {"workers": 3, "master": "local[2]"}, {"workers": 20}):
        with pytest.raises(ConfigError, match="workers"):
            settings(**wrong)


def test_what_groups_are_told_of_the_settings() -> None:
    config = settings(workers=4, ca=Path("/ca.pem"), compression="zstd", row_budget=5, stuck_after=7.0)
    told = json.loads(json.dumps(config.of_group(4)))
    assert "/log" not in json.dumps(told), "the log's address may hold a password"
    theirs = CaptureConfig.from_coordinator(told, "s3://b/log", Path("/scratch"))
    assert theirs == CaptureConfig(
        pd=("h:1",), log="s3://b/log", data_dir=Path("/scratch"), ca=Path("/ca.pem"), compression="zstd", row_budget=5, stuck_after=7.0,
        memory_quota=config.memory_quota // 4, tikv_scans=config.tikv_scans // 4,
    )  # fmt: skip
    on_cluster = replace(config, master="spark://h:7077")
    assert on_cluster.of_group(4)["memory_quota"] == config.memory_quota, "each executor has its own memory"
    with pytest.raises(ConfigError, match="another version"):
        CaptureConfig.from_coordinator({**told, "transport": "pigeon"}, "", Path())


def test_where_groups_find_their_coordinator() -> None:
    assert address_for(settings(workers=2)) == ("127.0.0.1", 0)
    assert address_for(settings(control_addr="10.0.0.1:77")) == ("10.0.0.1", 77)
    assert address_for(settings(control_addr="host")) == ("host", 0)
    assert address_for(settings(control_addr="[::1]:5")) == ("::1", 5)
    assert host_for("spark://127.0.0.1:7077") == "127.0.0.1"
    assert host_for("k8s://https://127.0.0.1:6443") == "127.0.0.1"
    assert host_for("local-cluster[2,1,1024]") == "127.0.0.1"
    assert is_here(None)
    assert is_here("local[*]")
    assert not is_here("spark://localhost:7077")
    with pytest.raises(ConfigError, match="control-addr"):
        address_for(settings(control_addr="h:port"))


@dataclass
class Part:
    """The spans that one group asks for."""

    owned: tuple[int, ...]
    spans: dict[int, Span] = field(default_factory=dict)
    moves: list[Moved] = field(default_factory=list)

    def make(self) -> TableSpans:
        return TableSpans(
            N, lambda s: self.spans.update({s.id: s}), lambda i: self.spans.pop(i) and None, self.moves.append, owned=self.owned
        )


def test_groups_together_capture_what_one_process_does_and_each_sees_a_move_from_its_side() -> None:
    parts = [Part((0, 2)), Part((1,)), Part((3,))]
    whole = Part(tuple(range(N)))
    everybody = [(part, part.make()) for part in (whole, *parts)]
    table, other = version(45, 45, 100), version(48, 48)
    assert partition_of(45, N) != partition_of(48, N)
    swapped = version(45, 45, 48), version(48, 100)
    for _, spans in everybody:
        spans.follow([change(10, (), (table, other))], [5] * N)
        spans.follow([change(20, (table, other), swapped)], [10] * N)
    captured = [{(s.start, s.partition, s.checkpoint) for s in part.spans.values()} for part in parts]
    assert set().union(*captured) == {(s.start, s.partition, s.checkpoint) for s in whole.spans.values()}
    assert sum(map(len, captured)) == len(whole.spans), "nothing is captured twice"
    assert sum(len(spans) for part, spans in everybody[1:]) == len(everybody[0][1])
    for part, spans in everybody:
        ends = {(moved.old in part.owned, moved.new in part.owned) for moved in part.moves}
        assert (False, False) not in ends
        assert [m for m in whole.moves if {m.old, m.new} & set(part.owned)] == part.moves
        assert spans.label(100) == "d.t48 (100)", "a lock's table has a name, whoever captures it"
