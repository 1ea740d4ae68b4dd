"""Programs of tables with the same columns share what nobody changes, so that thousands of tables fit the CPU's caches."""

from __future__ import annotations

import gc
import weakref

import pytest

from bench.corpus import make
from tidemill.kernels.rows import program as p
from tidemill.kernels.rows.layout import T_CACHE, T_COLUMNS, T_KEY_HEAD, T_KIND, T_POOL, T_SLOT_OF, T_TEMPLATE
from tidemill.kernels.rows.program import TableProgram
from tidemill.tidb.schema.model import TableInfo

SHARED, OWN = (T_COLUMNS, T_POOL, T_SLOT_OF, T_TEMPLATE, T_KIND), (T_CACHE, T_KEY_HEAD)


@pytest.fixture
def info() -> TableInfo:
    return TableInfo.from_json(make("narrow", 1).table_info)


def test_equal_columns_are_one_block(info: TableInfo) -> None:
    one, other = TableProgram("a", "t1", info), TableProgram("a", "t2", info)
    mixed = TableProgram("a", "t3", TableInfo.from_json(make("mixed", 1).table_info))
    assert all(one.words[word] == other.words[word] != mixed.words[word] for word in SHARED)
    assert all(one.words[word] != other.words[word] for word in OWN)  # a place map is of one thread


def test_a_block_goes_with_its_last_program() -> None:
    fields = make("narrow", 1).table_info
    fields["cols"][-1]["name"] = {"O": "named_only_here", "L": "named_only_here"}
    info = TableInfo.from_json(fields)
    one, other = TableProgram("a", "t1", info), TableProgram("a", "t2", info)
    pool = weakref.ref(next(block for block in p._equal.values() if block.ctypes.data == one.words[T_POOL]))
    del one
    gc.collect()
    assert pool() is not None
    del other
    gc.collect()
    assert pool() is None
