"""Republishing: the consumer encodes the events that it reads, perhaps in another protocol, and sends them to Kafka or files.

These targets have no transactions. First everything is acknowledged, then progress is written to a state file. After a crash the rows
between the two are sent again (at-least-once).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC
from itertools import groupby
from pathlib import Path

import numpy as np

from tidemill.changelog.storage import durable
from tidemill.config.file import ChangefeedConfig
from tidemill.config.sinks import Ddls, Place
from tidemill.config.uri import SinkUri
from tidemill.consumer.order.progress import STATE, Progress
from tidemill.consumer.rawrows import Shape, Shapes, cells_of, raw_record, style_of_row, targets_of
from tidemill.delivery.inputs.table_pack import Output
from tidemill.delivery.inputs.table_router import control_messages_of
from tidemill.delivery.task.compiled_tables import row_encoder
from tidemill.delivery.task.encoder import EncodesRows
from tidemill.errors import ConfigError, MalformedBytes, SinkError, SinkUnavailable
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord, row_array
from tidemill.protocols.all import PROTOCOLS, spec_of
from tidemill.protocols.open.events import DdlMessage, RowEvent
from tidemill.rules.dispatch import partition
from tidemill.sinks.base import BatchContext
from tidemill.sinks.event_messages import EventMessages, MessageDriver
from tidemill.sinks.parts import file_errors
from tidemill.sinks.spec import open_driver_sink, open_task_sink
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.types.jsonstyle import JsonStyle

log = logging.getLogger(__name__)

FEED = "consume"
_CHUNK_ROWS = 4096


@dataclass(slots=True)
class _Batch:
    """The events of the present batch: rows, then DDLs."""

    rows: list[tuple[int, RawRecord, JsonStyle]] = field(default_factory=list)  # target, row, how its documents are printed
    ddls: list[DdlMessage] = field(default_factory=list)
    last_ts: int = 0


class Republish:
    """See the module. Raises ConfigError for a protocol or layout that needs table versions, which events do not show."""

    commits_before_ddls = False

    def __init__(self, sink: SinkUri, config: ChangefeedConfig, state: Path) -> None:
        if sink.protocol is None or not spec_of(sink.protocol).from_events:
            words = ", ".join(spec.spellings[0] for spec in PROTOCOLS.values() if spec.from_events)
            raise ConfigError(f"--sink-uri {sink}: messages of this protocol cannot be made of events", hint=f"Use one of {words}.")
        if sink.spec.ddls is not Ddls.MESSAGES:
            raise ConfigError(
                f"--sink-uri {sink}: files of tables cannot be made of events, which tell no table's schema",
                hint="Use messages://FILE for canal-json, or file:// with open-protocol.",
            )
        self._sink, self._state = sink, state
        self._dispatcher = config.dispatcher()
        self._driver, self._tasks = open_driver_sink(sink.text), open_task_sink(sink.text)
        self._output = Output(sink.encoding, UTC)
        self._counts = self._driver.ensure_topics({sink.topic})
        self._targets, self._first = targets_of(self._counts)
        assert isinstance(self._driver, MessageDriver), "what encodes events sends messages"
        self._driver.speak(EventMessages(control_messages_of(sink.encoding), lambda topic: self._counts[topic], lambda: self._targets))
        self._shapes = Shapes()
        self._encoders: dict[JsonStyle, EncodesRows] = {}
        self._encoded_shapes = 0
        self._batch = _Batch()
        self._saved, self._epoch, self._number = self._load()
        self._from_ts = self._saved.flushed_ts

    # State

    def _load(self) -> tuple[Progress, int, int]:
        """Return progress, epoch and number of the last batch. Each start begins a new epoch."""
        try:
            first, second = self._state.read_text().splitlines()
            epoch, number = map(int, second.split())
        except FileNotFoundError:
            return Progress(), 1, 0
        except (OSError, ValueError) as error:
            raise MalformedBytes(f"the consumer's state {self._state} cannot be read: {error}", hint=STATE.hint) from None
        return Progress.from_json(first), epoch + 1, number

    def _store(self, progress: Progress) -> None:
        with file_errors("writing the consumer's state", self._state):
            durable.put(str(self._state), f"{progress.to_json()}\n{self._epoch} {self._number}\n".encode())

    def progress(self) -> Progress:
        """See `targets.ConsumerTarget`."""
        return self._saved

    # What comes

    def rows(self, events: Sequence[RowEvent]) -> None:
        """See `targets.ConsumerTarget`."""
        if self._batch.ddls:
            self._send(self._batch.last_ts)
        for event in events:
            if event.only_handle_key:
                raise SinkError(f"a row of {event.schema}.{event.table} at {event.ts} was too large: its message holds only the key")
            shape = self._shapes.shape(event)
            try:
                record, style = raw_record(shape, event), style_of_row(event)
            except (TypeError, ValueError) as error:
                raise SinkError(f"a row of {event.schema}.{event.table} at {event.ts} cannot be sent again: {error}") from None
            self._batch.rows.append((self._target(shape, event), record, style))
            self._batch.last_ts = event.ts

    def _target(self, shape: Shape, event: RowEvent) -> int:
        topic = self._topic(event.schema, event.table)
        rule = self._dispatcher.rule(shape.version)
        after = cells_of(shape, event.after) if event.after else None
        before = cells_of(shape, event.before, event.after) if event.before else None
        return self._first[topic] + partition(rule, shape.version, before, after, event.ts, self._counts[topic])

    def _topic(self, schema: str, table: str) -> str:
        """Return the topic of a table, and create it if it is missing."""
        topic = self._dispatcher.topic(schema, table, self._sink.topic)
        if topic not in self._counts:
            more = self._driver.ensure_topics({topic})
            self._first[topic] = len(self._targets)
            self._targets = [*self._targets, *((topic, number) for number in range(more[topic]))]
            self._counts |= more
        return topic

    def ddl(self, ddl: DdlMessage) -> None:
        """See `targets.ConsumerTarget`."""
        if self._batch.ddls and self._batch.last_ts < ddl.ts:
            self._send(self._batch.last_ts)
        self._batch.ddls.append(ddl)
        self._batch.last_ts = ddl.ts

    def commit(self, progress: Progress) -> None:
        """See `targets.ConsumerTarget`."""
        self._send(progress.flushed_ts)
        self._store(progress)
        self._saved = progress

    def abandon(self) -> None:
        """See `targets.ConsumerTarget`."""
        self._batch = _Batch()
        self._from_ts = self._saved.flushed_ts
        self._epoch += 1

    def close(self) -> None:
        """See `targets.ConsumerTarget`."""
        self._driver.close()

    # Sending

    def _send(self, to_ts: int) -> None:
        """Send one batch: rows, then DDLs, then the resolved ts."""
        batch, self._batch = self._batch, _Batch()
        self._number += 1
        context = BatchContext(FEED, self._number, self._epoch, self._from_ts, to_ts)
        try:
            self._driver.begin_batch(context)
            self._deliver(BatchContext(FEED, self._number, self._epoch, self._from_ts, to_ts, item=0), batch.rows)
            for ddl in batch.ddls:
                self._send_ddl(ddl)
            self._driver.resolved(to_ts)
            self._driver.finish_batch(context)
        except SinkUnavailable:
            self._driver.discard(context)
            raise
        self._from_ts = to_ts

    def _deliver(self, context: BatchContext, rows: list[tuple[int, RawRecord, JsonStyle]]) -> None:
        self._tasks.begin(context)
        try:
            rows.sort(key=lambda row: row[0])  # stable: in order within each target
            for style, alike in groupby(rows, key=lambda row: row[2]):
                some = list(alike)
                for start in range(0, len(some), _CHUNK_ROWS):
                    self._deliver_chunk(some[start : start + _CHUNK_ROWS], style)
            self._tasks.flush()
        except BaseException:
            self._tasks.abandon()
            raise

    def _deliver_chunk(self, chunk: list[tuple[int, RawRecord, JsonStyle]], style: JsonStyle) -> None:
        targets = [target for target, _, _ in chunk]
        array, _keep = row_array([record for _, record, _ in chunk], targets)
        borders = [i for i in range(len(targets)) if i == 0 or targets[i] != targets[i - 1]]
        messages = self._encoding(style).encode(array, np.array([*borders, len(targets)], np.int32))
        self._tasks.deliver(messages, self._targets)

    def _encoding(self, style: JsonStyle) -> EncodesRows:
        """Return the encoder of all known shapes for this style of documents. It is rebuilt when there are new shapes."""
        if self._encoded_shapes != len(self._shapes.all):
            self._encoders.clear()
            self._encoded_shapes = len(self._shapes.all)
        if style not in self._encoders:
            programs = [TableProgram.of(shape.version, UTC, style) for shape in self._shapes.all]
            self._encoders[style] = row_encoder(self._output, programs)
        return self._encoders[style]

    def _send_ddl(self, ddl: DdlMessage) -> None:
        event = DdlEvent(
            ts=ddl.ts, done_ts=ddl.ts, job_id=0, schema_version=0, seq=0, type=int(ddl.type), schema=ddl.schema, table=ddl.table,
            pre_schema="", pre_table="", table_id=0, query=ddl.query, raw_query=ddl.query, reprinted=True,
        )  # fmt: skip
        self._driver.ddl(event, self._topic(ddl.schema, ddl.table) if ddl.table else self._sink.topic)


def default_state(sink: SinkUri) -> Path:
    """Return the default state file: beside the file or folder of the sink, for Kafka in the current folder."""
    if sink.path and sink.spec.place in (Place.FOLDER, Place.BUCKET):
        path = Path(sink.path)
        return path.with_name(path.name + ".consumer")
    return Path(f"tidemill-consume-{sink.topic}.state")
