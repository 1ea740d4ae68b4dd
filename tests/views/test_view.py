"""Views end to end: an upstream, its log, views into memory and Delta tables, stops and crashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.support.spark.sessions import spark_session
from tests.support.views.orders import TOTALS, shop, upstream
from tests.support.views.shop import sorted_rows
from tidemill.errors import ConfigError, SinkUnavailable
from tidemill.sinks.lake.care import verified
from tidemill.testing import Upstream
from tidemill.views import View, Views, create, drop
from tidemill.views.refusal import ViewError, ViewRefused, ViewStopped
from tidemill.views.targets.delta import DeltaTarget

__all__ = ["shop", "upstream"]

pytestmark = [pytest.mark.spark, pytest.mark.slow]
session = spark_session()


@pytest.fixture(scope="module", autouse=True)
def _spark(session: Any) -> None:
    """Spark analyses the queries of views that are created: here the one that runs for all."""


BOTH = """
    SELECT o.total - l.total AS difference
    FROM (SELECT sum(total) AS total FROM shop.orders) o, (SELECT sum(amount) AS total FROM shop.order_lines) l"""


def order(number: int, *amounts: int) -> list[str]:
    """A transaction: an order with its lines."""
    lines = ", ".join(f"({100 * number + i}, {number}, {amount}, 'x')" for i, amount in enumerate(amounts))
    return [
        "BEGIN",
        f"INSERT INTO shop.orders VALUES ({number}, 'c{number % 2}', {sum(amounts)})",
        f"INSERT INTO shop.order_lines VALUES {lines}",
        "COMMIT",
    ]


def table(root: Path, name: str) -> pa.Table:
    return DeltaTable(root / "views" / name).to_pyarrow_table()


def test_a_view_into_delta_and_one_into_memory(shop: Upstream, tmp_path: Path) -> None:
    views, lake = Views(tmp_path / "views"), tmp_path / "lake"
    create(views, "totals", shop.log, TOTALS, f"delta://{lake}")
    create(views, "here", shop.log, TOTALS, "memory")
    with View(views, "totals") as totals, View(views, "here") as here:
        for statements in (
            [*order(1, 5, 6), *order(2, 7)],
            ["UPDATE shop.order_lines SET order_id = 2 WHERE id = 100", "DELETE FROM shop.orders WHERE id = 2", *order(3, 1)],
            ["UPDATE shop.order_lines SET note = 'y'"],
            [
                "ALTER TABLE shop.orders ADD COLUMN more INT",
                "TRUNCATE TABLE shop.order_lines",
                "INSERT INTO shop.order_lines VALUES (1, 1, 9, '')",
            ],
        ):
            ts = shop.sql(*statements)
            assert totals.catch_up() >= ts
            here.catch_up()
            assert sorted_rows(here.read()) == sorted_rows(here.recomputed()) == sorted_rows(table(lake, "totals"))
        assert here.read().to_pylist() == [{"id": 1, "customer": "c1", "total": 9, "n": 1}]
    assert verified(str(lake), whole=True)[1] == []
    drop(views, "totals")
    assert views.names() == ["here"]
    assert not (lake / "views" / "totals").exists()


def test_totals_never_disagree_with_their_lines(shop: Upstream, tmp_path: Path) -> None:
    views = Views(tmp_path)
    create(views, "both", shop.log, BOTH, "memory")
    shop.sql(*order(1, 5, 6))
    with View(views, "both") as view:
        view.catch_up()
        first = view.resolved_ts
        shop.sql(*(one for i in range(2, 9) for one in order(i, i, 2 * i)), "DELETE FROM shop.orders WHERE id = 99")
        last = view.log_ts()
        for ts in range(first, last, max(1, (last - first) // 40)):  # at moments between the transactions too
            view.catch_up(ts)
            assert view.resolved_ts == max(ts, first)
            assert view.read().to_pylist() == [{"difference": 0}]


def test_a_ddl_that_a_view_cannot_pass(shop: Upstream, tmp_path: Path) -> None:
    views = Views(tmp_path)
    create(views, "totals", shop.log, TOTALS, "memory")
    shop.sql(*order(1, 5), "ALTER TABLE shop.order_lines DROP COLUMN note", "ALTER TABLE shop.order_lines DROP COLUMN amount")
    for _ in range(2):
        with View(views, "totals") as view, pytest.raises(ViewStopped, match="DROP COLUMN `amount`"):
            view.catch_up()
    with View(views, "totals") as view:
        assert view.read()["total"].to_pylist() == [5]


def test_a_crash_between_state_and_target(shop: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    views, lake = Views(tmp_path / "views"), tmp_path / "lake"
    create(views, "totals", shop.log, TOTALS, f"delta://{lake}")
    whole, calls = DeltaTarget.deliver, []

    def before(self: DeltaTarget, changes: pa.Table, to_ts: int) -> None:
        calls.append(to_ts)
        raise SinkUnavailable("it died before the commit")

    def after(self: DeltaTarget, changes: pa.Table, to_ts: int) -> None:
        whole(self, changes, to_ts)
        calls.append(to_ts)
        raise SinkUnavailable("it died behind the commit")

    for number, dying in enumerate((before, after), start=1):
        shop.sql(*order(number, number, 10))
        monkeypatch.setattr(DeltaTarget, "deliver", dying)
        with View(views, "totals") as view, pytest.raises(SinkUnavailable):
            view.catch_up()
        monkeypatch.setattr(DeltaTarget, "deliver", whole)
        with View(views, "totals") as view:
            view.catch_up()
        assert table(lake, "totals")["n"].to_pylist() == [2] * number
    resolved = [
        int(one["tidemill.resolved_ts"]) for one in DeltaTable(lake / "views" / "totals").history() if one["operation"] != "CREATE TABLE"
    ]
    assert len(resolved) == len(set(resolved)) == 2
    assert set(resolved) <= set(calls)


def test_what_an_attempt_left_is_delivered_though_the_log_is_no_further(
    shop: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    views, lake = Views(tmp_path / "views"), tmp_path / "lake"
    create(views, "totals", shop.log, TOTALS, f"delta://{lake}")
    ts = shop.sql(*order(1, 5))

    def away(self: DeltaTarget, changes: pa.Table, to_ts: int) -> None:
        raise SinkUnavailable("it is away")

    with monkeypatch.context() as patch, View(views, "totals") as view:
        patch.setattr(DeltaTarget, "deliver", away)
        with pytest.raises(SinkUnavailable):
            view.catch_up(ts)
    with View(views, "totals") as view:
        assert view.catch_up(ts) == ts
    assert table(lake, "totals")["total"].to_pylist() == [5]


def test_what_is_refused(shop: Upstream, tmp_path: Path) -> None:
    views = Views(tmp_path / "views")
    for sql, told in (
        ("SELECT * FROM shop.order", "no table shop.order"),
        ("SELECT amuont FROM shop.order_lines", "amuont.*amount"),
        ("SELECT amount + 1 FROM shop.order_lines", "has no name"),
        ("SELECT no_such(note) AS n FROM shop.order_lines", "UNRESOLVED_ROUTINE"),
        ("SELECT rand() AS n FROM shop.order_lines", "another value each time"),
        ("SELECT current_date() AS n FROM shop.order_lines", "depends on when"),
        ("SELECT collect_list(id) AS n FROM shop.orders", "depends on the order"),
        ("SELECT id FROM shop.orders TABLESAMPLE (10 PERCENT)", "Sample"),
        ("SELECT id FROM shop.orders VERSION AS OF 3", "Spark"),
        ("SELECT max(id, total) AS m FROM shop.orders", "WRONG_NUM_ARGS|Spark"),
        ("SELECT map(id, 1) AS m FROM shop.orders", "map<int,int>"),
        ("DELETE FROM shop.orders", "Delete"),
        ("SELECT (id FROM shop.orders", "PARSE_SYNTAX_ERROR"),
    ):
        with pytest.raises(ViewRefused, match=told):
            create(views, "v", shop.log, sql, "memory")
    create(views, "v", shop.log, TOTALS, f"delta://{tmp_path / 'lake'}")
    with pytest.raises(ViewError, match="already"):
        create(views, "v", shop.log, TOTALS, "memory")
    with pytest.raises(ConfigError, match="belongs to"):
        create(views, "other", shop.log, TOTALS, f"delta://{tmp_path / 'lake'}")
    with View(views, "v"), pytest.raises(ViewError, match="runs in another process"):
        drop(views, "v")
