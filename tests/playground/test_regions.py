"""Regions: any sequence of splits, merges and moves keeps the key space covered."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.playground.store.regions import RegionMap
from tidemill.tidb.codec import encode_bytes

KEYS = [b"", b"a", b"b", b"b\x00", b"c", b"d", b"t\x80\x00\x01", b"zz"]


def region_map(stores: int = 3) -> RegionMap:
    ids = itertools.count(4)
    return RegionMap(range(1, stores + 1), lambda: next(ids))


def check(regions: RegionMap) -> None:
    listed = list(regions)
    assert listed[0].start == b""
    assert listed[-1].end == b""
    for left, right in itertools.pairwise(listed):
        assert left.end == right.start
        assert left.start < left.end
    ids = [r.id for r in listed] + [p.id for r in listed for p in r.peers]
    assert len(ids) == len(set(ids))
    for region in listed:
        assert region.leader in region.peers
        assert regions.get(region.id) is region
        assert regions.at(region.start) is region
        assert regions.at_encoded(region.start_encoded) is region


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["split", "merge", "transfer"]), st.sampled_from(KEYS), st.sampled_from(KEYS)), max_size=25))
def test_any_changes_keep_the_key_space_covered(changes: list[tuple[str, bytes, bytes]]) -> None:
    regions = region_map()
    versions: dict[int, int] = {}
    for kind, first, second in changes:
        region = regions.at(first)
        try:
            if kind == "split":
                pieces = regions.split(region.id, {first, second})
                assert pieces[-1].id == region.id, "the old id stays with the last piece"
                assert all(p.version == region.version + len(pieces) - 1 for p in pieces)
            elif kind == "merge":
                survivor = regions.merge(region.id, regions.at(second).id)
                assert survivor.version > region.version
                assert regions.get(region.id) is None
            else:
                assert regions.transfer_leader(region.id, region.peers[-1].store_id).version == region.version
        except ValueError:
            pass
        check(regions)
        for current in regions:
            assert current.version >= versions.get(current.id, 0)
            versions[current.id] = current.version


def test_versions_are_those_of_the_recordings() -> None:
    """region_split: three cuts raise the version by three; region_merge: both at v, the survivor at v + 2."""
    regions = region_map(1)
    first = next(iter(regions))
    pieces = regions.split(first.id, [b"5", b"a", b"f"])
    assert [p.version for p in pieces] == [first.version + 3] * 4
    assert regions.merge(pieces[0].id, pieces[1].id).version == first.version + 5


def test_lookup_by_encoded_keys() -> None:
    regions = region_map(1)
    pieces = regions.split(next(iter(regions)).id, [b"m", b"t"])
    assert [r.id for r in regions.between_encoded(encode_bytes(b"a"), encode_bytes(b"n"))] == [pieces[0].id, pieces[1].id]
    assert [r.id for r in regions.between_encoded(encode_bytes(b"m"), b"")] == [pieces[1].id, pieces[2].id]
    assert len(regions.between_encoded(b"", b"", 2)) == 2
    assert regions.at_encoded(b"any bytes") is not None


@pytest.mark.parametrize("stores", [1, 2, 5])
def test_copies(stores: int) -> None:
    region = next(iter(region_map(stores)))
    assert len({p.store_id for p in region.peers}) == min(3, stores)


def test_refusals() -> None:
    regions = region_map()
    only = next(iter(regions))
    for call in (
        lambda: regions.split(99, [b"a"]),
        lambda: regions.split(only.id, []),
        lambda: regions.split(only.id, [b""]),
        lambda: regions.merge(only.id, only.id),
        lambda: regions.transfer_leader(only.id, 9),
    ):
        with pytest.raises(ValueError, match="region"):
            call()
