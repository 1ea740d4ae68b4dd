"""Changes applied to Delta and Iceberg tables, without Spark: the last change of each key counts, and no batch is applied twice."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tidemill.errors import ConfigError, SinkError
from tidemill.sinks.base import no_fence_check
from tidemill.sinks.lake.base import Stamp
from tidemill.spark.apply import Target, apply_rows, last_changes

SCHEMA = pa.schema(
    [("id", pa.int64()), ("v", pa.string()), ("_change_type", pa.string()), ("_commit_ts", pa.int64()), ("_table", pa.string())]
)
Change = tuple[int, str | None, str, int]


def changes(*rows: Change) -> pa.Table:
    columns = [*zip(*rows, strict=True)] if rows else [(), (), (), ()]
    return pa.table([*map(pa.array, columns), pa.array(["t"] * len(rows))], names=SCHEMA.names).cast(SCHEMA)


def stamp(number: int, query: str = "q") -> Stamp:
    return Stamp(query, number, 0, no_fence_check)


@pytest.fixture(params=["delta", "iceberg"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    iceberg = f"iceberg://c/?warehouse=file://{tmp_path}/ice&catalog-uri=sqlite:///{tmp_path}/catalog.db"
    return Target(f"delta://{tmp_path}/lake" if request.param == "delta" else iceberg, "app", "t", ("id",))


def held(target: Target) -> dict[int, Any]:
    """The rows of the table, read by each format's own library."""
    tables: Any = target.open()
    is_delta = target.uri.startswith("delta")
    rows = tables.newest("app/t").to_pyarrow_table() if is_delta else tables._table("app.t").scan().to_arrow()
    found = {row["id"]: row for row in rows.to_pylist()}
    assert len(found) == len(rows)
    return found


def test_the_last_change_counts() -> None:
    rows = last_changes(
        changes(
            *((1, "a", "insert", 5), (2, "b", "insert", 5), (1, "a", "update_preimage", 6), (1, "c", "update_postimage", 6)),
            *((2, "b", "delete", 7), (3, "old", "delete", 9), (3, "new", "insert", 9), (4, "x", "insert", 8), (4, "x", "delete", 7)),
        ),
        ["id"],
    )
    assert {row["id"]: (row["__tidemill_op"], row["v"]) for row in rows.to_pylist()} == {
        1: (0, "c"),
        2: (1, "b"),
        3: (0, "new"),
        4: (0, "x"),
    }
    assert rows.column_names == ["id", "v", "__tidemill_op"]


def test_random_changes(target: Target) -> None:
    random, rows = Random(1), dict[int, str]()
    tables, ts = target.open(), 0
    for number in range(1, 5):
        batch: list[Change] = []
        for _ in range(40):
            ts, id_ = ts + 1, random.randrange(12)
            if id_ in rows and random.random() < 0.4:
                batch.append((id_, rows.pop(id_), "delete", ts))
                continue
            if id_ in rows:
                batch.append((id_, rows[id_], "update_preimage", ts))
            batch.append((id_, f"v{ts}", "update_postimage" if id_ in rows else "insert", ts))
            rows[id_] = f"v{ts}"
        random.shuffle(batch)  # a batch has no order
        apply_rows(target, tables, changes(*batch), stamp(number))
        assert {id_: row["v"] for id_, row in held(target).items()} == rows


def test_a_batch_is_applied_once(target: Target) -> None:
    apply_rows(target, target.open(), changes((1, "a", "insert", 5)), stamp(1))
    apply_rows(target, target.open(), changes((1, "b", "update", 6)), stamp(2))
    apply_rows(target, target.open(), changes((1, "a", "insert", 5)), stamp(1))
    apply_rows(target, target.open(), changes(), stamp(3))
    assert held(target)[1]["v"] == "b"
    apply_rows(target, target.open(), changes((1, "c", "update", 7)), stamp(1, "another query"))
    assert held(target)[1]["v"] == "c", "another checkpoint counts for itself"
    apply_rows(target, target.open(), changes((1, "d", "update", 8)), None)
    assert held(target)[1]["v"] == "d", "a batch DataFrame has no number"


def test_a_new_column(target: Target) -> None:
    apply_rows(target, target.open(), changes((1, "a", "insert", 5)), stamp(1))
    more = changes((2, "b", "insert", 6)).append_column("n", pa.array([7]))
    apply_rows(target, target.open(), more, stamp(2))
    assert [(row["v"], row["n"]) for _, row in sorted(held(target).items())] == [("a", None), ("b", 7)]


def test_faults(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'upsert' is not a _change_type\n +There are insert"):
        last_changes(changes((1, "a", "upsert", 5)), ["id"])
    with pytest.raises((ConfigError, SinkError), match="kafka"):
        Target("kafka://h:1/t", "a", "b", ("id",)).open()
