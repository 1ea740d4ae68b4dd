"""Each alert rule has a runbook, and its `runbook` leads there."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "runbooks.md").read_text(encoding="utf-8")
ALERTS = yaml.safe_load(resources.files("tidemill.metrics").joinpath("alerts.yml").read_text(encoding="utf-8"))
RULES = {rule["alert"]: rule for group in ALERTS["groups"] for rule in group["rules"]}


def test_every_rule_has_its_runbook_and_links_it() -> None:
    assert sorted(re.findall(r"^## (\w+)$", PAGE, re.MULTILINE)) == sorted(RULES)
    for name, rule in RULES.items():
        assert rule["annotations"]["runbook"] == f"docs/runbooks.md#{name.lower()}"


def test_every_runbook_says_what_it_means_what_to_look_at_and_what_to_do() -> None:
    for section in PAGE.split("\n## ")[1:]:
        name = section.partition("\n")[0]
        assert [word for word in ("- **Means**: ", "- **Look at**: ", "- **Do**: ") if section.count(word) != 1] == [], name


def test_codes_that_runbooks_name_are_on_the_page_of_errors() -> None:
    errors = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    assert [code for code in re.findall(r"TM:Err\w+", PAGE) if code not in errors] == []
