"""The documents name every setting, event and function that there is."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def test_every_kind_of_dispatch_and_event_and_function_is_listed() -> None:
    dispatch = (DOCS / "dispatch.md").read_text(encoding="utf-8")
    assert [word for word in PARTITION_WORDS if f"`{word}`" not in dispatch] == []
    assert [word for word in EVENT_WORDS if f"`{word}`" not in FILTERS] == []
    listed = FILTERS.partition("- Functions: ")[2].partition("- Text is")[0]
    assert [name for name in FUNCTIONS if name not in ALIASES and name not in listed.replace("`", " ").split()] == []
