"""The whole job, from TiKV's change feed to the sink: CPU seconds per million rows when catching up, and lag and CPU when live.

    python -m bench.bench_end_to_end catch-up [blackhole file kafka] [--rows 10000000] [--work FOLDER]
    python -m bench.bench_end_to_end live [--rate 10000] [--seconds 60] [--mode throughput low-latency]
        [--resolved 1] [--work FOLDER]

The upstream (a playground, sysbench's columns) and the Kafka broker are processes of their own that are not counted. `catch-up` makes
two runs a sink, of --rows and of a tenth: what the larger one took more is the price of a row, and what is left is start-up.
`live` writes --rate rows a second in transactions of ten rows and reads them back from Kafka: lag is arrival minus commit time.
TiCDC's figures: 8.7 CPU s per million such rows into the black hole, 11 to 12.5 into files (another machine; facts in RESULTS.md).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.report.figures import Figure, files_in, note
from bench.usage import Cpu, TreeUsage
from tidemill import tso
from tidemill.config.sections import PERFORMANCE_MODES
from tidemill.demo.session import Delivery, Upstream
from tidemill.playground.programs.kafka_broker import KafkaBroker

TABLE = "CREATE TABLE bench.sbtest (id BIGINT PRIMARY KEY AUTO_INCREMENT, k INT NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL)"
SINKS = ("blackhole", "file", "kafka")
TICDC_BLACKHOLE_S = 8.7
AIMS_S = {"blackhole": 0.6, "file": 0.7, "kafka": 1.5}  # CPU s a million narrow rows at most
LIVE_AIMS = (0.10, 0.4, 0.7)  # of `low-latency`: cores, and seconds from commit to consumer: p50, p99
TOPIC = "bench"


@dataclass(frozen=True, slots=True)
class Run:
    rows: int
    wall_s: float
    cpu: Cpu


def deliver_all(folder: Path, upstream: Upstream, sink_uri: str, rows: int) -> Run:
    """Capture and deliver everything the upstream holds, from nothing."""
    end_ts = upstream.rest()
    began = time.monotonic()
    delivery = Delivery(folder, upstream, sink_uri, start_ts=upstream.began_ts, options=("--target-ts", str(end_ts)))
    with delivery, TreeUsage(delivery.process.pid if delivery.process else 0) as usage:
        assert delivery.process is not None
        status = delivery.process.wait()
        wall = time.monotonic() - began
    if status:
        raise SystemExit(f"tidemill run ended with {status}: see {delivery.output}")
    delivered = int(delivery.feed_status()["rows"])
    if delivered != rows:
        raise SystemExit(f"{delivered} rows were delivered, not {rows}")
    return Run(rows, wall, usage.cpu())


def catch_up(sink: str, rows: int, work: Path) -> None:
    """Two sizes into one sink; prints the price of a million rows."""
    runs = []
    for count in (rows // 10, rows):
        with fresh_folder(work) as folder, ExitStack() as stack:
            uri = sink_uri(sink, folder, stack)
            upstream = stack.enter_context(Upstream(folder, options=("--workload", "none", "--resolved-interval", "0.5")))
            upstream.call("sql", text=f"CREATE DATABASE bench; {TABLE}")
            upstream.call("load", table="bench.sbtest", rows=count, regions=16)
            runs.append(deliver_all(folder, upstream, uri, count))
    small, large = runs
    millions = (large.rows - small.rows) / 1e6
    price = Cpu({k: v / millions for k, v in large.cpu.minus(small.cpu).by_kind.items()})
    rate = (large.rows - small.rows) / max(large.wall_s - small.wall_s, 1e-9)
    start_up = small.cpu.total - price.total * small.rows / 1e6
    print(f"catch-up {sink}: {price.total:.2f} CPU s per million rows ({price}), {rate:,.0f} rows/s, start-up {start_up:.1f} CPU s")
    print(f"  TiCDC's black hole / this: {TICDC_BLACKHOLE_S / price.total:.1f}", flush=True)
    named = sink + files_in(work)
    note(Figure("The whole job, catching up", named, price.total, "CPU s a million rows", aim=AIMS_S[sink]))
    for kind, seconds in sorted(price.by_kind.items()):
        note(Figure("The whole job, catching up", f"{named}, of it {kind}", seconds, "CPU s a million rows"))
    note(Figure("The whole job, catching up", f"{named}, rows", rate, "rows a second", most=False))


def sink_uri(sink: str, folder: Path, stack: ExitStack) -> str:
    match sink:
        case "blackhole":
            return "blackhole:///?protocol=open-protocol"
        case "file":
            return f"file://{folder}/out?protocol=open-protocol&partition-num=4"
        case _:
            broker = stack.enter_context(KafkaBroker(folder / "kafka"))
            return f"kafka://{broker.address}/{TOPIC}?protocol=open-protocol&partition-num=4"


@contextmanager
def fresh_folder(work: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="tidemill-bench-", dir=work))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Arrivals:
    """Reads a topic as it grows: for each row event the time from commit to arrival, in seconds."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self.lags: list[float] = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._read, daemon=True)

    def _read(self) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {"bootstrap.servers": self._broker, "group.id": "bench", "auto.offset.reset": "latest", "fetch.wait.max.ms": 10}
        )
        consumer.subscribe([TOPIC])
        while not self.over.is_set():
            for message in consumer.consume(10_000, 0.1):
                now, key = time.time() * 1000, message.key() or b""
                at = 8
                while at < len(key):
                    size = int.from_bytes(key[at : at + 8], "big")
                    event = json.loads(key[at + 8 : at + 8 + size])
                    at += 8 + size
                    if event["t"] == 1:
                        self.lags.append((now - tso.physical_ms(event["ts"])) / 1000)
        consumer.close()


def live(rate: int, seconds: float, work: Path, mode: str, resolved: float) -> None:
    """A steady load; prints lag and CPU."""
    with fresh_folder(work) as folder, ExitStack() as stack:
        config = folder / "feed.toml"
        config.write_text(f'performance-mode = "{mode}"\n')
        uri = sink_uri("kafka", folder, stack)
        broker = uri.split("/")[2]
        options = ("--workload", "append", "--rows", "10", "--resolved-interval", str(resolved))
        upstream = stack.enter_context(Upstream(folder, rate=rate / 10, options=options))
        delivery = stack.enter_context(Delivery(folder, upstream, uri, options=("--config", str(config))))
        assert delivery.process is not None
        usage = stack.enter_context(TreeUsage(delivery.process.pid))
        while int(delivery.feed_status().get("batches", 0)) < 60:  # a cold query settles after some forty batches
            delivery.check()
            time.sleep(0.5)
        arrivals = Arrivals(broker)
        arrivals.thread.start()
        time.sleep(5)
        arrivals.lags.clear()
        before, written = usage.cpu(), int(upstream.stats()["rows_written"])
        began = time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        used, written = usage.cpu().minus(before), int(upstream.stats()["rows_written"]) - written
        arrivals.over.set()
        arrivals.thread.join()
        delivery.stop()
    lags = np.array(arrivals.lags)
    p50, p90, p99 = np.percentile(lags, [50, 90, 99])
    cores = Cpu({k: v / took for k, v in used.by_kind.items()})
    print(f"live, {mode}, load {os.getloadavg()[0]:.1f}: {written / took:,.0f} rows/s; commit to consumer: ", end="")
    print(f"p50 {p50:.2f} s, p90 {p90:.2f} s, p99 {p99:.2f} s, ", end="")
    print(f"max {lags.max():.2f} s over {len(lags):,} rows; {cores.total:.3f} core ({cores})", flush=True)
    stage = f"Live, {rate:,} rows a second into Kafka"
    aims = LIVE_AIMS if mode == "low-latency" else (None, None, None)
    note(Figure(stage, mode, cores.total, "cores", aim=aims[0]))
    note(Figure(stage, f"{mode}, commit to consumer, p50", p50, "s", aim=aims[1]))
    note(Figure(stage, f"{mode}, commit to consumer, p99", p99, "s", aim=aims[2]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("catch-up")
    first.add_argument("sinks", nargs="*", metavar="SINK", help=f"of {', '.join(SINKS)}; default: all")
    first.add_argument("--rows", type=int, default=10_000_000)
    second = commands.add_parser("live")
    second.add_argument("--rate", type=int, default=10_000)
    second.add_argument("--seconds", type=float, default=60.0)
    second.add_argument("--mode", nargs="*", default=list(PERFORMANCE_MODES), help="performance-mode of the changefeed, one run each")
    second.add_argument("--resolved", type=float, default=1.0, help="seconds between two resolved ts of the upstream; TiKV's default: 0.2")
    for command in (first, second):
        command.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()), help="folder for logs and output")
    args = parser.parse_args()
    if args.command == "live":
        for mode in args.mode:
            live(args.rate, args.seconds, args.work, mode, args.resolved)
    else:
        for sink in args.sinks or SINKS:
            catch_up(sink, args.rows, args.work)


if __name__ == "__main__":
    main()
