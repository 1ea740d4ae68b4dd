"""`tidemill consume` in processes of their own, and topics made by hand for them."""

from __future__ import annotations

import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.delivery.runs import PATIENCE_S
from tidemill.consumer.order.progress import Progress
from tidemill.demo.session import TIDEMILL
from tidemill.playground.programs.kafka_broker import KafkaBroker

Write = tuple[int, bytes, bytes]
"""(partition, key, value)."""


def make_topic(broker: KafkaBroker, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result()


def write(broker: KafkaBroker, topic: str, messages: Iterable[Write]) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 20, "message.max.bytes": 67108864})
    for number, (partition, key, value) in enumerate(messages):
        if number % 1000 == 0:
            assert producer.flush(60) == 0
        producer.produce(topic, value, key, partition)
        producer.poll(0)
    assert producer.flush(60) == 0


class Process:
    """A `tidemill consume` of its own, that a test may kill."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        self._log = folder / "consume.log"
        self._argv = [*TIDEMILL, "consume", *map(str, arguments)]

    def __enter__(self) -> Process:
        with self._log.open("ab") as noise:
            self.process = subprocess.Popen(self._argv, stdout=noise, stderr=noise)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def said(self) -> str:
        return self._log.read_text()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, f"{what}: {self.said}"
            time.sleep(0.02)


def flushed_ts(file: Path) -> int:
    """Return the ts up to which another process sees committed rows."""
    if not file.exists():
        return 0
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
        try:
            found = connection.execute("SELECT value FROM _tidemill_state WHERE name = 'progress'").fetchone()
        except sqlite3.OperationalError:
            return 0
    return Progress.from_json(found[0]).flushed_ts if found else 0


def select(file: Path, query: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
        return connection.execute(query).fetchall()
