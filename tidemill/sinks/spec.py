"""The sinks, each as one `SinkSpec`: which sink URIs are its own, and where its two halves are.

A sink is loaded when it is used, so that a worker has the libraries of one sink only.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidemill.config.parameters import Scheme
from tidemill.config.uri import SinkUri, parse_sink_uri
from tidemill.errors import ConfigError, redact
from tidemill.sinks.base import DriverSink, TaskSink
from tidemill.sinks.storage.paths import wants_tables


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """One sink. `task` and `driver` are `module:class`; both classes take the sink URI.

    `keeps_parts`: what it writes stays where it is, so that a delivery may replace what an earlier one left (`fresh`).
    """

    name: str
    schemes: frozenset[Scheme]
    task: str
    driver: str
    keeps_parts: bool = True
    wants: Callable[[SinkUri], bool] = lambda uri: True  # among several sinks of a scheme the first one that wants the URI has it

    def task_sink(self, uri: SinkUri) -> TaskSink:
        """The half of a worker process."""
        made: TaskSink = _load(self.task)(uri)
        return made

    def driver_sink(self, uri: SinkUri, *, fresh: bool) -> DriverSink:
        """The half of the driver."""
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
        "messages",
        frozenset({Scheme.MESSAGES}),
        "tidemill.sinks.messages:MessagesTaskSink",
        "tidemill.sinks.messages:MessagesDriverSink",
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
    """The sink that a URI means. Raises ConfigError where there is none."""
    for spec in SINKS:
        if uri.scheme in spec.schemes and spec.wants(uri):
            return spec
    raise ConfigError(f"no sink takes {redact(uri.text)}")


@functools.lru_cache(maxsize=8)
def open_task_sink(uri: str) -> TaskSink:
    """The sink of this worker process for a (resolved) sink URI; one a URI for the life of the process."""
    parsed = parse_sink_uri(uri)
    return spec_of(parsed).task_sink(parsed)


def open_driver_sink(uri: str, *, fresh: bool = False) -> DriverSink:
    """The driver's half. `fresh`: what an earlier delivery left in a file or folder is replaced (`tidemill replay`), not continued."""
    parsed = parse_sink_uri(uri)
    return spec_of(parsed).driver_sink(parsed, fresh=fresh)


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
