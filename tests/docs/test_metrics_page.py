"""The page of metrics has every metric that the code has, with its type and labels, and none more."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.metric_samples import every_sample
from tidemill.metrics.ticdc import SAME

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
CODE = Path(__file__).parents[2] / "tidemill"
ROW = re.compile(
    r"\| `(?P<name>(?:tidemill|process)_\w+)` \| (?P<type>gauge|counter|histogram) \| (?P<labels>[^|]*)"
    r"\| (?P<unit>[^|]+) \| (?P<meaning>[^|]+) \|"
)
MAKERS = {
    *("tidemill/canal/server/metrics.py", "tidemill/capture/status.py", "tidemill/changefeed/run_status.py"),
    *("tidemill/changefeed/feed_metrics.py", "tidemill/metrics/samples.py"),
    *("tidemill/server/shared/leading.py", "tidemill/cli/downstream/consume_metrics.py", "tidemill/views/figures.py"),
    "tidemill/binlog/pump/figures.py",  # on a page of its own: tests/binlog/pump/test_server.py
    "tidemill/binlog/drainer/drainer.py",  # likewise: tests/binlog/drainer/test_drainer.py
}
"""The modules that make samples."""


def of_code(folder: Path) -> dict[str, tuple[str, str]]:
    """Type and labels by name. A label that not every sample has is in brackets."""
    labels: dict[str, list[set[str]]] = {}
    types = {}
    for sample in every_sample(folder):
        if sample.name.startswith("ticdc_"):
            continue
        name = f"{sample.name}_total" if sample.counter else sample.name
        types[name] = "histogram" if sample.histogram is not None else "counter" if sample.counter else "gauge"
        labels.setdefault(name, []).append(set(sample.labels))
    return {name: (types[name], written(found)) for name, found in labels.items()}


def written(found: list[set[str]]) -> str:
    always, ever = set.intersection(*found), set.union(*found)
    return ", ".join([f"`{name}`" for name in sorted(always)] + [f"[`{name}`]" for name in sorted(ever - always)])


def of_page_by_name() -> dict[str, tuple[str, str]]:
    rows = [match for match in map(ROW.match, PAGE.read_text(encoding="utf-8").splitlines()) if match]
    assert len({row["name"] for row in rows}) == len(rows)
    return {
        row["name"]: (row["type"], ", ".join(sorted(row["labels"].strip().split(", "), key=lambda one: (one[:1] == "[", one))))
        for row in rows
    }


def test_the_page_has_every_metric_and_none_more(tmp_path: Path) -> None:
    assert of_page_by_name() == of_code(tmp_path)


def test_no_other_module_makes_metrics() -> None:
    """A module that begins to make some has to be asked by this test."""
    makers = {
        str(path.relative_to(CODE.parent))
        for path in CODE.rglob("*.py")
        if re.search(r'(gauge|counter|histogram)\(\s*f?"', path.read_text())
    }
    assert makers == MAKERS


def test_what_to_alert_on_is_there(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## The changefeed")[0]
    assert set(re.findall(r"`[^`]*?(tidemill_\w+[a-z])[^`_a-z]", text)) - {"tidemill_capture_"} <= set(of_code(tmp_path))


def test_the_page_has_ticdcs_names() -> None:
    row = re.compile(r"^\| `(ticdc_\w+)` \| `(tidemill_\w+)`(?:, stage `(\w+)`)? \| (\w+) \|", re.MULTILINE)
    of_page = {(theirs, ours, stage) for theirs, ours, stage, _ in row.findall(PAGE.read_text(encoding="utf-8"))}
    counters = {name for name, (kind, _) in of_page_by_name().items() if kind == "counter"}
    names = {ours: f"{ours}_total" if f"{ours}_total" in counters else ours for ours in SAME}
    assert of_page == {(same.theirs, names[ours], same.where[1] if same.where else "") for ours, sames in SAME.items() for same in sames}
