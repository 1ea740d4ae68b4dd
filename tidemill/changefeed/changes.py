"""What of a changefeed may change after it was created, and from when on: a table, with the reason for each setting. Pure.

`SETTINGS` is the table. Errors, `tidemill changefeed update` and docs/cli.md use it. `changes` compares two sets of settings by it.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tidemill import secret
from tidemill.config.file import ChangefeedConfig
from tidemill.config.parameters import PARAMETERS
from tidemill.config.sinks import Place
from tidemill.config.uri import SinkUri
from tidemill.errors import redact
from tidemill.redaction import HIDDEN


class When(enum.StrEnum):
    """From when on a new value counts."""

    AT_ONCE = "at once"
    CHECKPOINT = "from the checkpoint"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Rule:
    """When a setting may change, and why."""

    when: When
    why: str


_CREDENTIAL = Rule(When.AT_ONCE, "who delivers does not change what is delivered")
_ADDRESS = Rule(When.AT_ONCE, "it names another way to the same downstream; what another one lacks from before the checkpoint is not sent")
_TUNING = Rule(When.AT_ONCE, "it changes how fast changes are delivered, not which")
_CONNECTION = Rule(When.AT_ONCE, "it belongs to the connection")
_NEW_TOPICS = Rule(When.AT_ONCE, "it counts for topics that are created later")
_FORM = Rule(When.CHECKPOINT, "messages after the checkpoint have the new form; those before it keep theirs")
_FILES = Rule(When.CHECKPOINT, "files after the checkpoint have the new form; those before it keep theirs")
_TABLES = Rule(When.CHECKPOINT, "changes after the checkpoint are chosen by the new rules; rows from before it are not sent later")
_ROUTE = Rule(When.CHECKPOINT, "changes after the checkpoint go by the new rules, so the order of a key holds only from there on")
_DATABASE = Rule(When.CHECKPOINT, "transactions after the checkpoint are written so")

SETTINGS: Mapping[str, Rule] = {
    "changefeed-id": Rule(When.NEVER, "the state has this name"),
    "log": Rule(When.NEVER, "the checkpoint is a position in this log; create another changefeed from it with --start-ts"),
    "cluster": Rule(When.NEVER, "timestamps of one cluster mean nothing in another"),
    "start-ts": Rule(When.NEVER, "it began there; to go on from elsewhere, resume it with --overwrite-checkpoint-ts"),
    "scheme": Rule(
        When.NEVER, "another kind of sink has nothing of what was delivered; create a changefeed with --start-ts of the checkpoint"
    ),
    "store": Rule(When.NEVER, "positions of Canal's clients belong to this store"),
    "target-ts": Rule(When.AT_ONCE, "it only says where to end"),
    "address": _ADDRESS,
    "user": _CREDENTIAL,
    "password": _CREDENTIAL,
    "path": Rule(When.CHECKPOINT, "what was delivered before stays where it is"),
    "topic": Rule(When.CHECKPOINT, "messages before the checkpoint stay in the old topic"),
    "protocol": _FORM,
    **dict.fromkeys(
        [
            *("sasl-user", "sasl-mechanism", "role-arn"),
            *(name for name in PARAMETERS if name in secret.NAMES),
        ],
        _CREDENTIAL,
    ),
    **dict.fromkeys(["region", "endpoint", "force-path-style", "schema-registry"], _ADDRESS),
    **dict.fromkeys(
        [
            *("enable-tls", "ca", "cert", "key", "insecure-skip-verify", "ssl-ca", "ssl-cert", "ssl-key", "get-server-public-key"),
            *("dial-timeout", "write-timeout", "read-timeout", "timeout", "kafka-client-id", "max-retry"),
        ],
        _CONNECTION,
    ),
    **dict.fromkeys(
        [
            *("max-batch-size", "compression", "flush-interval", "file-size", "worker-count", "max-txn-row", "max-multi-update-row"),
            *("max-multi-update-row-size", "batch-dml-enable", "multi-stmt-enable", "tidb-txn-mode", "async-ddl-timeout"),
            *("send-bootstrap-interval-in-sec", "send-bootstrap-in-msg-count", "send-bootstrap-to-all-partition"),
            "send-all-bootstrap-at-start",
        ],
        _TUNING,
    ),
    "required-acks": Rule(When.AT_ONCE, "it says which brokers have a message before it counts as delivered"),
    **dict.fromkeys(["replication-factor", "auto-create-topic"], _NEW_TOPICS),
    "partition-num": Rule(When.CHECKPOINT, "keys go to other partitions from there on: a consumer first reads to the end of the old ones"),
    "split-on-dispatch-key": _ROUTE,
    "create-tables": Rule(When.CHECKPOINT, "it counts for loads and resyncs from there on"),
    **dict.fromkeys(
        [
            *("max-message-bytes", "enable-tidb-extension", "content-compatible", "only-output-updated-columns"),
            *("delete-only-output-handle-key-columns", "open-output-old-value", "output-raw-change-event"),
            *("large-message-handle-option", "large-message-handle-compression", "claim-check-storage-uri", "claim-check-raw-value"),
            *("avro-decimal-handling-mode", "avro-bigint-unsigned-handling-mode", "avro-enable-watermark", "encoding-format"),
            *("integrity-check-level", "corruption-handle-level"),
            *("cluster-id", "debezium-disable-schema", "debezium-include-start-ts", "debezium-output-old-value"),
        ],
        _FORM,
    ),
    **dict.fromkeys(
        [
            *("csv-delimiter", "csv-quote", "csv-null", "csv-include-commit-ts", "csv-binary-encoding-method", "csv-output-old-value"),
            *("csv-output-handle-key", "csv-output-field-header", "terminator", "date-separator", "enable-partition-separator"),
            *("file-index-digit", "use-table-id-as-path", "output-column-id"),
        ],
        _FILES,
    ),
    **dict.fromkeys(
        ["time-zone", "safe-mode", "transaction-atomicity", "enable-sync-point", "sync-point-interval", "sync-point-retention"], _DATABASE
    ),
    **dict.fromkeys(
        ["start-ts of clients", "get.wait", "store-age", "store-size"], Rule(When.AT_ONCE, "it concerns the server for Canal's clients")
    ),
    **dict.fromkeys(["server-id", "enum-set-as-text"], Rule(When.CHECKPOINT, "entries after the checkpoint have it")),
    "mode": Rule(When.NEVER, "tables of rows and tables of changes are not made of each other; create a changefeed for another place"),
    **dict.fromkeys(["target-file-size", "compact-every"], _TUNING),
    "catalog-uri": _ADDRESS,
    "warehouse": Rule(When.NEVER, "the manifests lie there; create a changefeed with --start-ts of the checkpoint"),
    "case-sensitive": _TABLES,
    "force-replicate": _TABLES,
    "ignore-ineligible-table": Rule(When.AT_ONCE, "it is asked only when a changefeed is created or updated"),
    "filter": _TABLES,
    "bdr-mode": Rule(When.CHECKPOINT, "changes after the checkpoint are held against it"),
    "dispatchers": _ROUTE,
    "column-selectors": _FORM,
    "synced-status": Rule(When.AT_ONCE, "it only says when the API calls everything synced"),
    "changefeed-error-stuck-duration": Rule(When.AT_ONCE, "it only says when a changefeed has failed"),
    "performance-mode": Rule(When.AT_ONCE, "it only says how tasks are run"),
    "progress": Rule(When.AT_ONCE, "the checkpoint holds for both kinds"),
    "canal": Rule(When.AT_ONCE, "the server for Canal's clients reads it"),
}
"""Each setting, by its name in the sink URI or its key in the file. `address` and the like are parts of the sink URI."""

_RENAMED = {"start-ts": "start-ts of clients"}
"""Parameters of the sink URI whose name is another setting's."""
_UNKNOWN = Rule(When.CHECKPOINT, "it counts for what is delivered after the checkpoint")


@dataclass(frozen=True, slots=True)
class Change:
    """A setting that differs. `old` and `new` are texts for people, without secrets."""

    setting: str
    old: str
    new: str

    @property
    def rule(self) -> Rule:
        return SETTINGS.get(self.setting, _UNKNOWN)

    def __str__(self) -> str:
        return f"{self.setting}: {self.old or 'none'} → {self.new or 'none'} ({self.rule.when}: {self.rule.why})"


def changes(old: tuple[SinkUri, ChangefeedConfig], new: tuple[SinkUri, ChangefeedConfig]) -> list[Change]:
    """Return the settings that differ, by their order in SETTINGS. The sink URIs are complete: `ChangefeedConfig.sink_uri` made them."""
    before, after = dict(_settings(*old)), dict(_settings(*new))
    order = {name: place for place, name in enumerate(SETTINGS)}
    names = sorted({*before, *after}, key=lambda name: (order.get(name, len(order)), name))
    return [_change(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)]


def _change(name: str, old: str | None, new: str | None) -> Change:
    shown = _shown(name, new)
    return Change(
        name, _shown(name, old), "as given" if old == shown == HIDDEN else shown
    )  # an old secret that a server hides may be equal


def refused(found: list[Change]) -> list[Change]:
    """Return the changes that may never be made."""
    return [change for change in found if change.rule.when is When.NEVER]


def with_secrets(stored: Any, given: Any) -> Any:
    """Return given settings in which each text that is a redacted one of the stored settings is the stored one again.

    Whoever reads a changefeed's settings, edits one of them and sends all of them back has not seen the secrets.
    """
    if isinstance(stored, Mapping) and isinstance(given, Mapping):
        return {key: with_secrets(stored.get(key), value) for key, value in given.items()}
    if isinstance(stored, str) and isinstance(given, str) and HIDDEN in given and given in (HIDDEN, redact(stored)):
        return stored
    return given


def _settings(sink: SinkUri, config: ChangefeedConfig) -> Iterator[tuple[str, str]]:
    """Yield each setting with its value as text, whole."""
    parts = urlsplit(sink.text)
    user, _, hosts = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    yield "scheme", sink.scheme
    yield "address", hosts if sink.spec.place in (Place.HOSTS, Place.SERVED) else ""
    yield "user", name
    yield "password", password
    bucket = hosts if sink.spec.place is Place.BUCKET and hosts != "localhost" else ""
    yield ("topic", sink.topic) if sink.spec.topic_in_path else ("path", bucket + parts.path)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    for parameter, value in given.items():
        known = PARAMETERS.get(parameter)
        if known is None or value != known.default:
            yield _RENAMED.get(parameter, parameter), value
    rest = config.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    sections = rest.pop("sink", {})
    for key in ("dispatchers", "column-selectors"):
        if key in sections:
            yield key, _json(sections[key])
    for key in ("integrity", "enable-sync-point", "sync-point-interval", "sync-point-retention"):
        rest.pop(key, None)  # parameters of the sink URI
    for key, value in rest.items():
        yield key, value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shown(name: str, value: str | None) -> str:
    if value is None or not value:
        return ""
    known = PARAMETERS.get(name)
    hidden = name in ("user", "password") or (known is not None and known.secret)
    if hidden and "://" not in value:
        return HIDDEN
    return redact(value)
