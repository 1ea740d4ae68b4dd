"""A changefeed's TOML file with TiCDC's keys: those that Tidemill uses (`sections`) and those that it does not (`ticdc_keys`).

No key is dropped silently. An unknown key is a ConfigError with the nearest known one. A key of TiCDC without meaning here is a
warning. A key that would change what is delivered is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr, ValidationError

from tidemill.config import ticdc_keys, uri
from tidemill.config.encoding import check_with_force_replicate
from tidemill.config.faults import Faults, complaint
from tidemill.config.parameters import Scheme
from tidemill.config.sections import (
    ColumnSelectorSection,
    ConfigSection,
    DispatcherSection,
    EventFilterSection,
    Section,
    section_of,
    text_of,
    value_at,
)
from tidemill.config.sinks import Ddls
from tidemill.config.toml_text import parse_toml
from tidemill.config.values import parse_stuck_duration
from tidemill.errors import ConfigError
from tidemill.protocols.all import spec_of
from tidemill.rules.dispatch import Dispatcher, Route
from tidemill.rules.event_filter import EventFilters
from tidemill.rules.names import did_you_mean
from tidemill.rules.selectors import ColumnSelector, ColumnSelectors
from tidemill.rules.table_filter import ColumnFilter, TableFilter
from tidemill.rules.table_routes import TableRoute, TableRoutes, check_target
from tidemill.rules.topics import TopicExpression
from tidemill.statefile import is_shallow

_EMPTY_COUNTS = {"csv-quote", "csv-null"}
"""Parameters that may be set to an empty text. For others an empty text in the file means the default, as in TiCDC."""


_MAY_CHANGE = {"canal", "changefeed_error_stuck_duration", "performance_mode", "progress", "synced_status"}
"""Keys that may change at any start, because they do not affect what is delivered."""


class ChangefeedConfig(ConfigSection):
    """A checked file. `warnings` are about keys without meaning here."""

    _warnings: tuple[str, ...] = PrivateAttr(())
    _source: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._warnings

    def given(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults and affect delivery, no secrets. So keys of later versions do not appear."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=_MAY_CHANGE)

    def to_plain(self) -> Mapping[str, Any]:
        """Return the settings as they were given, with secrets: for the order of a process."""
        return self._source

    @classmethod
    def from_plain(cls, found: Mapping[str, Any]) -> ChangefeedConfig:
        """Return the settings of `to_plain`. Raises ConfigError."""
        return check_config(found)

    @property
    def stuck_s(self) -> float:
        """changefeed-error-stuck-duration in seconds."""
        return parse_stuck_duration(self.changefeed_error_stuck_duration) / 1000

    @property
    def by_table(self) -> bool:
        """Whether rows of each log partition are delivered up to its own head."""
        return self.progress == "table"

    @property
    def low_latency(self) -> bool:
        """Whether tasks stay between batches."""
        return self.performance_mode == "low-latency"

    def table_filter(self) -> TableFilter:
        """Return the filter of the tables that are delivered."""
        return self._matcher(self.filter.rules or ["*.*"], "filter.rules")

    def dispatcher(self) -> Dispatcher:
        """Return the dispatcher, which chooses topic and partition of rows."""
        return Dispatcher(
            [
                Route(self._matcher(d.matcher, f"sink.dispatchers[{i}].matcher"), d.rule(), TopicExpression(d.topic))
                for i, d in enumerate(self.sink.dispatchers)
                if d.dispatches
            ]
        )

    def table_routes(self) -> TableRoutes:
        """Return the routes, which give tables other names downstream. Raises InvalidTableRoutingRule."""
        sections = [(f"sink.dispatchers[{i}]", d) for i, d in enumerate(self.sink.dispatchers) if d.target_schema or d.target_table]
        return TableRoutes(
            [TableRoute(self._matcher(d.matcher, f"{path}.matcher"), d.target_schema, d.target_table, path) for path, d in sections]
        )

    def event_filters(self, *, whole_updates: bool = False) -> EventFilters:
        """Return the filters of changes and DDLs. `whole_updates`: see `SinkSpec`."""
        columns = not whole_updates
        rules = enumerate(self.filter.event_filters)
        return EventFilters(
            [s.rule(self._matcher(s.matcher, f"filter.event-filters[{i}].matcher"), update_only_columns=columns) for i, s in rules],
            frozenset(self.filter.ignore_txn_start_ts),
            self.case_sensitive,
        )

    def column_selectors(self) -> ColumnSelectors:
        """Return the selectors of the columns that messages have."""
        return ColumnSelectors(
            [
                ColumnSelector(
                    self._matcher(s.matcher, f"sink.column-selectors[{i}].matcher"),
                    ColumnFilter(s.columns, where=f"sink.column-selectors[{i}].columns:"),
                )
                for i, s in enumerate(self.sink.column_selectors)
            ]
        )

    def rules(self) -> Iterator[Callable[[], object]]:
        """Yield a call for each rule of tables and columns. It raises ConfigError for a bad rule."""
        matchers = {"filter.rules": self.filter.rules}
        sections: Mapping[str, Sequence[DispatcherSection | EventFilterSection | ColumnSelectorSection]] = {
            "sink.dispatchers": self.sink.dispatchers,
            "filter.event-filters": self.filter.event_filters,
            "sink.column-selectors": self.sink.column_selectors,
        }
        for name, listed in sections.items():
            matchers |= {f"{name}[{i}].matcher": section.matcher for i, section in enumerate(listed)}
        for path, rules in matchers.items():
            for rule in rules:
                yield partial(self._matcher, [rule], path)
        for i, dispatcher in enumerate(self.sink.dispatchers):
            yield partial(check_target, dispatcher.target_schema, f"sink.dispatchers[{i}].target-schema")
            yield partial(check_target, dispatcher.target_table, f"sink.dispatchers[{i}].target-table")
        for i, section in enumerate(self.sink.column_selectors):
            for rule in section.columns:
                yield partial(ColumnFilter, [rule], where=f"sink.column-selectors[{i}].columns:")

    def _matcher(self, rules: list[str], path: str) -> TableFilter:
        return TableFilter(rules, case_sensitive=self.case_sensitive, where=f"{path}:")

    def parameters(self) -> dict[str, str]:
        """Return the sink URI's parameters that the file sets. Raises ConfigError if two keys set the same one."""
        found: dict[str, str] = {}
        for name, parameter in uri.PARAMETERS.items():
            given = {key: text_of(value) for key in parameter.keys if (value := value_at(self, key)) is not None}
            given = {key: text for key, text in given.items() if text or name in _EMPTY_COUNTS}
            if len(set(given.values())) > 1:
                raise ConfigError(f"configuration: {' and '.join(given)} contradict each other")
            found |= dict.fromkeys([name], next(iter(given.values()))) if given else {}
        return found

    def sink_uri(self, text: str) -> uri.SinkUri:
        """Return the sink URI with the file's parameters added. Its `.text` is all that workers need. Raises ConfigError."""
        found = uri.parse_sink_uri(text, self.parameters())
        if self.by_table and found.spec.together:
            raise ConfigError(
                f'progress = "table" is not for {found.scheme}://: {found.spec.together} are published by intervals of time of all '
                "tables together",
                hint='Take progress = "global" (the default), or a Kafka sink.',
            )
        if self.canal and found.scheme is not Scheme.CANAL:
            found = replace(found, warnings=(*found.warnings, f"[canal] has no meaning for {found.scheme}://"))
        if self.by_table and found.spec.ddls is Ddls.STATEMENTS:
            raise ConfigError(f'progress = "table" is not for {found.scheme}:// yet', hint='Take progress = "global" (the default).')
        if self.force_replicate:
            found = replace(found, warnings=(*found.warnings, *check_with_force_replicate(found.encoding)))
        if found.protocol is not None and spec_of(found.protocol).uses_registry:
            self._check_avro_topics()
        if found.spec.whole_updates and any(section.ignore_update_only_columns for section in self.filter.event_filters):
            warning = f"ignore-update-only-columns has no meaning for {found.scheme}://"
            found = replace(found, warnings=(*found.warnings, warning))
        return found

    def _check_avro_topics(self) -> None:
        for i, section in enumerate(self.sink.dispatchers):
            try:
                TopicExpression(section.topic).check_avro()
            except ValueError as error:
                raise ConfigError(f"configuration: sink.dispatchers[{i}].topic = {section.topic!r}: {error}") from None


def load_config(path: Path | None) -> ChangefeedConfig:
    """Read and check a changefeed's TOML file. None gives the defaults. Raises ConfigError."""
    if path is None:
        return ChangefeedConfig()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration {path}: {error}") from None
    return parse_config(text, str(path))


def given_in(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings that differ from the defaults in a configuration stored by any version. All, if it cannot be read."""
    try:
        return ChangefeedConfig.model_validate(stored).given()
    except ValidationError:
        return stored


def parse_config(text: str, name: str = "configuration") -> ChangefeedConfig:
    """Check a changefeed's TOML text. Raises ConfigError that begins with `name`, ManyFaults if there are several."""
    try:
        data = parse_toml(text)
    except ValueError as error:  # also for a number of thousands of digits
        raise ConfigError(f"{name}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{name}: it is nested too deep") from None
    return check_config(data, name)


def check_config(data: Mapping[str, Any], name: str = "configuration") -> ChangefeedConfig:
    """Check a changefeed's settings, with the keys of the TOML file. Raises as `parse_config`."""
    if not is_shallow(data):  # keys with many dots are nested, too
        raise ConfigError(f"{name}: it is nested too deep")
    faults = Faults()
    judge = _Judge(name, faults)
    known = judge.known(data, ChangefeedConfig, "")
    try:
        config = ChangefeedConfig.model_validate(known)
        config._source = known
    except ValidationError as error:
        for one in error.errors(include_url=False):
            faults.add(ConfigError(f"{name}: {complaint(one)}"))
        faults.check()
        raise
    for i, dispatcher in enumerate(config.sink.dispatchers):
        judge.warnings += [f"{name}: sink.dispatchers[{i}].{what}" for what in dispatcher.unused()]
    redo_is_said = any(line.endswith(ticdc_keys.EVENTUAL) for line in judge.warnings)
    config._warnings = tuple(line for line in judge.warnings if not (redo_is_said and line.endswith(ticdc_keys.REDO)))
    for check in (*config.rules(), config.parameters):
        with faults.collected():
            check()
    with faults.collected():
        _check_protocol(config.sink.protocol, name)
    faults.check()
    return config


def _check_protocol(word: str | None, name: str) -> None:
    try:
        if word:
            uri.parse_protocol(word)
    except ValueError as error:
        raise ConfigError(f"{name}: sink.protocol = {word!r}: {error}") from None


class _Judge:
    """Sorts the keys of a file: those of the models are kept; the others give warnings or faults."""

    def __init__(self, name: str, faults: Faults) -> None:
        self._name, self._faults = name, faults
        self.warnings: list[str] = []

    def known(self, data: Mapping[str, Any], model: type[Section], prefix: str) -> dict[str, Any]:
        """Return the keys of a table that its model knows."""
        fields = {spelling: annotation for spelling, _, annotation in model.spellings()}
        kept: dict[str, Any] = {}
        for key, value in data.items():
            path = prefix + key
            below = section_of(fields.get(key))
            if key not in fields:
                self._foreign(path, value, set(fields))
            elif below is not None and isinstance(value, Mapping):
                kept[key] = self.known(value, below, f"{path}.")
            elif below is not None and isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
                kept[key] = [self.known(item, below, f"{path}[{i}].") for i, item in enumerate(value)]
            else:
                kept[key] = value
        return kept

    def _foreign(self, path: str, value: Any, siblings: set[str]) -> None:
        """Judge a key (or table of keys) that Tidemill does not use."""
        parent, _, key = path.rpartition(".")
        if path in ticdc_keys.REFUSED:
            if not _asks_for_nothing(value, ticdc_keys.REFUSED[path]):
                way_round = f"Leave it out; {ticdc_keys.instead(path)}."
                self._faults.add(ConfigError(f"{self._name}: {path} is not supported yet", hint=way_round))
            elif value == "eventual":
                self.warnings.append(f'{self._name}: {path} = "eventual": {ticdc_keys.EVENTUAL}')
        elif why := ticdc_keys.ignored(path):
            self.warnings.append(f"{self._name}: {path} has no meaning for Tidemill: {why}")
        elif isinstance(value, Mapping) and (below := _keys_below(path)):
            for name, inner in value.items():
                self._foreign(f"{path}.{name}", inner, below)
        else:
            candidates = siblings | _keys_below(parent)
            self._faults.add(ConfigError(f"{self._name}: unknown key {path}{did_you_mean(key, candidates)}"))


def _asks_for_nothing(value: Any, nothing: Any) -> bool:
    """Whether a key that is not supported may stand there: it has the value that asks for nothing, or is a table of empty texts."""
    if isinstance(value, Mapping):
        return isinstance(nothing, Mapping) and all(one == "" for one in value.values())
    return value in ((*nothing, "") if isinstance(nothing, tuple) else (nothing, ""))


def _keys_below(path: str) -> set[str]:
    """Return the names of TiCDC's own keys and tables directly below a table (all of them at the top for "")."""
    prefix = path + "." if path else ""
    known = [*ticdc_keys.IGNORED, *ticdc_keys.REFUSED]
    return {key[len(prefix) :].partition(".")[0] for key in known if key.startswith(prefix)} - {"*"}
