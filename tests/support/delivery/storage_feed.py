"""The two halves of a storage sink without Spark, and what readers of its files see."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest

from tests.support.delivery.messages import messages_of
from tidemill.config.uri import SinkUri
from tidemill.sinks.base import BatchContext
from tidemill.sinks.storage.driver import StorageDriverSink
from tidemill.sinks.storage.open import store_of
from tidemill.sinks.storage.store import Store
from tidemill.sinks.storage.task import StorageTaskSink
from tidemill.tidb.schema.tracking.versions import TableVersion

Line = tuple[int, bytes]
"""commit_ts and value."""


class Feed:
    """A driver and a task of one sink."""

    def __init__(self, uri: SinkUri, *, fresh: bool = False, store: Store | None = None) -> None:
        self.uri = uri
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tidemill.sinks.storage.driver.store_of", lambda uri: store or store_of(uri))
            self.driver = StorageDriverSink(uri, fresh=fresh)
        self.task = StorageTaskSink(uri)

    def rows(self, ctx: BatchContext, lines: Iterable[tuple[TableVersion, int, Line]]) -> None:
        """What the tasks do: (table version, partition, line) each."""
        found = list(lines)
        topics = [self.driver.place(version) for version, _, _ in found]
        targets = sorted({(topic, partition) for topic, (_, partition, _) in zip(topics, found, strict=True)})
        items = [(targets.index((topic, partition)), None, value) for topic, (_, partition, (_, value)) in zip(topics, found, strict=True)]
        messages = messages_of(items)
        messages.table["commit_ts"] = [ts for _, _, (ts, _) in found]
        self.task.begin(ctx)
        self.task.deliver(messages, targets)
        assert self.task.flush() == len(found)

    def batch(self, ctx: BatchContext, lines: Iterable[tuple[TableVersion, int, Line]] = (), ddls: Iterable[Any] = ()) -> None:
        self.driver.begin_batch(ctx)
        self.rows(ctx, lines)
        for event in ddls:
            assert self.driver.ddl(event, "")
        self.driver.finish_batch(ctx)


def some_lines(from_ts: int, count: int, version: TableVersion, partition: int = 0) -> list[tuple[TableVersion, int, Line]]:
    return [(version, partition, (from_ts + 1 + i, b"%d\r\n" % (from_ts + 1 + i))) for i in range(count)]


def content(files: dict[str, bytes]) -> list[int]:
    """All rows that readers see: those of files at or below the number in their folder's index."""
    found: list[int] = []
    for name, data in sorted(files.items()):
        if match := re.fullmatch(r"(.*)/(CDC[0-9]+)\.csv", name):
            index = files.get(f"{match[1]}/meta/CDC.index", b"").decode().removesuffix(".csv\n")
            if match[2] <= index:
                found += [int(line) for line in data.split()]
    return sorted(found)
