"""Batches of whole blocks are those that the plain cutter makes an entry after the other, for any filter, demand and cut of the blocks."""

from __future__ import annotations

import random

import pytest

from tests.support.canal.store import MemoryEntries, random_entries
from tidemill.canal.conversation import fast_cutting
from tidemill.canal.conversation.cutting import Batch, Cutter, Demand, Place, Selector, behind
from tidemill.canal.conversation.fast_cutting import BlockCutter, CutsBlocks
from tidemill.canal.conversation.fields import Fields
from tidemill.canal.conversation.filters import Kinds, TableFilter, name_filter

FILTERS = ["", r"db\.t1", r"db\.(t1|t3)", "none", r".*\..*"]


def given(cut: CutsBlocks, source: MemoryEntries) -> Batch:
    for block, first in source.blocks(cut.seen):
        cut.feed(block, first)
        if cut.over:
            return cut.batch()
    cut.reach(source.head())
    return cut.batch()


def drawn(rng: random.Random) -> tuple[Selector, Demand]:
    kinds = Kinds(
        without_insert=rng.random() < 0.2, without_update=rng.random() < 0.2, without_ddl=rng.random() < 0.2,
        without_rows=rng.random() < 0.1, without_boundaries=rng.random() < 0.2,
    )  # fmt: skip
    black = r"db\.t2" if rng.random() < 0.3 else ""
    selector = Selector(TableFilter(name_filter(rng.choice(FILTERS)), name_filter(black)), kinds, Fields())
    items = rng.random() < 0.5
    demand = (
        Demand(rng.randrange(1, 12), 1 << 20, rng.random() < 0.3) if items else Demand(1 << 20, rng.randrange(0, 900), rng.random() < 0.3)
    )
    return selector, demand


@pytest.mark.parametrize("large", [1, fast_cutting.LARGE])
@pytest.mark.parametrize("seed", range(60))
def test_both_cut_the_same_batches(seed: int, large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether entries are sent from where they lie, or put together first."""
    monkeypatch.setattr(fast_cutting, "LARGE", large)
    rng = random.Random(f"cut {seed}")
    entries = random_entries(rng, 25)
    cuts = sorted({0, *(rng.randrange(len(entries)) for _ in range(rng.randrange(6)))} - {0})
    source = MemoryEntries(99)
    source.add(entries, 1000, cuts)
    selector, demand = drawn(rng)
    place, total = Place(behind(99)), 0
    while True:
        want = given(Cutter(selector, demand, place), source)
        got = given(BlockCutter(selector, demand, place), source)
        assert b"".join(got.pieces) == b"".join(want.pieces)
        assert (got.begin, got.end, got.entries, got.size, got.rows, got.full, got.upto) == (
            want.begin, want.end, want.entries, want.size, want.rows, want.full, want.upto,
        )  # fmt: skip
        total += got.entries
        if not want.entries:
            break
        assert want.end.position > place.position
        place = want.end
        if rng.random() < 0.2:  # the client has another filter now
            selector, _ = drawn(rng)
    assert place.position.commit_ts <= 1000
    assert total <= len(entries)


def test_a_batch_that_grows_is_the_one_made_at_once() -> None:
    rng = random.Random("grow")
    for _ in range(20):
        entries = random_entries(rng, 20)
        selector, _ = drawn(rng)
        demand, place = Demand(1 << 20, 1 << 20), Place(behind(99))
        source, whole = MemoryEntries(99), MemoryEntries(99)
        whole.add(entries, 1000)
        growing = BlockCutter(selector, demand, place)
        at = 0
        while at < len(entries):
            ts = entries[min(len(entries) - 1, at + rng.randrange(6))].commit_ts
            end = next((i for i, one in enumerate(entries) if one.commit_ts > ts), len(entries))
            source.add(entries[at:end], ts)
            given(growing, source)
            at = end
        source.add([], 1000)
        got, want = given(growing, source), given(Cutter(selector, demand, place), whole)
        assert (b"".join(got.pieces), got.end, got.rows) == (b"".join(want.pieces), want.end, want.rows)


def test_a_batch_overshoots_by_one_entry() -> None:
    """As Canal's: entries are added while those that are there have no more than so many bytes."""
    rng = random.Random("size")
    source = MemoryEntries(99)
    source.add(random_entries(rng, 40), 1000)
    selector = Selector(TableFilter(name_filter(""), name_filter("")), Kinds(), Fields())
    for most in range(0, 2000, 97):
        batch = given(BlockCutter(selector, Demand(1 << 20, most), Place(behind(99))), source)
        sizes = [len(piece) for piece in batch.pieces]
        assert batch.size > most
        assert batch.full
        assert sizes
        assert batch.size <= most + 300
