"""Explains a changefeed's settings one by one, for `tidemill config check`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel

from tidemill.config import uri
from tidemill.config.file import ChangefeedConfig
from tidemill.config.parameters import Parameter
from tidemill.config.sections import DispatcherSection, EventFilterSection
from tidemill.errors import redact
from tidemill.protocols.all import spec_of
from tidemill.rules.dispatch import DispatchMode

FILE, URI, DEFAULT = "file", "sink URI", "default"

_ABOUT = {
    "case-sensitive": "table rules and matchers compare names with case",
    "force-replicate": "tables without a usable key are delivered too",
    "ignore-ineligible-table": "taken: tables without a usable key are left out either way",
    "changefeed-error-stuck-duration": "how long errors that may pass are tried again without progress before the changefeed has failed",
    "synced-status.synced-check-interval": "…/synced answers true if no rows came for longer than these seconds",
    "synced-status.checkpoint-interval": "… and if the checkpoint is behind the cluster by less than these seconds",
    "performance-mode": "throughput: each batch is a Spark job; low-latency: Spark tasks stay from batch to batch, on this machine",
    "progress": "global: rows are delivered up to the resolved ts of the whole log; table: those of each log partition up to its own",
    "filter.rules": "which tables are delivered; the last rule that matches decides",
    "filter.ignore-txn-start-ts": "transactions and DDLs that are left out, by their start_ts",
}


@dataclass(frozen=True, slots=True)
class Explained:
    """One setting. `value` and `default` are as written in a file, without secrets; `source` is file, sink URI or default."""

    name: str
    value: str
    default: str
    source: str
    about: str


def explain(config: ChangefeedConfig, sink_uri: str | None) -> list[Explained]:
    """Return every setting in effect. Those of sink and protocol need the sink URI. Raises ConfigError."""
    found = [*_plain(config), *_event_filters(config), *_dispatchers(config), *_selectors(config)]
    return found + list(_parameters(config, sink_uri))


def _plain(config: ChangefeedConfig) -> Iterator[Explained]:
    defaults = ChangefeedConfig()
    for name, about in _ABOUT.items():
        value, default, given = _at(config, name), _at(defaults, name), _is_set(config, name)
        yield Explained(name, _written(value), _written(default), FILE if given else DEFAULT, about)


def _at(section: BaseModel, path: str) -> object:
    found: object = section
    for key in path.split("."):
        found = getattr(found, key.replace("-", "_"))
    return found


def _is_set(section: BaseModel, path: str) -> bool:
    first, _, rest = path.replace("-", "_").partition(".")
    below = getattr(section, first)
    return first in section.model_fields_set and (not rest or (isinstance(below, BaseModel) and _is_set(below, rest)))


def _written(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _event_filters(config: ChangefeedConfig) -> Iterator[Explained]:
    for i, section in enumerate(config.filter.event_filters):
        name = f"filter.event-filters[{i}]"
        yield Explained(name, _written(section.matcher), "", FILE, "of these tables are left out:")
        for key, value, about in _left_out(section):
            yield Explained(f"{name}.{key}", value, "", FILE, about)


def _left_out(section: EventFilterSection) -> Iterator[tuple[str, str, str]]:
    if section.ignore_event:
        yield "ignore-event", _written(section.ignore_event), "changes and DDLs of these kinds"
    if section.ignore_sql:
        yield "ignore-sql", _written(section.ignore_sql), "DDLs whose text matches one of these"
    for key, about in (
        ("ignore_insert_value_expr", "inserts whose new values fulfil this"),
        ("ignore_update_new_value_expr", "updates whose new values fulfil this"),
        ("ignore_update_old_value_expr", "updates whose old values fulfil this"),
        ("ignore_delete_value_expr", "deletes whose old values fulfil this"),
    ):
        if text := getattr(section, key):
            yield key.replace("_", "-"), _written(text), about
    if section.ignore_update_only_columns:
        yield "ignore-update-only-columns", _written(section.ignore_update_only_columns), "updates that change nothing but these columns"


def _dispatchers(config: ChangefeedConfig) -> Iterator[Explained]:
    for i, section in enumerate(config.sink.dispatchers):
        if section.dispatches:
            about = f"their rows go to {_topic(section)}, {_partition(section)}{_target(section)}"
        else:
            about = _target(section).removeprefix("; ").removeprefix(", ")
        yield Explained(f"sink.dispatchers[{i}]", _written(section.matcher), "", FILE, about)
    yield Explained("sink.dispatchers, other tables", "", "", DEFAULT, "their rows go to the sink's topic, all of a table to one partition")


def _target(section: DispatcherSection) -> str:
    """Return what the tables are called downstream, if the section says so."""
    if not section.target_schema and not section.target_table:
        return ""
    return f"; downstream they are {section.target_schema or '{schema}'}.{section.target_table or '{table}'}"


def _topic(section: DispatcherSection) -> str:
    return f"topic {section.topic}" if section.topic else "the sink's topic"


def _partition(section: DispatcherSection) -> str:
    match section.mode:
        case DispatchMode.TABLE:
            return "all of a table to one partition"
        case DispatchMode.TS:
            return "by commit_ts"
        case DispatchMode.PHYSICAL:
            return "a file folder for each partition of the table"
        case DispatchMode.INDEX_VALUE:
            return f"by the columns of index {section.index}" if section.index else "by the columns of the handle key"
        case DispatchMode.COLUMNS:
            return f"by the columns {', '.join(section.columns)}" if section.columns else "all of a table to one partition"


def _selectors(config: ChangefeedConfig) -> Iterator[Explained]:
    for i, section in enumerate(config.sink.column_selectors):
        about = f"their messages have the columns {', '.join(section.columns)}"
        yield Explained(f"sink.column-selectors[{i}]", _written(section.matcher), "", FILE, about)


def _parameters(config: ChangefeedConfig, sink_uri: str | None) -> Iterator[Explained]:
    in_file = config.parameters()
    if sink_uri is None:
        if config.sink.protocol and not spec_of(uri.parse_protocol(config.sink.protocol)).uses_registry:
            config.sink_uri("blackhole:///")  # checks what is known of the protocol; a registry may come with the sink
        for name, text in in_file.items():
            uri.check_parameter(name, text, "configuration, [sink]")
            yield _parameter(uri.PARAMETERS[name], text, FILE)
        return
    sink = config.sink_uri(sink_uri)
    in_uri = dict(parse_qsl(urlsplit(sink_uri.strip()).query, keep_blank_values=True))
    for name, parameter in uri.parameters_of(sink.scheme).items():
        if not uri.takes(sink.scheme, parameter) or not (name in sink.own or uri.uses(sink.protocol, parameter)):
            continue
        given: Mapping[str, tuple[str, str]] = {n: (t, FILE) for n, t in in_file.items()} | {n: (t, URI) for n, t in in_uri.items()}
        text, source = given.get(name, (parameter.default, DEFAULT))
        yield _parameter(parameter, text, source)


def _parameter(parameter: Parameter, text: str, source: str) -> Explained:
    shown = (
        redact(text) if parameter.name in ("schema-registry", "claim-check-storage-uri") else "xxxxx" if parameter.secret and text else text
    )
    return Explained(parameter.name, _quoted(shown), _quoted(parameter.default), source, parameter.about)


def _quoted(text: str) -> str:
    """Return the text, in quotes if it would not be visible."""
    return text if text.isprintable() and text.strip() == text else _written(text)
