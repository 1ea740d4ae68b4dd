"""The sinks as a table of `SinkSpec`: the sink URIs of each, and its two classes.

A sink is imported on first use, so a worker loads the libraries of one sink only.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidemill.config.database import Atomicity
from tidemill.config.parameters import Scheme
from tidemill.config.uri import SinkUri, parse_sink_uri
from tidemill.errors import ConfigError, redact
from tidemill.sinks.base import DriverSink, TaskSink
from tidemill.sinks.storage.paths import wants_tables


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """One sink. `task` and `driver` are `module:class`; both classes take the sink URI.

    `keeps_parts`: its output stays in place, so a delivery can replace the output of an earlier one (`fresh`).
    `by_commit_ts`: it keeps one order over all tables, so each task has a range of commit ts of all tables.
    `one_task`: whether one task has all rows, in the order of their commits.
    """

    name: str
    schemes: frozenset[Scheme]
    task: str
    driver: str
    keeps_parts: bool = True
    by_commit_ts: bool = False
    one_task: Callable[[SinkUri], bool] = lambda uri: False
    wants: Callable[[SinkUri], bool] = lambda uri: True  # of several sinks with one scheme the first that wants the URI takes it

    def task_sink(self, uri: SinkUri) -> TaskSink:
        """Return the task sink."""
        made: TaskSink = _load(self.task)(uri)
        return made

    def driver_sink(self, uri: SinkUri, *, fresh: bool) -> DriverSink:
        """Return the driver sink."""
        made: DriverSink = _load(self.driver)(uri, fresh=fresh) if self.keeps_parts else _load(self.driver)(uri)
        return made


_PLACES = frozenset({Scheme.FILE, Scheme.S3})

SINKS = (
    SinkSpec(
        "kafka",
        frozenset({Scheme.KAFKA}),
        "tidemill.sinks.kafka.task:KafkaTaskSink",
        "tidemill.sinks.kafka.driver:KafkaDriverSink",
        keeps_parts=False,
    ),
    SinkSpec(
        "storage",
        _PLACES,
        "tidemill.sinks.storage.task:StorageTaskSink",
        "tidemill.sinks.storage.driver:StorageDriverSink",
        wants=wants_tables,
    ),
    SinkSpec("files", _PLACES, "tidemill.sinks.files:FilesTaskSink", "tidemill.sinks.files:FilesDriverSink"),
    SinkSpec(
        "canal",
        frozenset({Scheme.CANAL}),
        "tidemill.sinks.canal.task:CanalTaskSink",
        "tidemill.sinks.canal.driver:CanalDriverSink",
        by_commit_ts=True,
    ),
    SinkSpec(
        "messages",
        frozenset({Scheme.MESSAGES}),
        "tidemill.sinks.messages:MessagesTaskSink",
        "tidemill.sinks.messages:MessagesDriverSink",
    ),
    SinkSpec(
        "mysql",
        frozenset({Scheme.MYSQL}),
        "tidemill.sinks.mysql.task:MysqlTaskSink",
        "tidemill.sinks.mysql.driver:MysqlDriverSink",
        one_task=lambda uri: uri.database.atomicity is Atomicity.GLOBAL,
    ),
    SinkSpec(
        "lake",
        frozenset({Scheme.DELTA, Scheme.ICEBERG}),
        "tidemill.sinks.lake.task:LakeTaskSink",
        "tidemill.sinks.lake.driver:LakeDriverSink",
    ),
    SinkSpec(
        "blackhole",
        frozenset({Scheme.BLACKHOLE}),
        "tidemill.sinks.blackhole:BlackholeTaskSink",
        "tidemill.sinks.blackhole:BlackholeDriverSink",
        keeps_parts=False,
    ),
)


def spec_of(uri: SinkUri) -> SinkSpec:
    """Return the sink of a URI. Raises ConfigError if there is none."""
    for spec in SINKS:
        if uri.scheme in spec.schemes and spec.wants(uri):
            return spec
    raise ConfigError(f"no sink takes {redact(uri.text)}")


@functools.lru_cache(maxsize=8)
def open_task_sink(uri: str) -> TaskSink:
    """Return this worker process's task sink for a (resolved) sink URI. There is one for each URI as long as the process lives."""
    parsed = parse_sink_uri(uri)
    return spec_of(parsed).task_sink(parsed)


def forget_task_sinks() -> None:
    """Close this process's task sinks: it runs no more items for a while."""
    open_task_sink.cache_clear()


def open_driver_sink(uri: str, *, fresh: bool = False) -> DriverSink:
    """Return the driver sink. `fresh`: replace the output of an earlier delivery (`tidemill replay`) instead of continuing it."""
    parsed = parse_sink_uri(uri)
    return spec_of(parsed).driver_sink(parsed, fresh=fresh)


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
