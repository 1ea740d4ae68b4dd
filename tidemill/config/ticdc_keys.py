"""TiCDC's changefeed keys that Tidemill does not use: those that it ignores, and those that it refuses.

A key is ignored with a warning if it only tunes TiCDC itself, or belongs to another sink or protocol. A key that would change which
changes are delivered, or their form, is refused unless its value asks for what is done anyway.
"""

from __future__ import annotations

from typing import Any

_CORES = "Spark's cores do this work: --master local[N]"
_LOG = "the change log keeps changes on disk, whatever their size"
_REDO = "the change log is the redo log: tidemill replay delivers it again, from any ts"
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
    "consistent.max-log-size": _REDO,
    "consistent.flush-interval": _REDO,
    "consistent.meta-flush-interval": _REDO,
    "consistent.encoding-worker-num": _REDO,
    "consistent.flush-worker-num": _REDO,
    "consistent.storage": _REDO,
    "consistent.use-file-backend": _REDO,
    "consistent.compression": _REDO,
    "consistent.flush-concurrency": _REDO,
    "consistent.event-collector-batch-count": _REDO,
    "consistent.memory-usage.memory-quota-percentage": _REDO,
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
    "consistent.level": "none",
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
"""Keys that are not supported yet, with the value that asks for nothing."""


def ignored(path: str) -> str | None:
    """Return why a key is ignored, or None if it is not."""
    if path in IGNORED:
        return IGNORED[path]
    return next((why for key, why in IGNORED.items() if key.endswith(".*") and f"{path}.".startswith(key[:-1])), None)
