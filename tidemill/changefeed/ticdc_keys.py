"""TiCDC's changefeed keys that Tidemill does not act on: those it may ignore, and those it has to refuse.

A key is ignored with a warning when it only tunes TiCDC's own machinery or belongs to a sink or protocol that is not asked for. A key
that would change which changes are delivered, or how they look, is refused unless its value asks for what is done anyway.
"""

from __future__ import annotations

from typing import Any

_IGNORED = """
memory-quota performance-mode check-gc-safe-point enable-table-monitor sync-point-interval sync-point-retention
changefeed-error-stuck-duration active-active-progress-interval active-active-sync-stats-interval event-collector-batch-count
event-collector-batch-bytes enable-table-across-nodes
mounter.worker-num
scheduler.enable-table-across-nodes scheduler.region-threshold scheduler.region-count-per-span
scheduler.region-count-refresh-interval scheduler.write-key-threshold scheduler.scheduling-task-count-per-node
scheduler.enable-splittable-check scheduler.force-split scheduler.balance-score-threshold scheduler.min-traffic-percentage
scheduler.max-traffic-percentage
integrity.corruption-handle-level
consistent.max-log-size consistent.flush-interval consistent.meta-flush-interval consistent.encoding-worker-num
consistent.flush-worker-num consistent.storage consistent.use-file-backend consistent.compression consistent.flush-concurrency
consistent.event-collector-batch-count consistent.memory-usage.memory-quota-percentage
synced-status.synced-check-interval synced-status.checkpoint-interval
sink.transaction-atomicity sink.encoder-concurrency sink.terminator sink.date-separator sink.enable-partition-separator
sink.file-index-digit sink.enable-kafka-sink-v2 sink.safe-mode sink.advance-timeout-in-sec sink.send-bootstrap-interval-in-sec
sink.send-bootstrap-in-msg-count sink.send-bootstrap-to-all-partition sink.send-all-bootstrap-at-start sink.debezium-disable-schema
sink.case-sensitive sink.force-replicate sink.integrity.integrity-check-level sink.integrity.corruption-handle-level
sink.csv.delimiter sink.csv.quote sink.csv.null sink.csv.include-commit-ts sink.csv.binary-encoding-method
sink.csv.output-old-value sink.csv.output-handle-key sink.csv.output-field-header
sink.debezium.output-old-value sink.debezium.include-start-ts
sink.mysql-config.* sink.pulsar-config.* sink.cloud-storage-config.*
sink.kafka-config.kafka-version sink.kafka-config.sasl-gssapi-disable-pafxfast
sink.kafka-config.codec-config.enable-tidb-extension sink.kafka-config.codec-config.avro-enable-watermark
sink.kafka-config.codec-config.avro-decimal-handling-mode sink.kafka-config.codec-config.avro-bigint-unsigned-handling-mode
sink.kafka-config.codec-config.avro-include-before-value sink.kafka-config.codec-config.encoding-format
sink.kafka-config.codec-config.output-row-key
sink.kafka-config.large-message-handle.claim-check-raw-value
"""
IGNORED = frozenset(_IGNORED.split())
"""Keys that change nothing here; `.*` stands for all keys below."""

REFUSED: dict[str, Any] = {
    "enable-sync-point": False,
    "bdr-mode": False,
    "enable-active-active": False,
    "sql-mode": None,
    "filter.ignore-txn-start-ts": [],
    "filter.event-filters": [],
    "integrity.integrity-check-level": "none",
    "consistent.level": "none",
    "sink.column-selectors": [],
    "sink.schema-registry": "",
    "sink.only-output-updated-columns": False,
    "sink.delete-only-output-handle-key-columns": False,
    "sink.content-compatible": False,
    "sink.open.output-old-value": True,
    "sink.kafka-config.output-raw-change-event": False,
    "sink.kafka-config.glue-schema-registry-config": None,
    "sink.kafka-config.large-message-handle.large-message-handle-option": "none",
    "sink.kafka-config.large-message-handle.large-message-handle-compression": "none",
    "sink.kafka-config.large-message-handle.claim-check-storage-uri": "",
    "sink.kafka-config.sasl-gssapi-auth-type": "",
    "sink.kafka-config.sasl-gssapi-keytab-path": "",
    "sink.kafka-config.sasl-gssapi-kerberos-config-path": "",
    "sink.kafka-config.sasl-gssapi-service-name": "",
    "sink.kafka-config.sasl-gssapi-user": "",
    "sink.kafka-config.sasl-gssapi-password": "",
    "sink.kafka-config.sasl-gssapi-realm": "",
    "sink.kafka-config.sasl-oauth-client-id": "",
    "sink.kafka-config.sasl-oauth-client-secret": "",
    "sink.kafka-config.sasl-oauth-token-url": "",
    "sink.kafka-config.sasl-oauth-scopes": [],
    "sink.kafka-config.sasl-oauth-grant-type": "",
    "sink.kafka-config.sasl-oauth-audience": "",
}
"""Keys that are not supported yet, with the value under which they ask for nothing (None: no value does)."""


def ignored(path: str) -> bool:
    """Whether a key has no meaning here."""
    return path in IGNORED or any(f"{path}.".startswith(key[:-1]) for key in IGNORED if key.endswith(".*"))
