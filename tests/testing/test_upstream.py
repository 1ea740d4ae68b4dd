"""What `tidemill.testing` gives to users' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.changelog.reader import LogReader
from tidemill.errors import SqlError
from tidemill.testing import Upstream, assert_changes_equal
from tidemill.testing.fixtures import tidemill_upstream

__all__ = ["tidemill_upstream"]


def test_changes_of_a_table(tidemill_upstream: Upstream) -> None:
    tidemill_upstream.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(9))")
    before = tidemill_upstream.sql("INSERT INTO shop.t VALUES (1, 'a'), (2, 'b')")
    tidemill_upstream.sql("UPDATE shop.t SET v = 'c' WHERE id = 1", "DELETE FROM shop.t WHERE id = 2")
    expected = [
        {"_change_type": "insert", "id": 1, "v": "a"},
        {"_change_type": "insert", "id": 2, "v": "b"},
        {"_change_type": "update_preimage", "id": 1, "v": "a"},
        {"_change_type": "update_postimage", "id": 1, "v": "c"},
        {"_change_type": "delete", "id": 2, "v": "b"},
    ]
    assert_changes_equal(tidemill_upstream.changes("shop.t"), expected, ordered=True)
    assert_changes_equal(tidemill_upstream.changes("shop.t", startingTs=str(before)), expected[2:])
    assert tidemill_upstream.rows("SELECT id, v FROM shop.t") == [(1, "c")]


def test_the_log_is_there_as_far_as_the_statements_went(tmp_path: Path) -> None:
    with Upstream(tmp_path) as upstream:
        ts = upstream.sql("CREATE DATABASE d")
        with pytest.raises(SqlError):
            upstream.sql("CREATE TABEL d.t (id INT)")
        assert upstream.pd.startswith("127.0.0.1:")
    assert LogReader(tmp_path / "log").resolved_ts() >= ts


def test_nothing_stays_of_a_temporary_one() -> None:
    with Upstream() as upstream:
        assert Path(upstream.log).exists()
    assert not Path(upstream.log).exists()
