"""The replica_config that TiCDC's API answers for a changefeed whose file sets nothing, as the keys of the TOML file. Pure.

Source: `defaultReplicaConfig` of TiCDC's pkg/config/replica_config.go (master of 2026-08-18). `cdc cli changefeed update` fills what an
answer lacks with these values and lists them as changes, so an answer has all of them, whether Tidemill uses a key or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.config.sections import ConfigSection

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


def with_defaults(*settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with TiCDC's defaults below them. A later one of `settings` wins, key by key; a None is not there."""
    found: dict[str, Any] = _over({}, DEFAULTS)
    for one in settings:
        found = _over(found, one)
    return found


def without_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without TiCDC's defaults of keys that have none in Tidemill: so people see what is set, and what counts here."""
    return _without(settings, DEFAULTS, ConfigSection().model_dump(mode="json", by_alias=True))


def _without(settings: Mapping[str, Any], defaults: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in settings.items():
        known, own = defaults.get(name), ours.get(name)
        if isinstance(value, Mapping):
            below = _without(value, known if isinstance(known, Mapping) else {}, own if isinstance(own, Mapping) else {})
            if below:
                found[name] = below
        elif own is not None or name not in defaults or value != known:
            found[name] = value
    return found


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(below)
    for name, value in above.items():
        under = found.get(name)
        if isinstance(value, Mapping):
            found[name] = _over(under if isinstance(under, Mapping) else {}, value)
        elif value is not None:
            found[name] = value
    return found
