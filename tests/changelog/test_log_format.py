"""Names, log.json and chains."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.changelog import log_format
from tidemill.changelog.log_format import Affinity, CaptureRules, Interval, LogIdentity, SegmentName, Source
from tidemill.errors import LogCorrupt, LogError
from tidemill.tso import MAX_TS

TS = st.integers(0, MAX_TS)


@given(st.tuples(TS, TS).filter(lambda t: t[0] < t[1]), st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n))))
def test_segment_names_parse_to_what_they_were_made_of(times: tuple[int, int], part: tuple[int, int]) -> None:
    name = SegmentName(*times, *part)
    assert log_format.parse_segment(str(name)) == name


def test_names_are_padded_to_twenty_digits() -> None:
    assert str(SegmentName(1, 2)) == "00000000000000000001-00000000000000000002.arrow"
    assert str(SegmentName(1, 2, 3, 4)) == "00000000000000000001-00000000000000000002.3of4.arrow"
    assert log_format.snapshot_name(7) == "snapshot-00000000000000000007.arrow"
    assert log_format.parse_snapshot("snapshot-00000000000000000007.arrow") == 7


@pytest.mark.parametrize(
    "name", ["head.json", "1-2.arrow", "snapshot-00000000000000000007.arrow", ".12-3.tmp", f"{1:020d}-{2:020d}.parquet", ""]
)
def test_other_files_are_no_segments(name: str) -> None:
    assert log_format.parse_segment(name) is None


@pytest.mark.parametrize("name", [f"{2:020d}-{1:020d}.arrow", f"{2:020d}-{2:020d}.arrow", f"{1:020d}-{2:020d}.3of2.arrow"])
def test_names_that_cannot_be_meant_are_refused_with_their_folder(name: str) -> None:
    with pytest.raises(LogCorrupt, match="rows/1/"):
        log_format.parse_segment(name, "rows/1")


def test_identity_keeps_all_fields_and_those_of_later_versions() -> None:
    text = json.dumps(
        {
            "format": 1,
            "source": "binlog",
            "cluster_id": "7051",
            "start_ts": 12,
            "partitions": 3,
            "affinity": "key",
            "partition_by": "crc32(table)",
            "split_tables": [71, "a.b"],
            "capture_rules": [{"from_ts": 12, "rules": ["a.*"]}, {"from_ts": 90, "rules": ["a.*", "!a.c"]}],
            "upstream_versions": [{"from_ts": 12, "version": "8.5.1"}, {"from_ts": 50, "version": "9.0.0"}],
            "late_rows": [[20, 30], [35, 50]],
            "compaction": {"of": "tomorrow"},
        }
    )
    identity = LogIdentity.from_json(text)
    assert identity.source is Source.BINLOG
    assert identity.affinity is Affinity.KEY
    assert identity.capture_rules[1] == CaptureRules(90, ("a.*", "!a.c"))
    assert json.loads(identity.to_json()) == json.loads(text)
    assert LogIdentity.from_json(identity.to_json()) == identity
    assert identity.rules_at(11) is None
    assert identity.rules_at(89) == ("a.*",)
    assert identity.rules_at(90) == ("a.*", "!a.c")
    assert [identity.has_late_rows(*one) for one in ((12, 20), (12, 21), (29, 35), (30, 35), (30, 36))] == [False, True, True, False, True]
    assert identity.moved_to(40).late_rows == ((35, 50),)
    assert identity.moved_to(40).extra == {"compaction": {"of": "tomorrow"}}


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"format": 5}, LogError, "format 5; this Tidemill reads formats 1 to 4"),
        ({"format": True}, LogCorrupt, "format is true"),
        ({"format": None}, LogCorrupt, "format is null"),
        ({"source": "mysql"}, LogCorrupt, "mysql"),
        ({"partitions": 0}, LogCorrupt, "log.json: partitions is 0, not a whole number from 1 to 65536"),
        ({"partitions": "4"}, LogCorrupt, 'partitions is "4", not a whole number'),
        ({"start_ts": -1}, LogCorrupt, "-1"),
        ({"affinity": "row"}, LogCorrupt, "row"),
        ({"capture_rules": [{"rules": []}]}, LogCorrupt, "from_ts"),
    ],
)
def test_a_wrong_identity_is_refused_by_name(change: dict[str, object], error: type[LogError], text: str) -> None:
    fields = {"format": 1, "source": "tikv", "cluster_id": "1", "start_ts": 1, "partitions": 1, "affinity": "table", **change}
    with pytest.raises(error, match=text):
        LogIdentity.from_json(json.dumps(fields), "log.json")


def test_json_that_is_none_names_the_file() -> None:
    with pytest.raises(LogCorrupt, match=r"here/log\.json"):
        LogIdentity.from_json(b"{", "here/log.json")
    with pytest.raises(LogCorrupt, match=r"here/log\.json"):
        LogIdentity.from_json(b"[]", "here/log.json")
    with pytest.raises(LogCorrupt, match="cluster_id"):
        LogIdentity.from_json(b'{"format":1,"source":"tikv"}')


@pytest.mark.parametrize("feed", ["", "a/b", "../x", ".hidden", "a b", "x" * 129])
def test_feeds_whose_id_is_no_file_name_are_refused(feed: str) -> None:
    with pytest.raises(LogError):
        log_format.feed_name(feed)


# ---- chains


def chain_of(names: list[SegmentName]) -> log_format.Chain:
    return log_format.link(*log_format.complete_intervals(names, lambda name: f"rows/0/{name}"))


@st.composite
def whole_chains(draw: st.DrawFn) -> tuple[list[SegmentName], list[tuple[int, int]]]:
    """Files of a whole chain, some intervals in parts, some joined by compaction with the joined ones still there."""
    steps = draw(st.lists(st.integers(1, 50), min_size=1, max_size=20))
    ends = [100]
    for step in steps:
        ends.append(ends[-1] + step)
    names: list[SegmentName] = []
    expected: list[tuple[int, int]] = []
    i = 0
    while i < len(steps):
        size = draw(st.integers(1, min(5, len(steps) - i)))
        if size > 1:
            names.append(SegmentName(ends[i], ends[i + size]))
            expected.append((ends[i], ends[i + size]))
            left = draw(st.sets(st.integers(0, size - 1)))
            names += [SegmentName(ends[i + k], ends[i + k + 1]) for k in left]
            if size > 2 and draw(st.booleans()):  # an earlier, smaller compaction
                names.append(SegmentName(ends[i], ends[i + size - 1]))
        else:
            parts = draw(st.integers(1, 3))
            names += [SegmentName(ends[i], ends[i + 1], k, parts) for k in range(1, parts + 1)]
            expected.append((ends[i], ends[i + 1]))
        i += size
    return draw(st.permutations(sorted(set(names)))), expected


@given(whole_chains())
def test_a_whole_chain_is_found_in_any_order_of_its_files(made: tuple[list[SegmentName], list[tuple[int, int]]]) -> None:
    names, expected = made
    chain = chain_of(names)
    assert chain.fault is None
    assert [(i.from_ts, i.to_ts) for i in chain.intervals] == expected
    counted = sum(len(i.parts) for i in (*chain.intervals, *chain.inside)) + len(chain.incomplete)
    assert counted == len(names)


@given(whole_chains(), st.data())
def test_an_interval_taken_out_of_the_middle_is_told_with_both_neighbours(
    made: tuple[list[SegmentName], list[tuple[int, int]]], data: st.DataObject
) -> None:
    names, expected = made
    if len(expected) < 3:
        return
    gone = data.draw(st.integers(1, len(expected) - 2))
    low, high = expected[gone]
    chain = chain_of([n for n in names if not (low <= n.from_ts and n.to_ts <= high)])
    assert chain.fault is not None
    assert chain.fault.at_ts == low
    assert f"-{low:020d}" in chain.fault.message
    assert f"/{high:020d}-" in chain.fault.message
    assert [(i.from_ts, i.to_ts) for i in chain.intervals] == expected[:gone]


@given(whole_chains(), st.integers(0, 1 << 20), st.integers(1, 1 << 20))
def test_between_gives_what_meets_the_interval(made: tuple[list[SegmentName], list[tuple[int, int]]], low: int, size: int) -> None:
    names, expected = made
    end = expected[-1][1]
    from_ts = 90 + low % (end - 80)
    to_ts = from_ts + size % 40
    found = [(i.from_ts, i.to_ts) for i in chain_of(names).between(from_ts, to_ts)]
    assert found == [(a, b) for a, b in expected if a < to_ts and b > from_ts]


def test_partial_overlaps_name_both_files() -> None:
    chain = chain_of([SegmentName(1, 5), SegmentName(3, 8)])
    assert chain.fault is not None
    assert str(SegmentName(1, 5)) in chain.fault.message
    assert str(SegmentName(3, 8)) in chain.fault.message
    assert "overlap" in chain.fault.message


def test_a_larger_interval_mends_an_overlap() -> None:
    chain = chain_of([SegmentName(1, 5), SegmentName(3, 8), SegmentName(1, 8), SegmentName(8, 9)])
    assert chain.fault is None
    assert [(i.from_ts, i.to_ts) for i in chain.intervals] == [(1, 8), (8, 9)]


def test_an_interval_exists_when_all_its_parts_do() -> None:
    names = [SegmentName(1, 5), SegmentName(5, 9, 1, 3), SegmentName(5, 9, 3, 3)]
    chain = chain_of(names)
    assert chain.to_ts == 5
    assert chain.fault is None
    assert len(chain.incomplete) == 2
    broken = chain_of([*names, SegmentName(9, 12)])
    assert broken.fault is not None
    assert "other parts are missing" in broken.fault.message
    whole = chain_of([*names, SegmentName(5, 9, 2, 3), SegmentName(9, 12)])
    assert whole.intervals[1] == Interval(5, 9, tuple(f"rows/0/{SegmentName(5, 9, k, 3)}" for k in (1, 2, 3)))
    assert not whole.incomplete


def test_parts_cut_differently_do_not_mix() -> None:
    chain = chain_of([SegmentName(1, 5, 1, 3), SegmentName(1, 5, 2, 3), SegmentName(1, 5, 1, 2), SegmentName(1, 5, 2, 2)])
    assert chain.intervals[0].parts == tuple(f"rows/0/{SegmentName(1, 5, k, 2)}" for k in (1, 2))
    assert len(chain.incomplete) == 2


def test_an_interval_whole_and_in_parts_counts_once() -> None:
    chain = chain_of([SegmentName(1, 5), SegmentName(1, 5, 1, 2), SegmentName(1, 5, 2, 2)])
    assert [i.parts for i in chain.intervals] == [(f"rows/0/{SegmentName(1, 5)}",)]
    assert chain.fault is None
