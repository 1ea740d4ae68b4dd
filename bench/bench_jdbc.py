"""What reading a whole table from TiKV costs, beside Spark's JDBC source and the same rows in a MariaDB, in the same run.

    python -m bench.bench_jdbc --rows 1000000

CPU is user + system of Java, the Python workers and this process. The servers (the playground, which is a process of its own, and MariaDB)
are not counted. Both read eight parts on two cores, all columns, into nothing; the best of three passes in turn, after one that does not
count.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from pyspark.sql import DataFrame

from bench.processes import Cpu
from bench.report.figures import Figure, note
from bench.served import serving
from bench.spark_jars import spark_jars
from tidemill.playground.programs.mariadb import MariaDbServer
from tidemill.playground.server import Playground
from tidemill.spark import register
from tidemill.spark.session import start_session

PARTS = 8
PASSES = 4
TABLE = "CREATE TABLE bench.items (id BIGINT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(40), price DECIMAL(12,2), at DATETIME, stock INT)"


async def serve(rows: int) -> None:
    """A cluster with the table, until stdin ends."""
    playground = Playground(1)
    playground.execute(f"CREATE DATABASE bench; {TABLE}")
    playground.load("bench.items", rows, regions=PARTS)
    async with playground:
        print(json.dumps({"pd": playground.pd_address}), flush=True)
        await asyncio.to_thread(sys.stdin.read)


def of_servers() -> float:
    """CPU seconds so far of the playground and MariaDB, which are children of this process."""
    found = 0.0
    for child in psutil.Process().children():
        if "--serve" in child.cmdline() or child.name().startswith("mariadbd"):
            found += sum(child.cpu_times()[:2])
    return found


def spent(frame: Callable[[], DataFrame]) -> tuple[float, float]:
    """CPU seconds without the servers', and wall seconds, of computing all rows and columns."""
    begin, servers, then = Cpu.now(), of_servers(), time.perf_counter()
    frame().write.format("noop").mode("overwrite").save()
    wall = time.perf_counter() - then
    return Cpu.now().since(begin).total - (of_servers() - servers), wall


def measure(rows: int, pd: str, server: MariaDbServer, folder: Path) -> None:
    extra = {"spark.jars": spark_jars()}
    spark = register(start_session(folder / "spark.log", master="local[2]", extra=extra, defaults={"spark.driver.memory": "2g"}))
    jdbc = {
        # by MySQL's name: Spark quotes names as MariaDB reads them
        "url": f"jdbc:mysql://127.0.0.1:{server.port}/bench?permitMysqlScheme&sslMode=disable&rewriteBatchedStatements=true",
        "driver": "org.mariadb.jdbc.Driver",
        "user": "root",
        "password": "",
        "dbtable": "items",
    }
    cut = {"partitionColumn": "id", "lowerBound": "1", "upperBound": str(rows), "numPartitions": str(PARTS), "fetchsize": "10000"}

    def table() -> DataFrame:
        return spark.read.format("tidemill.table").options(pd=pd, table="bench.items").load()

    def by_jdbc() -> DataFrame:
        return spark.read.format("jdbc").options(**jdbc, **cut).load()

    try:
        connection = server.connect()
        with connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE bench")
            cursor.execute(TABLE)
        connection.close()
        table().write.format("jdbc").options(**jdbc, batchsize="10000").mode("append").save()
        counts = [one().selectExpr("count(*)", "sum(stock)", "sum(price)", "max(name)").first() for one in (table, by_jdbc)]
        if counts[0] != counts[1]:
            raise SystemExit(f"the rows differ: {counts}")
        best: dict[str, tuple[float, float]] = {}
        for number in range(PASSES):
            for way, frame in {"tidemill.table": table, "jdbc": by_jdbc}.items():
                found = spent(frame)
                if number:
                    best[way] = min(found, best.get(way, found))
        for way, (cpu, wall) in best.items():
            note(Figure("Tables at a ts, beside JDBC", way, rows / cpu / 1e6, "million rows a CPU s", most=False))
            print(f"{way}: {rows / cpu / 1e6:.2f} M rows per CPU s, {rows / wall / 1e6:.2f} M rows/s", flush=True)
    finally:
        spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(given.rows))
        return
    with (
        tempfile.TemporaryDirectory(prefix="bench-jdbc-") as folder,
        serving("bench.bench_jdbc", "--rows", str(given.rows)) as pd,
        MariaDbServer(memory="512M") as server,
    ):
        measure(given.rows, pd, server, Path(folder))


if __name__ == "__main__":
    main()
