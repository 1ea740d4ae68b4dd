"""A feature table: what is known of each customer, as it was known at any moment, so that a model is trained on nothing from the future.

    pip install 'tidemill[views,lake,playground]'
    python examples/feature_table.py

The upstream is a small TiDB in this process. With a cluster of yours, `log` is what `tidemill capture --log` writes, and
`tidemill view run` keeps the view.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import tidemill.spark
from tidemill.testing import Upstream
from tidemill.views import View, Views, create

FEATURES = """
    SELECT customer, count(*) AS orders, sum(amount) AS spent, max(amount) AS largest, count(DISTINCT product) AS products
    FROM shop.orders GROUP BY customer"""

COLUMNS = ("customer", "orders", "spent", "largest", "products")


def keep(log: str, folder: Path) -> View:
    """A view of the features in a Delta table. `catch_up` brings it to where the log is."""
    views = Views(folder / "views")
    create(views, "features", log, FEATURES, f"delta://{folder}/lake")
    return View(views, "features")


def features_at(spark: SparkSession, folder: Path, ts: int) -> DataFrame:
    """The features of all customers as they were at a TSO: the moment of a label, a click, a refund."""
    return tidemill.spark.as_of(spark, f"{folder}/lake", ts)["views.features"].select(*COLUMNS)


def run(spark: SparkSession, folder: Path) -> tuple[DataFrame, DataFrame]:
    """Features before and after a customer's second order."""
    with Upstream() as upstream:
        upstream.sql(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.orders (id INT PRIMARY KEY, customer VARCHAR(20), product INT, amount DECIMAL(10,2))",
        )
        with keep(upstream.log, folder) as view:
            upstream.sql("INSERT INTO shop.orders VALUES (1, 'Ada', 7, 2.50), (2, 'Grace', 7, 1.00)")
            view.catch_up()
            before = view.resolved_ts
            upstream.sql("INSERT INTO shop.orders VALUES (3, 'Ada', 8, 4.00)", "DELETE FROM shop.orders WHERE id = 2")
            view.catch_up()
            return features_at(spark, folder, before), features_at(spark, folder, view.resolved_ts)


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").appName("features").getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        for features in run(spark, Path(folder)):
            features.show()
    spark.stop()


if __name__ == "__main__":
    main()
