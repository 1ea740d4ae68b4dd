"""`tidemill view run`, killed (SIGKILL) at each of its points: the target is always the query at the target's resolved ts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.support.servers.kafka import new_topic_name
from tests.support.servers.mariadb import MariaDb, mariadb
from tests.support.spark.sessions import spark_session
from tests.support.views.compared import comparable
from tests.support.views.dying import OF, STATE, ended, killed_at
from tests.support.views.orders import TOTALS, shop, upstream
from tests.support.views.topic import states
from tidemill.playground.programs.kafka_broker import KafkaBroker
from tidemill.sinks.lake.care import verified
from tidemill.testing import Upstream
from tidemill.views import View, Views, create

__all__ = ["mariadb", "shop", "upstream"]

pytestmark = [pytest.mark.spark, pytest.mark.slow]
session = spark_session()


@pytest.fixture(scope="module", autouse=True)
def _spark(session: Any) -> None:
    """Spark analyses the queries of views that are created: here the one that runs for all."""


Row = tuple[Any, ...]
COLUMNS = ("id", "customer", "total", "n")


def change(number: int) -> list[str]:
    """A new order with its lines, in one transaction with changes of earlier ones: rows of the view come, change, and go."""
    return [
        "BEGIN",
        f"INSERT INTO shop.orders VALUES ({number}, 'c{number % 2}', 0)",
        f"INSERT INTO shop.order_lines (id, order_id, amount) VALUES ({10 * number}, {number}, {number}), ({10 * number + 1}, {number}, 7)",
        f"UPDATE shop.order_lines SET amount = amount + 1 WHERE order_id = {number - 1}",
        f"DELETE FROM shop.orders WHERE id = {number - 2}",
        "COMMIT",
    ]


class Kept:
    """A view into a target, and the same query into memory, which says what the target should have."""

    def __init__(self, folder: Path, upstream: Upstream, kind: str, into: str, points: list[str]) -> None:
        self.views, self.kind, self._upstream, self._number = Views(folder / "views"), kind, upstream, 0
        self.changed_ts, self._points = 0, points
        create(self.views, "totals", upstream.log, TOTALS, into)
        create(self.views, "truth", upstream.log, TOTALS, "memory")

    def killed_at_each_point(self) -> Iterator[str]:
        """Die at each point. After every other death, a process dies at the next one while it makes good what the first has left."""
        for number, point in enumerate(self._points):
            ts = self.changed()
            assert killed_at(self.views.folder, "totals", ts, self.kind, point), f"no process died {point}"
            yield point
            if number % 2:
                with View(self.views, "totals") as view:
                    assert view.catch_up(ts) == ts
                yield f"restarted after {point}"
        ts = self.changed()
        assert ended(self.views.folder, "totals", ts)
        yield "ended"

    def changed(self) -> int:
        """Change orders and lines. Returns a ts behind it."""
        self._number += 1
        self.changed_ts = self._upstream.sql(*change(self._number))
        return self.changed_ts

    def compare(self, found: list[tuple[int, list[Row]]]) -> None:
        """Compare what a target had, at each resolved ts in their order, with the query at that ts."""
        with View(self.views, "truth") as truth:
            for ts, rows in found:
                if ts <= truth.definition.begin_ts:
                    assert rows == []
                    continue
                assert truth.catch_up(ts) == ts
                assert comparable(rows) == rows_of(truth.recomputed().to_pylist())


def rows_of(found: list[dict[str, Any]]) -> list[Row]:
    return comparable([tuple(row[name] for name in COLUMNS) for row in found])


def at_its_own_points(kind: str) -> pytest.MarkDecorator:
    """The points of a target; and, where all tests run, those of the state, which are the same with each."""
    whole = pytest.param([*OF[kind]], id="all", marks=pytest.mark.thorough("test_into_memory has the state's points"))
    return pytest.mark.parametrize("points", [pytest.param([one for one in OF[kind] if one not in STATE], id="own"), whole])


@at_its_own_points("delta")
def test_into_delta(shop: Upstream, tmp_path: Path, points: list[str]) -> None:
    kept = Kept(tmp_path, shop, "delta", f"delta://{tmp_path / 'lake'}", points)
    for _ in kept.killed_at_each_point():
        pass
    table = DeltaTable(tmp_path / "lake" / "views" / "totals")
    commits = [
        (one["version"], int(one["tidemill.resolved_ts"]))
        for one in table.history()
        if one["operation"] not in ("CREATE TABLE", "OPTIMIZE")
    ]
    assert len(commits) == len({ts for _, ts in commits}), "no interval was committed twice"
    versions = [(ts, DeltaTable(table.table_uri, version=version).to_pyarrow_table().to_pylist()) for version, ts in sorted(commits)]
    kept.compare([*((ts, rows_of(rows)) for ts, rows in versions), (kept.changed_ts, rows_of(table.to_pyarrow_table().to_pylist()))])
    assert verified(str(tmp_path / "lake"), whole=True)[1] == []


def test_into_memory(shop: Upstream, tmp_path: Path) -> None:
    kept = Kept(tmp_path, shop, "memory", "memory", [*STATE])
    for _ in kept.killed_at_each_point():
        with View(kept.views, "totals") as view:
            kept.compare([(view.resolved_ts, rows_of(view.read().to_pylist()))])


@at_its_own_points("mysql")
def test_into_a_database(shop: Upstream, tmp_path: Path, mariadb: MariaDb, points: list[str]) -> None:
    mariadb.clear()
    kept = Kept(tmp_path, shop, "mysql", mariadb.uri, points)
    for _ in kept.killed_at_each_point():
        ((ts,),) = mariadb.rows("SELECT resolved_ts FROM views._tidemill")
        rows = mariadb.rows(f"SELECT {', '.join(COLUMNS)} FROM views.totals")
        kept.compare([(ts, comparable(rows))])


@pytest.mark.kafka
@at_its_own_points("kafka")
def test_into_kafka(shop: Upstream, tmp_path: Path, kafka_broker: KafkaBroker, points: list[str]) -> None:
    topic = new_topic_name("view")
    kept = Kept(tmp_path, shop, "kafka", f"kafka://{kafka_broker.address}/{topic}?partition-num=2", points)
    for _ in kept.killed_at_each_point():
        pass
    found = states(kafka_broker.address, topic)
    assert found[-1][0] == kept.changed_ts
    kept.compare([(ts, rows_of(rows)) for ts, rows in found])
