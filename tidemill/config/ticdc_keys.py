"""TiCDC's changefeed keys that Tidemill does not use, those that it ignores and those that it refuses; and TiCDC's defaults.

A key is ignored with a warning if it only tunes TiCDC itself, or belongs to another sink or protocol. A key that would change which
changes are delivered, or their form, is refused unless its value asks for what is done anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CORES = "Spark's cores do this work: --master local[N]"
_LOG = "the change log keeps changes on disk, whatever their size"
REDO = "the change log is the redo log: tidemill replay delivers it again, from any ts"
_ONE_CAPTURE = "a table is captured by one process; `tidemill log split` divides a hot table's log by key"
_OTHER_SINK = "it belongs to another sink"
_SCHEDULER = """
enable-table-across-nodes region-threshold region-count-per-span region-count-refresh-interval write-key-threshold
scheduling-task-count-per-node enable-splittable-check force-split balance-score-threshold min-traffic-percentage max-traffic-percentage
"""

IGNORED: dict[str, str] = {
    "memory-quota": _LOG,
    "check-gc-safe-point": "start-ts is always checked against GC and against the change log",
    "enable-table-monitor": "tidemill run writes what it does to status.json and /metrics",
    "active-active-progress-interval": "there is no active-active mode",
    "active-active-sync-stats-interval": "there is no active-active mode",
    "event-collector-batch-count": _LOG,
    "event-collector-batch-bytes": _LOG,
    "enable-table-across-nodes": _ONE_CAPTURE,
    "sql-mode": "each DDL is read with the sql_mode that its job names",
    "mounter.worker-num": _CORES,
    **dict.fromkeys([f"scheduler.{key}" for key in _SCHEDULER.split()], _ONE_CAPTURE),
    "consistent.max-log-size": REDO,
    "consistent.flush-interval": REDO,
    "consistent.meta-flush-interval": REDO,
    "consistent.encoding-worker-num": REDO,
    "consistent.flush-worker-num": REDO,
    "consistent.storage": REDO,
    "consistent.use-file-backend": REDO,
    "consistent.compression": REDO,
    "consistent.flush-concurrency": REDO,
    "consistent.event-collector-batch-count": REDO,
    "consistent.memory-usage.memory-quota-percentage": REDO,
    "sink.encoder-concurrency": _CORES,
    "sink.enable-kafka-sink-v2": "there is one Kafka client, librdkafka",
    "sink.advance-timeout-in-sec": "a batch that is not acknowledged within 60 s is tried again",
    "sink.case-sensitive": "the key at the top of the file counts",
    "sink.force-replicate": "the key at the top of the file counts",
    "sink.mysql-config.enable-cache-prepared-statement": "statements are sent as text",
    "sink.pulsar-config.*": _OTHER_SINK,
    "sink.cloud-storage-config.worker-count": _CORES,
    "sink.cloud-storage-config.flush-concurrency": _CORES,
    "sink.cloud-storage-config.spool-disk-quota": _LOG,
    "sink.cloud-storage-config.spool-base-dir": _LOG,
    "sink.cloud-storage-config.file-expiration-days": "files are not removed: use the store's own rules",
    "sink.cloud-storage-config.file-cleanup-cron-spec": "files are not removed: use the store's own rules",
    "sink.kafka-config.kafka-version": "the client asks the broker",
    "sink.kafka-config.sasl-gssapi-disable-pafxfast": "GSSAPI is not supported",
}
"""Keys without effect here, and what replaces them. `.*` means all keys below."""

_KAFKA = "sink.kafka-config."

REFUSED: dict[str, Any] = {
    "enable-active-active": False,
    "consistent.level": ("none", "eventual"),
    _KAFKA + "glue-schema-registry-config": {},
    _KAFKA + "codec-config.avro-include-before-value": False,
    _KAFKA + "codec-config.output-row-key": False,
    _KAFKA + "sasl-oauth-scopes": [],
    **dict.fromkeys(
        [
            f"{_KAFKA}sasl-gssapi-{k}"
            for k in ("auth-type", "keytab-path", "kerberos-config-path", "service-name", "user", "password", "realm")
        ],
        "",
    ),
    **dict.fromkeys([f"{_KAFKA}sasl-oauth-{k}" for k in ("client-id", "client-secret", "token-url", "grant-type", "audience")], ""),
}
"""Keys that are not supported yet, with the value that asks for nothing, or a tuple of the values that are taken."""

EVENTUAL = (
    "the change log is kept anyway, and is more than TiCDC's redo log: tidemill redo apply brings a database to its end, "
    "tidemill replay delivers it again to any sink; consistent.storage and the like have no meaning"
)
"""What consistent.level = "eventual" means here."""

_CONFLUENT = "take a registry with Confluent's API, by sink.schema-registry"
_PASSWORDS = "take sasl-mechanism plain, scram-sha-256 or scram-sha-512, or TLS with client certificates"
_INSTEAD = {
    "enable-active-active": "bdr-mode keeps changes from going round; which of two concurrent ones stays is not decided",
    "consistent.level": "there are none and eventual",
    _KAFKA + "glue-schema-registry-config": _CONFLUENT,
    _KAFKA + "codec-config.avro-include-before-value": "take a protocol whose updates have the old value: canal-json, debezium",
    _KAFKA + "codec-config.output-row-key": "keys are in the messages: take index-value or columns as partition of a dispatcher",
}


def instead(path: str) -> str:
    """Return the way round a key that is refused."""
    return _INSTEAD.get(path, _PASSWORDS)


DEFAULTS: Mapping[str, Any] = {
    "performance-mode": "throughput",
    "memory-quota": 1 << 30,
    "case-sensitive": False,
    "check-gc-safe-point": True,
    "enable-sync-point": False,
    "enable-table-monitor": False,
    "bdr-mode": False,
    "enable-active-active": False,
    "active-active-progress-interval": "30m",
    "active-active-sync-stats-interval": "1m",
    "sync-point-interval": "10m",
    "sync-point-retention": "24h",
    "filter": {"rules": ["*.*"]},
    "mounter": {"worker-num": 16},
    "sink": {
        "csv": {
            "delimiter": ",",
            "quote": '"',
            "null": "\\N",
            "include-commit-ts": False,
            "binary-encoding-method": "base64",
            "output-old-value": False,
            "output-handle-key": False,
            "output-field-header": False,
        },
        "encoder-concurrency": 32,
        "terminator": "\r\n",
        "date-separator": "day",
        "enable-partition-separator": True,
        "only-output-updated-columns": False,
        "delete-only-output-handle-key-columns": False,
        "content-compatible": False,
        "advance-timeout-in-sec": 150,
        "send-bootstrap-interval-in-sec": 120,
        "send-bootstrap-in-msg-count": 10_000,
        "send-bootstrap-to-all-partition": True,
        "send-all-bootstrap-at-start": False,
        "debezium-disable-schema": False,
        "debezium": {"output-old-value": True},
        "open": {"output-old-value": True},
    },
    "consistent": {
        "level": "none",
        "max-log-size": 64,
        "flush-interval": 2000,
        "meta-flush-interval": 200,
        "encoding-worker-num": 16,
        "flush-worker-num": 8,
        "storage": "",
        "use-file-backend": False,
        "compression": "",
        "memory-usage": {"memory-quota-percentage": 50},
    },
    "scheduler": {
        "enable-table-across-nodes": False,
        "region-threshold": 10_000,
        "region-count-per-span": 100,
        "region-count-refresh-interval": "5m",
        "write-key-threshold": 0,
        "scheduling-task-count-per-node": 20,
        "enable-splittable-check": False,
        "force-split": False,
        "balance-score-threshold": 20,
        "min-traffic-percentage": 0.8,
        "max-traffic-percentage": 1.25,
    },
    "integrity": {"integrity-check-level": "none", "corruption-handle-level": "warn"},
    "changefeed-error-stuck-duration": "30m",
    "synced-status": {"synced-check-interval": 300, "checkpoint-interval": 15},
}
"""What TiCDC's API answers as replica_config of a changefeed whose file sets nothing, as keys of the file: `defaultReplicaConfig` of
TiCDC's pkg/config/replica_config.go (master of 2026-08-18). `cdc cli changefeed update` fills what an answer lacks with these values and
lists them as changes, so an answer has all of them, whether Tidemill uses a key or not."""


def ignored(path: str) -> str | None:
    """Return why a key is ignored, or None if it is not."""
    if path in IGNORED:
        return IGNORED[path]
    return next((why for key, why in IGNORED.items() if key.endswith(".*") and f"{path}.".startswith(key[:-1])), None)
