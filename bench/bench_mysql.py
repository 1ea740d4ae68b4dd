"""Log → MariaDB by two Spark workers, beside PyMySQL's own executemany into the same server: rows a second, our CPU a row, lag.

    python -m bench.bench_mysql inserts mixed hot --rows 400000
    python -m bench.bench_mysql lag --rate 5000 --seconds 60

`inserts`: single-row transactions that insert. `mixed`: 60 % inserts, 30 % updates, 10 % deletes, each row a transaction. `hot`: updates of
one row, each a transaction. `atomicity`: `mixed` under each `transaction-atomicity`, which says what `global` costs. The rows are
sysbench's columns. CPU is user + system of the driver, of Java and of the Python workers; the server's is shown beside and not counted.
The first tenth of a log warms everything up. `executemany`: one process, one connection, plain `INSERT … VALUES` of 256 rows a transaction:
only what PyMySQL and the server cost. `lag`: a whole `tidemill run` of a steady load; the age of the checkpoint in the database, sampled,
so every row is at most that late.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from bench.bench_pipeline import WARM_UP, delivery
from bench.corpus import Corpus, load
from bench.make_log import Shape, make_log, table_name
from bench.report.figures import Figure, Limit, note
from tidemill import tso
from tidemill.changelog.log_format import Affinity
from tidemill.delivery.work_item import TaskStats, total
from tidemill.demo.session import Delivery, Upstream
from tidemill.playground.programs.mariadb import MariaDbServer
from tidemill.spark.jobs import SparkRunner
from tidemill.spark.session import start_session, stop_spark
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.show import create_table

TABLES = 8
ROWS_OF_TRANSACTION = 256
ATOMICITIES = ("none", "table", "global")
STAGE = "Delivery: change log to MariaDB"
AIM_US = {"inserts": 12, "mixed": 12}  # CPU µs a row at most
RATES = {"inserts": 60_000, "mixed": 25_000, "hot": 1_000}  # rows a second at least
SERVER = ("--innodb-log-file-size=256M",)


def corpus_of(kind: str, folder: Path | None) -> Corpus:
    """Changes of one table, each a transaction of its own."""
    found = load("narrow", folder)
    n = len(found)
    if kind == "mixed":
        return replace(found, transaction=np.arange(n))
    if kind == "inserts":
        chosen = np.flatnonzero((found.op == 1) & ~found.old_value.is_valid().to_numpy(zero_copy_only=False))
        values, n = found.value.take(pa.array(chosen)), len(chosen)
        one = np.ones(n, np.uint8)
        return replace(
            found, op=one, transaction=np.arange(n), handle=np.arange(1, n + 1), value=values, old_value=pa.nulls(n, pa.binary())
        )
    values = found.value.filter(pa.array(found.op == 1))
    n = len(values)
    old = pa.concat_arrays([pa.nulls(1, pa.binary()), values.slice(0, n - 1)])
    ones = np.ones(n, np.uint8)
    return replace(found, op=ones, transaction=np.arange(n), handle=np.full(n, 8, np.int64), value=values, old_value=old)


def create_tables(server: MariaDbServer, corpus: Corpus) -> None:
    """The tables of the log, empty."""
    info = TableInfo.from_json(corpus.table_info)
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS bench")
        cursor.execute("CREATE DATABASE bench")
        for number in range(TABLES):
            name = table_name(Shape(), number)
            cursor.execute(create_table("bench", replace(info, name=name), UTC))


def cpu_of(server: MariaDbServer) -> tuple[float, float]:
    """Seconds of processor time so far: of this process and its children but the server, and of the server."""
    mine = spent = 0.0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        if process.pid == server.pid:
            spent = times.user + times.system
        else:
            mine += times.user + times.system
    return mine, spent


def measure(kind: str, server: MariaDbServer, options: argparse.Namespace, parameters: str) -> dict[str, Any]:
    """Deliver one log by Spark."""
    corpus = corpus_of(kind, options.corpus)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemill-bench-")))
        shape = Shape("narrow", options.rows, TABLES, 4, Affinity.TABLE, 5.0, rate=max(options.rows // 300, 1))
        make_log(folder / "log", shape, corpus=corpus)
        create_tables(server, corpus)
        session: Any = start_session(folder / "spark.log", master=f"local[{options.tasks}]")
        stack.callback(stop_spark, session)
        runner = SparkRunner(session.sparkContext, "bench")
        made = delivery(stack, folder / "log", f"{server.uri}?{parameters}", "default", runner, folder)
        at = made.reader.start_ts
        warm_up, ends = made.ends(options.batches)
        for number, end in enumerate(warm_up):
            made.driver.run(number, at, end)
            at = end
        (cpu, theirs), clock = cpu_of(server), time.perf_counter()
        stats: list[TaskStats] = []
        for number, end in enumerate(ends, WARM_UP):
            stats.append(made.driver.run(number, at, end).stats)
            at = end
        wall = time.perf_counter() - clock
        cpu, theirs = (now - before for now, before in zip(cpu_of(server), (cpu, theirs), strict=True))
    sums = total(stats)
    rows = max(1, sums.rows)
    return {
        "kind": kind,
        "rows": rows,
        "rows_per_s": round(rows / wall),
        "our_cpu_us_of_row": round(cpu * 1e6 / rows, 2),
        "server_cpu_us_of_row": round(theirs * 1e6 / rows, 2),
        "steps_us_of_row": {name: round(getattr(sums, f"{name}_ns") / 1000 / rows, 2) for name in ("route", "encode", "deliver")},
    }


def bare(server: MariaDbServer, options: argparse.Namespace) -> dict[str, Any]:
    """The same rows by PyMySQL's executemany, out of Python tuples that are there already."""
    corpus = corpus_of("inserts", options.corpus)
    create_tables(server, corpus)
    count = min(options.rows, 200_000)
    pad = [(k, f"{k:0120d}", f"{k:060d}") for k in range(1000)]
    names = [column.name for column in TableInfo.from_json(corpus.table_info).public_columns]
    query = f"INSERT INTO bench.{table_name(Shape(), 0)} ({','.join(names)}) VALUES ({','.join(['%s'] * len(names))})"
    rows = [(number, *pad[number % 1000])[: len(names)] for number in range(count)]
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        clock = time.perf_counter()
        for begin in range(0, count, ROWS_OF_TRANSACTION):
            cursor.executemany(query, rows[begin : begin + ROWS_OF_TRANSACTION])
            connection.commit()
        wall = time.perf_counter() - clock
    return {"kind": "executemany", "rows": count, "rows_per_s": round(count / wall)}


def ages(server: MariaDbServer, seconds: float) -> Iterator[float]:
    """The age of the checkpoint in the database, now and then."""
    end = time.monotonic() + seconds
    with server.connect() as connection, connection.cursor() as cursor:
        while time.monotonic() < end:
            cursor.execute("SELECT checkpoint_ts FROM tidb_cdc.tidemill_feed_v1")
            found = cursor.fetchall()
            if found and found[0][0]:
                yield time.time() - tso.physical_ms(int(found[0][0])) / 1000
            time.sleep(0.02)


def lag(options: argparse.Namespace) -> None:
    """A steady load through a whole run; prints how late the database is."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemill-bench-")))
        server = stack.enter_context(MariaDbServer(*SERVER, memory="512M"))
        workload = ("--workload", "append", "--rows", "10", "--resolved-interval", "0.5")
        upstream = stack.enter_context(Upstream(folder, rate=options.rate / 10, options=workload))
        delivery_ = stack.enter_context(Delivery(folder, upstream, server.uri, start_ts=upstream.began_ts))
        while int(delivery_.feed_status().get("batches", 0)) < 60:  # a cold query settles after some forty batches
            delivery_.check()
            time.sleep(0.5)
        written, clock = int(upstream.stats()["rows_written"]), time.monotonic()
        found = np.array(list(ages(server, options.seconds)))
        rate = (int(upstream.stats()["rows_written"]) - written) / (time.monotonic() - clock)
        delivery_.stop()
    p50, p99 = np.percentile(found, [50, 99])
    note(Figure(STAGE, f"age of the checkpoint at {options.rate:,} rows a second, p50", p50, "s"))
    note(Figure(STAGE, f"age of the checkpoint at {options.rate:,} rows a second, p99", p99, "s", aim=2))
    print(
        json.dumps(
            {"kind": "lag", "rows_per_s": round(rate), "p50_s": round(p50, 2), "p99_s": round(p99, 2), "max_s": round(found.max(), 2)}
        )
    )


def keep(kind: str, found: dict[str, Any], alone: float | None = None) -> None:
    """Note what a row cost, and how many came a second. `alone`: the rows that PyMySQL alone writes a second."""
    note(Figure(STAGE, kind, found["our_cpu_us_of_row"], "CPU µs a row", aim=AIM_US.get(kind)))
    limit = Limit("PyMySQL's executemany", alone) if alone is not None else None
    note(Figure(STAGE, f"{kind}, rows", found["rows_per_s"], "rows a second", limit, RATES.get(kind), most=False))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.bench_mysql", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("kinds", nargs="+", choices=["inserts", "mixed", "hot", "atomicity", "lag"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--parameters", default="worker-count=16")
    parser.add_argument("--rate", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--corpus", type=Path, help="folder of recorded corpora")
    options = parser.parse_args(arguments)
    kinds = [kind for kind in options.kinds if kind not in ("atomicity", "lag")]
    if kinds:
        with MariaDbServer(*SERVER, memory="512M") as server:
            alone = bare(server, options)
            print(json.dumps(alone), flush=True)
            for kind in kinds:
                found = measure(kind, server, options, options.parameters)
                print(json.dumps(found), flush=True)
                keep(kind, found, alone["rows_per_s"] if kind == "inserts" else None)
    if "atomicity" in options.kinds:
        with MariaDbServer(*SERVER, memory="512M") as server:
            for atomicity in ATOMICITIES:
                found = measure("mixed", server, options, f"{options.parameters}&transaction-atomicity={atomicity}")
                print(json.dumps({"transaction-atomicity": atomicity, **found}), flush=True)
                keep(f"mixed, transaction-atomicity={atomicity}", found)
    if "lag" in options.kinds:
        lag(options)


if __name__ == "__main__":
    main(sys.argv[1:])
