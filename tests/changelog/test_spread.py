"""How a log's rows are spread: layouts and split tables of log.json, and by which keys a table is cut."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.changelog.conftest import META
from tests.support.changelog.logs import START, batch_of, put
from tidemill.changelog.log_format import Affinity, LogIdentity
from tidemill.changelog.spread import Layout, SplitTable, even_keys
from tidemill.changelog.verify import verify
from tidemill.changelog.writer import LogWriter
from tidemill.errors import LogCorrupt, LogError

HOT = SplitTable(70, "d.hot", (b"\x40", b"\x80"), (1, 3, 0))


def test_a_handle_has_one_partition() -> None:
    assert [HOT.partition_of(handle) for handle in (b"", b"\x3f\xff", b"\x40", b"\x40\0", b"\x7f", b"\x80", b"\xff")] == [
        1,
        1,
        3,
        3,
        3,
        0,
        0,
    ]
    assert HOT.ranges() == [((b"", b"\x40"), 1), ((b"\x40", b"\x80"), 3), ((b"\x80", b""), 0)]


def test_an_identity_knows_its_split_tables() -> None:
    plain = LogIdentity("1", START, 4)
    split = plain.spread(START + 50, HOT)
    other = SplitTable(71, "d.other", (b"\x50",), (2, 3))
    more = split.spread(START + 60, other).grown(START + 70, 6)
    assert (plain.format, split.format, more.format) == (2, 4, 4)
    assert [one.split_tables for one in more.layouts] == [(), (HOT,), (HOT, other), (HOT, other)]
    assert [more.units_at(START + at) for at in (0, 50, 60, 70)] == [
        (0, 1, 2, 3, 4, 5),
        (0, 0, 2, 0, 4, 5),
        (0, 0, 0, 0, 4, 5),
        (0, 0, 0, 0, 4, 5),
    ]
    again = more.spread(START + 80, SplitTable(70, "d.hot", (b"\x60",), (5, 4)))
    assert again.layout.split_tables == (other, SplitTable(70, "d.hot", (b"\x60",), (5, 4)))
    together = again.gathered(START + 90, 70)
    assert together.layout.split_tables == (other,)
    assert together.format == 4, "an older version would not know what is before"
    for identity in (split, more, again, together):
        assert LogIdentity.from_json(identity.to_json()) == identity
    assert plain.spread(START, HOT).layouts == (Layout(START, 4, (HOT,)),), "from the very beginning"


def test_partitions_that_may_share_any_table_are_one_unit() -> None:
    assert LogIdentity("1", START, 3, Affinity.KEY).units_at(START) == (0, 0, 0)
    assert LogIdentity("1", START, 3, split_tables=("d.t",)).units_at(START) == (0, 0, 0), "somebody says so, and not where"


def test_what_cannot_be_split_is_refused() -> None:
    with pytest.raises(LogError, match="4 partitions: a table cannot be split over 5"):
        LogIdentity("1", START, 4).check_split(5)
    with pytest.raises(LogError, match="format 1"):
        LogIdentity("1", START, 4, format=1).check_split(2)
    with pytest.raises(LogError, match="affinity key"):
        LogIdentity("1", START, 4, Affinity.KEY).check_split(2)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"keys": ["40"]}, "split table 70 has 1 keys and 3 partitions"),
        ({"keys": [], "partitions": [1]}, "split table 70 has 0 keys"),
        ({"keys": ["80", "40"]}, "keys of split table 70 do not ascend"),
        ({"keys": ["40", "40"]}, "do not ascend"),
        ({"keys": ["", "40"]}, "do not ascend"),
        ({"keys": ["4x", "80"]}, "non-hexadecimal"),
        ({"keys": None}, r"layouts\[1\]\.split_tables\[0\]\.keys is null, not a list"),
        ({"partitions": [1, 3, 1]}, "split table 70 names a partition twice"),
        ({"partitions": [1, 3, 4]}, "split table 70 is in partition 4; there are 4"),
        ({"partitions": [1, 3, -1]}, "-1"),
        ({"partitions": [1, 3, True]}, r"partitions\[2\] is true"),
        ({"table": "70"}, 'table is "70", not a whole number'),
        ({"table": None}, "table is null"),
    ],
)
def test_a_broken_split_is_refused_by_name(change: dict[str, Any], text: str) -> None:
    fields = json.loads(LogIdentity("1", START, 4).spread(START + 50, HOT).to_json())
    fields["layouts"][1]["split_tables"][0] |= change
    with pytest.raises(LogCorrupt, match=text) as caught:
        LogIdentity.from_json(json.dumps(fields), "LOG/log.json")
    assert caught.value.message.startswith("LOG/log.json")


def test_a_table_is_split_once_in_a_layout_and_only_where_readers_know_of_it() -> None:
    fields = json.loads(LogIdentity("1", START, 4).spread(START + 50, HOT).to_json())
    with pytest.raises(LogCorrupt, match="format 3 has no split tables"):
        LogIdentity.from_json(json.dumps(fields | {"format": 3}))
    fields["layouts"][1]["split_tables"] *= 2
    with pytest.raises(LogCorrupt, match="splits a table twice"):
        LogIdentity.from_json(json.dumps(fields))
    del fields["layouts"][1]["split_tables"][0]["name"]
    with pytest.raises(LogCorrupt, match="no field 'name'"):
        LogIdentity.from_json(json.dumps(fields))


@given(st.lists(st.binary(min_size=1, max_size=2), max_size=40).map(sorted), st.integers(2, 8))
def test_keys_cut_a_table_evenly(borders: list[bytes], parts: int) -> None:
    keys = even_keys(borders, len(borders) + 1, parts)
    if len(set(borders)) < parts - 1:
        assert keys is None
        return
    assert keys is not None
    SplitTable(1, "d.t", keys, tuple(range(parts)))
    assert set(keys) <= set(borders)
    if len(set(borders)) == len(borders):
        edges = [-1, *(borders.index(key) for key in keys), len(borders)]
        sizes = [b - a for a, b in pairwise(edges)]
        assert max(sizes) - min(sizes) <= 1, "regions of each part"


def test_verify_finds_rows_in_the_wrong_part(tmp_path: Path) -> None:
    split = SplitTable(7, "d.t", (b"\x80" + bytes(6) + b"\x05",), (1, 0))
    for name, low in (("well", 1), ("wrong", 0)):
        with LogWriter.create(tmp_path / name, LogIdentity("1", START, 2).spread(START, split), snapshot=META) as writer:
            writer.partition(low).publish(START + 9, [batch_of([put(7, 1, START + 5), put(7, 4, START + 6)])])
            writer.partition(1 - low).publish(START + 9, [batch_of([put(7, 5, START + 4), put(7, 9, START + 6)])])
    told = {name: [p.text for p in verify(tmp_path / name).problems if "partition" in p.text] for name in ("well", "wrong")}
    text = "rows of table 7 belong to another partition by their keys: d.t is split over [1, 0]"
    assert told == {"well": [], "wrong": [text] * 2}
