"""A changefeed's configuration as JSON: the `replica_config` of TiCDC's HTTP API, to and from the keys of the TOML file. Pure.

The JSON has the file's words in snake_case, with some exceptions. `KEYS` is the table of all of them, in TiCDC's order. A duration is text
in the file (`"30m"`), and nanoseconds in JSON. Only names and durations are looked at here: `config.file` checks the values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tidemill.config.faults import Faults
from tidemill.config.sections import ConfigSection, Section, section_of
from tidemill.config.ticdc_keys import DEFAULTS
from tidemill.errors import ConfigError
from tidemill.rules.names import did_you_mean, is_misspelled

KEYS = """
memory-quota case-sensitive force-replicate ignore-ineligible-table check-gc-safe-point enable-sync-point enable-table-monitor bdr-mode
enable-active-active active-active-progress-interval:duration active-active-sync-stats-interval:duration
sync-point-interval:duration sync-point-retention:duration
filter.rules filter.ignore-txn-start-ts
filter.event-filters.matcher filter.event-filters.ignore-event filter.event-filters.ignore-sql
filter.event-filters.ignore-insert-value-expr filter.event-filters.ignore-update-new-value-expr
filter.event-filters.ignore-update-old-value-expr filter.event-filters.ignore-delete-value-expr
filter.event-filters.ignore-update-only-columns
mounter.worker-num
sink.protocol sink.schema-registry
sink.csv.delimiter sink.csv.quote sink.csv.null sink.csv.include-commit-ts sink.csv.binary-encoding-method sink.csv.output-old-value
sink.csv.output-handle-key sink.csv.output-field-header
sink.dispatchers.matcher sink.dispatchers.partition sink.dispatchers.dispatcher sink.dispatchers.index sink.dispatchers.columns
sink.dispatchers.topic sink.dispatchers.target-schema sink.dispatchers.target-table
sink.column-selectors.matcher sink.column-selectors.columns
sink.transaction-atomicity sink.encoder-concurrency sink.terminator sink.date-separator sink.enable-partition-separator
sink.file-index-digit=file_index_width sink.enable-kafka-sink-v2 sink.only-output-updated-columns sink.delete-only-output-handle-key-columns
sink.content-compatible sink.safe-mode
sink.kafka-config.partition-num sink.kafka-config.replication-factor sink.kafka-config.kafka-version sink.kafka-config.max-message-bytes
sink.kafka-config.compression sink.kafka-config.kafka-client-id sink.kafka-config.auto-create-topic sink.kafka-config.dial-timeout
sink.kafka-config.write-timeout sink.kafka-config.read-timeout sink.kafka-config.required-acks sink.kafka-config.sasl-user
sink.kafka-config.sasl-password sink.kafka-config.sasl-mechanism sink.kafka-config.sasl-gssapi-auth-type
sink.kafka-config.sasl-gssapi-keytab-path sink.kafka-config.sasl-gssapi-kerberos-config-path sink.kafka-config.sasl-gssapi-service-name
sink.kafka-config.sasl-gssapi-user sink.kafka-config.sasl-gssapi-password sink.kafka-config.sasl-gssapi-realm
sink.kafka-config.sasl-gssapi-disable-pafxfast sink.kafka-config.sasl-oauth-client-id sink.kafka-config.sasl-oauth-client-secret
sink.kafka-config.sasl-oauth-token-url sink.kafka-config.sasl-oauth-scopes sink.kafka-config.sasl-oauth-grant-type
sink.kafka-config.sasl-oauth-audience sink.kafka-config.enable-tls sink.kafka-config.ca sink.kafka-config.cert sink.kafka-config.key
sink.kafka-config.insecure-skip-verify
sink.kafka-config.codec-config.enable-tidb-extension sink.kafka-config.codec-config.max-batch-size
sink.kafka-config.codec-config.avro-enable-watermark sink.kafka-config.codec-config.avro-decimal-handling-mode
sink.kafka-config.codec-config.avro-bigint-unsigned-handling-mode sink.kafka-config.codec-config.avro-include-before-value
sink.kafka-config.codec-config.encoding-format sink.kafka-config.codec-config.output-row-key
sink.kafka-config.large-message-handle.large-message-handle-option sink.kafka-config.large-message-handle.large-message-handle-compression
sink.kafka-config.large-message-handle.claim-check-storage-uri sink.kafka-config.large-message-handle.claim-check-raw-value
sink.kafka-config.glue-schema-registry-config.registry-name sink.kafka-config.glue-schema-registry-config.region
sink.kafka-config.glue-schema-registry-config.access-key sink.kafka-config.glue-schema-registry-config.secret-access-key
sink.kafka-config.glue-schema-registry-config.token sink.kafka-config.output-raw-change-event
sink.pulsar-config
sink.mysql-config.worker-count sink.mysql-config.max-txn-row sink.mysql-config.max-multi-update-row-size
sink.mysql-config.max-multi-update-row=max_multi_update_row_count sink.mysql-config.tidb-txn-mode sink.mysql-config.ssl-ca
sink.mysql-config.ssl-cert sink.mysql-config.ssl-key sink.mysql-config.time-zone sink.mysql-config.write-timeout
sink.mysql-config.read-timeout sink.mysql-config.timeout sink.mysql-config.async-ddl-timeout sink.mysql-config.enable-batch-dml
sink.mysql-config.enable-multi-statement sink.mysql-config.enable-cache-prepared-statement
sink.cloud-storage-config.worker-count sink.cloud-storage-config.flush-interval sink.cloud-storage-config.file-size
sink.cloud-storage-config.spool-disk-quota sink.cloud-storage-config.spool-base-dir sink.cloud-storage-config.output-column-id
sink.cloud-storage-config.file-expiration-days sink.cloud-storage-config.file-cleanup-cron-spec
sink.cloud-storage-config.flush-concurrency sink.cloud-storage-config.use-table-id-as-path
sink.cloud-storage-config.output-raw-change-event
sink.advance-timeout-in-sec=advance_timeout|advance_timeout_in_sec sink.send-bootstrap-interval-in-sec sink.send-bootstrap-in-msg-count
sink.send-bootstrap-to-all-partition sink.send-all-bootstrap-at-start=send-all-bootstrap-at-start|send_all_bootstrap_at_start
sink.debezium-disable-schema
sink.debezium.output-old-value sink.debezium.include-start-ts sink.open.output-old-value sink.case-sensitive sink.force-replicate
sink.integrity.integrity-check-level sink.integrity.corruption-handle-level
consistent.level consistent.max-log-size consistent.flush-interval consistent.meta-flush-interval consistent.encoding-worker-num
consistent.flush-worker-num consistent.storage consistent.use-file-backend consistent.compression consistent.flush-concurrency
consistent.event-collector-batch-count consistent.memory-usage.memory-quota-percentage
scheduler.enable-table-across-nodes scheduler.region-threshold scheduler.region-count-per-span
scheduler.region-count-refresh-interval:duration scheduler.write-key-threshold scheduler.scheduling-task-count-per-node
scheduler.enable-splittable-check scheduler.force-split scheduler.balance-score-threshold scheduler.min-traffic-percentage
scheduler.max-traffic-percentage
integrity.integrity-check-level integrity.corruption-handle-level
changefeed-error-stuck-duration:duration
synced-status.synced-check-interval synced-status.checkpoint-interval
event-collector-batch-count event-collector-batch-bytes performance-mode sql-mode
"""
"""TiCDC's keys as paths of the TOML file. `=NAME`: JSON has another name; `=NAME|NEWER`: it was renamed (TiCDC master of 2026-06-30),
and clients of both sides are served. `:duration`: see above. A path may lead through the tables of a
list. What lies below a table without keys here (Pulsar's) is written alike in both."""

_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_NANOSECONDS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_MOST = 2**63 - 1


@dataclass(slots=True)
class _Key:
    """A key or a table. `below` is empty for a key. `newer`: the name in JSON of later versions of TiCDC; empty if it is the same."""

    name: str
    json_name: str
    newer: str = ""
    kind: str = ""
    own: bool = False
    """Tidemill's own: clients of TiCDC do not know it."""
    below: dict[str, _Key] = field(default_factory=dict)


def _table() -> _Key:
    """Return the tree of all keys: TiCDC's in its order, then Tidemill's own."""
    root = _Key("", "")
    words = [*((word, False) for word in KEYS.split()), *((word, True) for word in _own(ConfigSection, ""))]
    for word, own in words:
        path, _, kind = word.partition(":")
        path, _, renamed = path.partition("=")
        at = root
        for part in path.split("."):
            at = at.below.setdefault(part, _Key(part, part.replace("-", "_"), own=own))
        at.kind = kind or at.kind
        older, _, newer = renamed.partition("|")
        at.json_name, at.newer = older or at.json_name, newer or at.newer
    return root


def _own(section: type[Section], prefix: str) -> Iterator[str]:
    """Yield the path of each key of a model."""
    for name, field_ in section.model_fields.items():
        key = prefix + name.replace("_", "-")
        inner = section_of(field_.annotation)
        if inner is None:
            yield key
        else:
            yield from _own(inner, f"{key}.")


_ROOT = _table()


def from_json(
    found: Mapping[str, Any],
    where: str = "replica_config",
    unknown: list[str] | None = None,
    stored: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the tables and keys of a TOML file for a JSON object. A null is a key that is not there. A name may be written as in JSON, or
    as in the file. Both names of a renamed key may stand in it with the same value. `stored`: the settings that the client has read, under
    both names. It may have changed one of the two: that one counts.

    A key that nobody knows is left out if its value asks for nothing (`asks_for_nothing`), for a newer client sends its defaults too,
    unless it is a known name with a letter wrong; `unknown` gets its path. Raises ConfigError that begins with `where`, ManyFaults if
    there are several."""
    faults = Faults()
    reader = _Reader(where, faults)
    result = reader.table(found, _ROOT, "", stored or {})
    faults.check()
    if unknown is not None:
        unknown += reader.unknown
    return result


def asks_for_nothing(value: Any) -> bool:
    """Whether a JSON value is null, false, 0, empty, or made of such values: what a client of TiCDC sends for a key that is not set."""
    if isinstance(value, Mapping):
        return all(asks_for_nothing(below) for below in value.values())
    return not value


def to_json(config: Mapping[str, Any], *, all_names: bool = False) -> dict[str, Any]:
    """Return the JSON object for the tables and keys of a TOML file, in TiCDC's order; keys that nobody knows are last. Keys that are None,
    and tables without keys, are left out. `all_names`: a key that TiCDC renamed has both names, for readers of either version."""
    result: dict[str, Any] = _written(config, _ROOT, all_names)
    return result


def with_own(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that a client of TiCDC sends for a changefeed, with Tidemill's own keys of the stored ones: it cannot have seen
    them, so that they are not in what it sends back does not mean that they are to go."""
    return _with_own(stored, given, _ROOT)


def _with_own(stored: Mapping[str, Any], given: Mapping[str, Any], key: _Key) -> dict[str, Any]:
    found = dict(given)
    for name, value in stored.items():
        known = key.below.get(name)
        if known is None or (known.own and name in given):
            continue
        if known.own:
            found[name] = value
        elif isinstance(value, Mapping) and isinstance(below := given.get(name, {}), Mapping):
            inner = _with_own(value, below, known)
            if inner or name in given:
                found[name] = inner
    return found


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


class _Reader:
    """Translates names. It collects what is wrong."""

    def __init__(self, where: str, faults: Faults) -> None:
        self._where, self._faults = where, faults
        self.unknown: list[str] = []

    def table(self, found: Mapping[str, Any], key: _Key, path: str, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return a table of the file. `stored`: the same table, as the client has read it."""
        names = {name: known for known in key.below.values() for name in (known.newer, known.json_name, known.name) if name}
        result: dict[str, Any] = {}
        read: dict[str, str] = {}
        for name, value in found.items():
            at = f"{path}.{name}" if path else name
            if name not in names:
                self._not_known(at, name, value, key)
            elif value is not None:
                known = names[name]
                before = stored.get(known.name)
                text = self._value(value, known, at, before)
                if known.name not in read:
                    result[known.name], read[known.name] = text, name
                elif {name, read[known.name]} == {known.json_name, known.newer} and before in (text, result[known.name]):
                    result[known.name] = text if result[known.name] == before else result[known.name]
                elif result[known.name] != text or {name, read[known.name]} != {known.json_name, known.newer}:
                    self._fault(at, f"it is given twice, as {read[known.name]} and as {name}")
        return result

    def _not_known(self, at: str, name: str, value: Any, key: _Key) -> None:
        shown = [known.json_name for known in key.below.values()]
        if value is None or (asks_for_nothing(value) and not is_misspelled(name, shown)):
            self.unknown.append(at)
        else:
            self._fault(at, f"unknown key{did_you_mean(name, shown)}")

    def _value(self, value: Any, key: _Key, at: str, stored: Any) -> Any:
        if key.kind == "duration":
            return self._duration(value, at)
        if not key.below:
            return value
        if isinstance(value, Mapping):
            return self.table(value, key, at, stored if isinstance(stored, Mapping) else {})
        if isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
            return [self.table(item, key, f"{at}[{i}]", {}) for i, item in enumerate(value)]
        self._fault(at, f"expected an object, got {_said(value)}")
        return {}

    def _duration(self, value: Any, at: str) -> str:
        if isinstance(value, str):
            try:
                nanoseconds(value)
            except ValueError as error:
                self._fault(at, f"{json.dumps(value)[:80]}: {error}")
            return value
        if isinstance(value, bool) or not isinstance(value, int | float) or not -_MOST <= value <= _MOST:
            self._fault(at, f'expected nanoseconds, or a duration such as "10m", got {_said(value)}')
            return ""
        return duration_text(int(value))

    def _fault(self, at: str, what: str) -> None:
        self._faults.add(ConfigError(f"{self._where}.{at}: {what}"))


def _written(value: Any, key: _Key, all_names: bool) -> Any:
    if isinstance(value, list | tuple):
        return [_written(item, key, all_names) if isinstance(item, Mapping) else item for item in value]
    if key.kind == "duration" and isinstance(value, str):
        return nanoseconds(value)
    if not isinstance(value, Mapping):
        return value
    result: dict[str, Any] = {}
    for name, known in key.below.items():
        if name in value:
            result[known.json_name] = _written(value[name], known, all_names)
            if all_names and known.newer:
                result[known.newer] = result[known.json_name]
    result |= {name: inner for name, inner in value.items() if name not in key.below}
    return {name: inner for name, inner in result.items() if inner is not None and inner != {}}


def _said(value: Any) -> str:
    words = {str: "a text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return words.get(type(value), "something else")


def nanoseconds(text: str) -> int:
    """Return the nanoseconds of a duration as Go writes it: `1h30m`, `-250ms`, `0`. Raises ValueError."""
    sign, bare = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    parts = _PART.findall(bare)
    if bare == "0":
        return 0
    if not parts or "".join(number + unit for number, unit in parts) != bare:
        raise ValueError("expected a duration such as 10s, 1m30s or 250ms")
    total = int(sum(Decimal(number) * _NANOSECONDS[unit] for number, unit in parts))
    if total > _MOST:
        raise ValueError("the duration is too long")
    return sign * total


def duration_text(total: int) -> str:
    """Return a number of nanoseconds as a duration that Go reads, without parts that are zero: `30m`, `1m30s`, `0s`."""
    rest, parts = abs(total), []
    for unit in ("h", "m", "s", "ms", "us", "ns"):
        count, rest = divmod(rest, _NANOSECONDS[unit])
        parts += [f"{count}{unit}"] if count else []
    return ("-" if total < 0 else "") + ("".join(parts) or "0s")
