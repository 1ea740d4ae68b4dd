"""Log → Kafka: rows per CPU second, and where the time goes: in this process, into a real broker that is not counted.

    python -m bench.bench_kafka narrow --rows 1000000
    python -m bench.bench_kafka narrow --sinks open-protocol 'open-protocol&compression=zstd' canal-json

CPU is user + system of this process, by thread: `work` reads, routes, encodes and queues; `client` is librdkafka's (copy, checksum,
compression, sockets). `steps` divides the time of `work` on the wall. The first tenth of the log warms everything up and does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bench.bench_pipeline import WARM_UP, delivery
from bench.make_log import Shape, make_log
from bench.processes import TICKS
from bench.report.figures import Figure, Limit, note
from tidemill.changelog.log_format import Affinity
from tidemill.delivery.work_item import TaskStats, total
from tidemill.playground.programs.kafka_broker import KafkaBroker
from tidemill.spark.local import LocalRunner

SINKS = ("open-protocol", "open-protocol&compression=lz4", "open-protocol&compression=zstd", "canal-json&enable-tidb-extension=true")


def thread_cpu() -> dict[str, float]:
    """Seconds of processor time so far: of librdkafka's threads, and of the others."""
    spent = {"work": 0.0, "client": 0.0}
    for name, ticks in _threads():
        spent["client" if name.startswith("rdk:") else "work"] += ticks / TICKS
    return spent


def _threads() -> Iterator[tuple[str, int]]:
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        try:
            text = (task / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            continue
        name, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()
        yield name, int(fields[11]) + int(fields[12])


def measure(log: Path, sink: str, batches: int) -> dict[str, Any]:
    """One log into one new topic."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemill-bench-")))
        made = delivery(stack, log, sink, "index-value", LocalRunner(), folder)
        at = made.reader.start_ts
        warm_up, ends = made.ends(batches)
        for number, end in enumerate(warm_up):
            made.driver.run(number, at, end)
            at = end
        begin = thread_cpu()
        stats: list[TaskStats] = []
        for number, end in enumerate(ends, WARM_UP):
            stats.append(made.driver.run(number, at, end).stats)
            at = end
        cpu = {name: seconds - begin[name] for name, seconds in thread_cpu().items()}
    sums = total(stats)
    rows = max(1, sums.rows)
    return {
        "rows": sums.rows,
        "rows_per_cpu_s": round(rows / sum(cpu.values())),
        "cpu_ns_of_row": {name: round(seconds * 1e9 / rows) for name, seconds in cpu.items()},
        "steps_ns_of_row": {name: round(getattr(sums, f"{name}_ns") / rows) for name in ("route", "encode", "deliver")},
        "bytes_of_row": round(sums.bytes_out / rows),
        "messages": sums.messages,
    }


def librdkafka(address: str, topic: str, messages: int, size: int) -> float:
    """CPU seconds of handing so many messages of one size to librdkafka alone, until all are acknowledged."""
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 50, "queue.buffering.max.kbytes": 65536})
    value = bytes(size)
    begin = sum(thread_cpu().values())
    for number in range(messages):
        while True:
            try:
                producer.produce(topic, value, partition=number % 4)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    return sum(thread_cpu().values()) - begin


def keep(corpus: str, sink: str, result: dict[str, Any], alone_s: float) -> None:
    """Note what a million rows cost, beside librdkafka alone with as many messages of the mean size."""
    millions = result["rows"] / 1e6
    cost = sum(result["cpu_ns_of_row"].values()) / 1e3
    aim = 1.5 if corpus == "narrow" and sink == SINKS[0] else None
    limit = Limit("librdkafka alone", alone_s / millions)
    note(Figure("Delivery: change log to Kafka", f"{corpus} {sink}", cost, "CPU s a million rows", limit, aim))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.bench_kafka", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("corpus", nargs="+", choices=["narrow", "mixed", "wide"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--sinks", nargs="+", default=SINKS, help="protocol and further parameters of the sink URI")
    parser.add_argument("--corpora", type=Path, help="folder of recorded corpora")
    options = parser.parse_args(arguments)
    with KafkaBroker(heap="1g") as broker:
        for name in options.corpus:
            with tempfile.TemporaryDirectory(prefix="tidemill-bench-log-") as folder:
                log = Path(folder) / "log"
                make_log(log, Shape(name, options.rows, 8, 4, Affinity.TABLE, 30.0, rate=options.rows // 300 or 1), options.corpora)
                for number, sink in enumerate(options.sinks):
                    uri = f"kafka://{broker.address}/{name}-{number}?partition-num=4&protocol={sink}"
                    result = measure(log, uri, options.batches)
                    size = result["bytes_of_row"] * result["rows"] // result["messages"]
                    alone_s = librdkafka(broker.address, f"{name}-{number}", result["messages"], size)
                    print(json.dumps({"corpus": name, "sink": sink, **result, "librdkafka_alone_s": round(alone_s, 3)}), flush=True)
                    keep(name, sink, result, alone_s)


if __name__ == "__main__":
    main(sys.argv[1:])
