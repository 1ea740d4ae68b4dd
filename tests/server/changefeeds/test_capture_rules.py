"""Which tables a server's capture takes for its changefeeds."""

from __future__ import annotations

import pytest

from tidemill.changelog.log_format import CaptureRules
from tidemill.rules.table_filter import TableFilter
from tidemill.server.changefeeds.capture_rules import EVERYTHING, union

TABLES = [(schema, table) for schema in ("a", "b", "B", "c") for table in ("x", "y", "Y")]


def rules(*found: str, case_sensitive: bool = True) -> CaptureRules:
    return CaptureRules(0, found, case_sensitive)


def selected(found: CaptureRules) -> set[tuple[str, str]]:
    compiled = TableFilter(found.rules, case_sensitive=found.case_sensitive, where="rule:")
    return {name for name in TABLES if compiled.matches(*name)}


@pytest.mark.parametrize(
    ("wanted", "exact"),
    [
        ((rules("a.*"),), True),
        ((rules("*.*", "!a.*"),), True),
        ((rules("a.*"), rules("a.*")), True),
        ((rules("a.*"), rules("b.x")), True),
        ((rules("a.*"), rules("*.*")), True),
        ((rules("*.*", "!a.*"), rules("a.x")), False),
        ((rules("b.*", case_sensitive=False), rules("b.Y")), True),
        ((rules("a.x"), rules("b.y", case_sensitive=False)), True),
        ((rules("/^[ab]$/./x|y/", "!b.y"), rules("c.x")), False),
        ((), False),
    ],
)
def test_the_capture_takes_at_least_what_changefeeds_want(wanted: tuple[CaptureRules, ...], exact: bool) -> None:
    every: set[tuple[str, str]] = set().union(*(selected(one) for one in wanted))
    assert selected(union(wanted)) >= every
    if exact:
        assert selected(union(wanted)) == every


def test_nothing_is_known_of_rules_in_a_file() -> None:
    assert union((rules("@tables.txt"), rules("a.x"))) == EVERYTHING
