"""The documents name every setting, event and function that there is."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemill.config.file import parse_config
from tidemill.config.uri import PARAMETERS
from tidemill.rules.dispatch import WORDS as PARTITION_WORDS
from tidemill.rules.event_filter import WORDS as EVENT_WORDS
from tidemill.rules.expressions.functions import FUNCTIONS

DOCS = Path(__file__).parents[2] / "docs"
SETTINGS = "".join(
    path.read_text(encoding="utf-8") for path in [DOCS / "configuration.md", *sorted((DOCS / "sinks").glob("*.md")), DOCS / "dispatch.md"]
)
FILTERS = (DOCS / "filters.md").read_text(encoding="utf-8")
ALIASES = {"OCTET_LENGTH", "CHARACTER_LENGTH", "LCASE", "UCASE", "CEILING", "DAYOFMONTH"}


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_parameter_is_described(name: str) -> None:
    assert f"`{name}`" in SETTINGS or f"{name} = " in SETTINGS


COLUMNS = """
[[filter.event-filters]]
matcher = ["a.*"]
ignore-update-only-columns = ["seen_at"]
[sink]
only-output-updated-columns = true
delete-only-output-handle-key-columns = true
split-on-dispatch-key = true
[[sink.dispatchers]]
matcher = ["a.*"]
partition = "columns"
columns = ["region"]
[[sink.dispatchers]]
matcher = ["b.*"]
partition = "index-value"
index = "uk"
[[sink.column-selectors]]
matcher = ["a.*"]
columns = ["*", "!phone"]
[sink.cloud-storage-config]
output-column-id = true
"""
"""Every key that is about columns."""


def test_every_key_about_columns_is_taken_and_described() -> None:
    config = parse_config(COLUMNS)
    assert config.column_selectors()
    config.event_filters()
    config.sink_uri("kafka://b:9092/t?protocol=open-protocol")
    page = (DOCS / "configuration.md").read_text(encoding="utf-8").partition("### Keys about columns\n")[2].partition("\n## ")[0]
    described = set(re.findall(r"`((?:sink|filter)\.[\w.-]+)`", page))
    assert described == {f"sink.{name}" for name in _keys(tomllib.loads(COLUMNS)["sink"])} | {
        "filter.event-filters.ignore-update-only-columns",
        "sink.column-selectors.matcher",
    }


def _keys(section: dict[str, Any]) -> Iterator[str]:
    for key, value in section.items():
        parts = value if isinstance(value, list) else [value]
        for part in parts:
            if isinstance(part, dict):
                yield from (f"{key}.{name}" for name in part if name not in ("matcher", "partition"))
            else:
                yield key


def test_every_kind_of_dispatch_and_event_and_function_is_listed() -> None:
    dispatch = (DOCS / "dispatch.md").read_text(encoding="utf-8")
    assert [word for word in PARTITION_WORDS if f"`{word}`" not in dispatch] == []
    assert [word for word in EVENT_WORDS if f"`{word}`" not in FILTERS] == []
    listed = FILTERS.partition("- Functions: ")[2].partition("- Text is")[0]
    assert [name for name in FUNCTIONS if name not in ALIASES and name not in listed.replace("`", " ").split()] == []
