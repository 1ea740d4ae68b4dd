"""Kafka as the Drainer writes it: one message for each transaction or DDL, without a key, in partition 0 of one topic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import tzinfo
from typing import Any

from tidemill.binlog.drainer.rows.messages import Form, MessageEncoding
from tidemill.binlog.drainer.rows.reading import Rows
from tidemill.binlog.drainer.settings import Downstream
from tidemill.binlog.outputs import slave
from tidemill.binlog.outputs.transactions import DdlBinlog, Entry
from tidemill.config.kafka import KafkaOptions, Sasl, Tls
from tidemill.errors import ConfigError, MessageTooLarge, SinkError, SinkUnavailable
from tidemill.extras import extra
from tidemill.sinks.kafka.options import client_config
from tidemill.tso import describe

with extra("kafka"):
    from confluent_kafka import KafkaError, KafkaException, Message, Producer

MOST_BYTES = 1_000_000_000
"""The largest message that the client sends; the default of kafka-max-message-size is above it."""
FLUSH_S = 30.0
"""Seconds without an acknowledgement after which the Drainer ends, as the real one does."""


def producer_options(to: Downstream) -> dict[str, Any]:
    """Return the client's settings: one order through retries, TLS and the login of [syncer.to]."""
    tls = Tls(to.ca, to.cert, to.key, key_password=to.key_password) if to.enable_tls else None
    sasl = Sasl(to.sasl_mechanism.upper(), to.sasl_user, to.sasl_password) if to.sasl_user else None
    hosts = tuple(host.strip() for host in to.kafka_addrs.split(","))
    return {
        **client_config(KafkaOptions(hosts, client_id=to.kafka_client_id or "tidemill-drainer", tls=tls, sasl=sasl)),
        "acks": "all",
        "enable.idempotence": True,
        "message.max.bytes": min(to.kafka_max_message_size, MOST_BYTES),
        "queue.buffering.max.kbytes": 90 << 10,
        "linger.ms": 5,
    }


class KafkaOutlet:
    """A producer whose messages keep their order through retries."""

    def __init__(self, to: Downstream, cluster_id: int, zone: tzinfo) -> None:
        if not to.kafka_addrs:
            raise ConfigError("kafka-addrs of [syncer.to] names no broker")
        self._topic = to.topic_name or f"{cluster_id}_obinlog"
        self._zone, self._failed = zone, ""
        self._encoding = MessageEncoding(Form.KAFKA, zone)
        try:
            self._producer = Producer(producer_options(to))
        except KafkaException as error:
            raise ConfigError(f"kafka: {error}") from None

    def write(self, entries: Sequence[Entry]) -> None:
        """Hand the messages to the producer. Raises MessageTooLarge, SinkError."""
        self._produce(slave.encode(entry, self._zone) for entry in entries)
        if any(isinstance(entry, DdlBinlog) for entry in entries):
            self._encoding.forget()

    def write_rows(self, rows: Rows) -> None:
        """Hand a message for each transaction to the producer. Raises MessageTooLarge, SinkError, MalformedRow."""
        self._produce(self._encoding.payloads(rows))

    def _produce(self, values: Iterable[bytes]) -> None:
        for value in values:
            while True:
                try:
                    self._producer.produce(self._topic, value, partition=0, on_delivery=self._delivered)
                    break
                except BufferError:
                    self._producer.poll(1.0)
                except KafkaException as error:
                    raise self._refused(error, value) from None
                self._check()
        self._producer.poll(0)
        self._check()

    def _refused(self, error: KafkaException, value: bytes) -> SinkError:
        if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return MessageTooLarge(
                f"the transaction at {describe(slave.commit_ts_of(value))} makes a message of {len(value)} bytes",
                hint="Raise kafka-max-message-size and the topic's max.message.bytes, or leave it out with ignore-txn-commit-ts.",
            )
        return SinkError(f"kafka topic {self._topic}: {error}")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and not self._failed:
            self._failed = f"kafka topic {self._topic} does not take a message: {error}"

    def _check(self) -> None:
        if self._failed:
            raise SinkUnavailable(self._failed)

    def flush(self) -> None:
        """Wait for all acknowledgements. Raises SinkUnavailable."""
        before = len(self._producer)
        while before:
            left = self._producer.flush(FLUSH_S)
            self._check()
            if left >= before:
                raise SinkUnavailable(f"kafka topic {self._topic} acknowledged nothing for {FLUSH_S:g} s: {left} messages wait")
            before = left

    def close(self) -> None:
        """Drop what was not acknowledged."""
        self._producer.purge()
