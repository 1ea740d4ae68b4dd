"""A changefeed's TOML file: TiCDC's keys, those that Tidemill acts on as models (`sections`), the others judged by `ticdc_keys`.

Nothing is silently dropped: an unknown key is a ConfigError with the nearest known one, a key of TiCDC's without meaning here is
a warning, one that would change what is delivered is refused.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr, ValidationError

from tidemill.config import ticdc_keys, uri
from tidemill.config.encoding import check_with_force_replicate
from tidemill.config.faults import Faults, complaint
from tidemill.config.parameters import STORAGE, Scheme
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
from tidemill.config.values import parse_stuck_duration
from tidemill.errors import ConfigError
from tidemill.protocols.all import spec_of
from tidemill.rules.dispatch import Dispatcher, Route
from tidemill.rules.event_filter import EventFilters
from tidemill.rules.names import did_you_mean
from tidemill.rules.selectors import ColumnSelector, ColumnSelectors
from tidemill.rules.table_filter import ColumnFilter, TableFilter
from tidemill.rules.topics import TopicExpression

_EMPTY_COUNTS = {"csv-quote", "csv-null"}
"""Parameters that may be set to nothing; of the others an empty text in the file sets nothing, as in TiCDC."""


_MAY_CHANGE = {"changefeed_error_stuck_duration", "progress"}
"""At any start: what is delivered does not depend on them."""


class ChangefeedConfig(ConfigSection):
    """A checked file. `warnings`: what was taken without having a meaning here."""

    _warnings: tuple[str, ...] = PrivateAttr(())

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._warnings

    def given(self) -> dict[str, Any]:
        """What differs from the defaults and changes what is delivered, without secrets: keys that a later version adds are not in it."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=_MAY_CHANGE)

    @property
    def stuck_s(self) -> float:
        """changefeed-error-stuck-duration in seconds."""
        return parse_stuck_duration(self.changefeed_error_stuck_duration) / 1000

    @property
    def by_table(self) -> bool:
        """Whether each log partition goes by its own head."""
        return self.progress == "table"

    def table_filter(self) -> TableFilter:
        """Which tables are delivered."""
        return self._matcher(self.filter.rules or ["*.*"], "filter.rules")

    def dispatcher(self) -> Dispatcher:
        """Which topic and partition their rows go to."""
        return Dispatcher(
            [
                Route(self._matcher(d.matcher, f"sink.dispatchers[{i}].matcher"), d.rule(), TopicExpression(d.topic))
                for i, d in enumerate(self.sink.dispatchers)
            ]
        )

    def event_filters(self, scheme: Scheme = Scheme.KAFKA) -> EventFilters:
        """Which changes and DDLs of these tables are left out. Storage sinks get updates of any columns, as in TiCDC."""
        columns = scheme not in STORAGE
        rules = enumerate(self.filter.event_filters)
        return EventFilters(
            [s.rule(self._matcher(s.matcher, f"filter.event-filters[{i}].matcher"), update_only_columns=columns) for i, s in rules],
            frozenset(self.filter.ignore_txn_start_ts),
            self.case_sensitive,
        )

    def column_selectors(self) -> ColumnSelectors:
        """Which columns their messages have."""
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
        """Each rule of tables and columns on its own: calls that raise ConfigError for a bad one."""
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
        for i, section in enumerate(self.sink.column_selectors):
            for rule in section.columns:
                yield partial(ColumnFilter, [rule], where=f"sink.column-selectors[{i}].columns:")

    def _matcher(self, rules: list[str], path: str) -> TableFilter:
        return TableFilter(rules, case_sensitive=self.case_sensitive, where=f"{path}:")

    def parameters(self) -> dict[str, str]:
        """What the file sets of the sink URI's parameters. Raises ConfigError where two keys stand for one."""
        found: dict[str, str] = {}
        for name, parameter in uri.PARAMETERS.items():
            given = {key: text_of(value) for key in parameter.keys if (value := value_at(self, key)) is not None}
            given = {key: text for key, text in given.items() if text or name in _EMPTY_COUNTS}
            if len(set(given.values())) > 1:
                raise ConfigError(f"configuration: {' and '.join(given)} contradict each other")
            found |= dict.fromkeys([name], next(iter(given.values()))) if given else {}
        return found

    def sink_uri(self, text: str) -> uri.SinkUri:
        """The sink URI with what the file adds to it. `.text` of the result is complete: workers need nothing else. Raises ConfigError."""
        found = uri.parse_sink_uri(text, self.parameters())
        if self.by_table and found.scheme in STORAGE:
            raise ConfigError(
                f'progress = "table" is not for {found.scheme.value}://: files are published by intervals of time of all tables together',
                hint='Take progress = "global" (the default), or a Kafka sink.',
            )
        if self.force_replicate:
            found = replace(found, warnings=(*found.warnings, *check_with_force_replicate(found.encoding)))
        if found.protocol is not None and spec_of(found.protocol).uses_registry:
            self._check_avro_topics()
        if found.scheme in STORAGE and any(section.ignore_update_only_columns for section in self.filter.event_filters):
            warning = f"ignore-update-only-columns has no meaning for {found.scheme.value}://"
            found = replace(found, warnings=(*found.warnings, warning))
        return found

    def _check_avro_topics(self) -> None:
        for i, section in enumerate(self.sink.dispatchers):
            try:
                TopicExpression(section.topic).check_avro()
            except ValueError as error:
                raise ConfigError(f"configuration: sink.dispatchers[{i}].topic = {section.topic!r}: {error}") from None


def load_config(path: Path | None) -> ChangefeedConfig:
    """Read and check a changefeed's TOML file; None: the defaults. Raises ConfigError."""
    if path is None:
        return ChangefeedConfig()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration {path}: {error}") from None
    return parse_config(text, str(path))


def given_in(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """What differs from the defaults in a configuration as another version may have stored it; all of it where it cannot be read."""
    try:
        return ChangefeedConfig.model_validate(stored).given()
    except ValidationError:
        return stored


def parse_config(text: str, name: str = "configuration") -> ChangefeedConfig:
    """Check a changefeed's TOML text. Raises ConfigError that begins with `name`, ManyFaults if there are several."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: {error}") from None
    faults = Faults()
    judge = _Judge(name, faults)
    known = judge.known(data, ChangefeedConfig, "")
    try:
        config = ChangefeedConfig.model_validate(known)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            faults.add(ConfigError(f"{name}: {complaint(one)}"))
        faults.check()
        raise
    for i, dispatcher in enumerate(config.sink.dispatchers):
        judge.warnings += [f"{name}: sink.dispatchers[{i}].{what}" for what in dispatcher.unused()]
    config._warnings = tuple(judge.warnings)
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
    """Sorts the keys of a file: those that the models know are kept; the others are warned about, or are faults."""

    def __init__(self, name: str, faults: Faults) -> None:
        self._name, self._faults = name, faults
        self.warnings: list[str] = []

    def known(self, data: Mapping[str, Any], model: type[Section], prefix: str) -> dict[str, Any]:
        """The keys of a table that its model knows."""
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
        """A key (or table of keys) that Tidemill does not act on."""
        parent, _, key = path.rpartition(".")
        in_list = ticdc_keys.REFUSED_IN_LISTS.get(re.sub(r"\[[0-9]+\]$", "", parent), {})
        refused = ticdc_keys.REFUSED if path in ticdc_keys.REFUSED else {path: in_list[key]} if key in in_list else {}
        if path in refused:
            nothing = refused[path]
            if nothing is None or value not in (nothing, ""):
                self._faults.add(ConfigError(f"{self._name}: {path} is not supported yet"))
        elif why := ticdc_keys.ignored(path):
            self.warnings.append(f"{self._name}: {path} has no meaning for Tidemill: {why}")
        elif isinstance(value, Mapping) and (below := _keys_below(path)):
            for name, inner in value.items():
                self._foreign(f"{path}.{name}", inner, below)
        else:
            candidates = siblings | _keys_below(parent) | set(in_list)
            self._faults.add(ConfigError(f"{self._name}: unknown key {path}{did_you_mean(key, candidates)}"))


def _keys_below(path: str) -> set[str]:
    """Names of TiCDC's own keys and tables directly below a table (all of them at the top for "")."""
    prefix = path + "." if path else ""
    known = [*ticdc_keys.IGNORED, *ticdc_keys.REFUSED]
    return {key[len(prefix) :].partition(".")[0] for key in known if key.startswith(prefix)} - {"*"}
