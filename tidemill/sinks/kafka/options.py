"""librdkafka's settings for a sink URI."""

from __future__ import annotations

from tidemill import credentials
from tidemill.config.kafka import KafkaOptions
from tidemill.config.uri import SinkUri

WINDOW_BYTES = 128 * 1024 * 1024
"""The bytes that may wait for acknowledgement in one producer."""

DELIVERY_TIMEOUT_MS = 60_000
"""After this time without any acknowledgement the waiting messages have failed. It is longer than a broker's restart."""

METADATA_TIMEOUT = 15.0
"""Seconds to wait for an administrative answer."""

STATISTICS_MS = "5000"
"""How often the driver's client counts what brokers answer."""

_FRAMING = 1024  # bytes of a record batch around one message
_BATCH_BYTES = 1_000_000

RECORD_HEADROOM = 128
"""The part of a topic's max.message.bytes that TiCDC reserves for the record batch around a message."""


def client_config(kafka: KafkaOptions) -> dict[str, str]:
    """Return the settings of every client of the brokers, with secrets as they are now. Raises as `credentials.read`."""
    config = {
        "bootstrap.servers": ",".join(kafka.hosts),
        "reconnect.backoff.max.ms": "2000",
    }
    if kafka.client_id:
        config["client.id"] = kafka.client_id
    if kafka.dial_timeout:
        config["socket.connection.setup.timeout.ms"] = str(max(1000, kafka.dial_timeout))
    if kafka.write_timeout or kafka.read_timeout:
        config["socket.timeout.ms"] = str(max(10, kafka.write_timeout or 0, kafka.read_timeout or 0))
    config["security.protocol"] = ("sasl_" if kafka.sasl else "") + ("ssl" if kafka.tls else "plaintext")
    if kafka.tls:
        files = {"ssl.ca.location": kafka.tls.ca, "ssl.certificate.location": kafka.tls.cert, "ssl.key.location": kafka.tls.key}
        config |= {name: path for name, path in files.items() if path}
        if kafka.tls.key_password:
            config["ssl.key.password"] = credentials.read(kafka.tls.key_password)
        if kafka.tls.insecure_skip_verify:
            config["enable.ssl.certificate.verification"] = "false"
    if kafka.sasl:
        config |= {"sasl.mechanisms": kafka.sasl.mechanism, "sasl.username": kafka.sasl.user}
        config["sasl.password"] = credentials.read(kafka.sasl.password)
    return config


def producer_config(uri: SinkUri, message_limit: int | None = None) -> dict[str, str]:
    """Return the settings of a producer that keeps order: idempotent with acks=all, else with one request in flight.

    `message_limit` is the smallest of the topics. A topic's limit holds for a whole record batch, so batches stay below it.
    No message times out by itself, because later messages would be sent as soon as the broker is back. The waiting code drops all of them
    together, with the producer. The window in task.py keeps the queue below its limits, so that the client never refuses a message.
    """
    kafka = uri.broker
    safe = kafka.required_acks == -1
    order = {"enable.idempotence": "true"} if safe else {"enable.idempotence": "false", "max.in.flight.requests.per.connection": "1"}
    config = client_config(kafka) | order
    config |= {
        "acks": str(kafka.required_acks),
        "compression.type": kafka.compression,
        "linger.ms": "5",
        "message.timeout.ms": "0",  # none
        "batch.size": str(max(1, min(_BATCH_BYTES, message_limit or _BATCH_BYTES))),
        "message.max.bytes": str(min(1_000_000_000, max(1_000_000, uri.max_message_bytes + _FRAMING))),
        "queue.buffering.max.messages": "0",  # no limit
        "queue.buffering.max.kbytes": str(2 * (WINDOW_BYTES + uri.max_message_bytes) // 1024),
    }
    if kafka.max_retry is not None:
        config["message.send.max.retries"] = str(kafka.max_retry)
    return config


def rows_config(uri: SinkUri, message_limit: int | None = None) -> dict[str, str]:
    """Return the settings of a producer for rows. A refused message ends the producer, so that no later message is sent.

    The client reports this as a fatal error, which its Python interface does not support. So the driver waits for each event instead.
    """
    config = producer_config(uri, message_limit)
    return config | {"enable.gapless.guarantee": "true"} if uri.broker.required_acks == -1 else config
