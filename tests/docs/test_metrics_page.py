"""The page of metrics has every metric that the code has, with its type and labels, and none more."""

from __future__ import annotations

import os
import re
from dataclasses import asdict
from pathlib import Path

from tidemill.canal.conversation.subscriber import Counts
from tidemill.canal.server.metrics import samples as canal_samples
from tidemill.capture.status import CaptureStatus, Section
from tidemill.changefeed.feed_folder import FeedFolder
from tidemill.changefeed.run_status import RunStatus
from tidemill.metrics.samples import Sample
from tidemill.process.supervisor import ChildProcess
from tidemill.server.feeds import FeedFiles
from tidemill.server.settings import FeedSettings
from tidemill.server.status import feed_samples

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
CODE = Path(__file__).parents[2] / "tidemill"
ROW = re.compile(r"\| `(?P<name>tidemill_\w+)` \| (?P<type>gauge|counter) \| (?P<labels>[^|]*)\| (?P<unit>[^|]+) \| (?P<meaning>[^|]+) \|")
MAKERS = {
    *("tidemill/canal/server/metrics.py", "tidemill/capture/status.py", "tidemill/changefeed/run_status.py"),
    "tidemill/server/status.py",  # the changefeed's again
    "tidemill/binlog/pump/figures.py",  # on a page of its own: tests/binlog/pump/test_server.py
    "tidemill/binlog/drainer/drainer.py",  # likewise: tests/binlog/drainer/test_drainer.py
}
"""The modules that make samples."""


def full_status(*, in_groups: bool) -> CaptureStatus:
    """A capture of which every metric has something to tell."""
    flow = {"regions": {"live": 1}, "region_errors": {"not_leader": 1}, "violations": {"row": 1}, "cpu_seconds": {"scan": 1.0}}
    held = {"table": "a.b", "partition": 0, "cause": "lock", "seconds": 1.0, "resolved_ts": 1}
    group = {"group": 0, "state": "running", "restarts": 0, "part": asdict(Section(**flow))}  # type: ignore[arg-type]
    return CaptureStatus(heads=[1], held_tables=[held], groups=[group] if in_groups else [], **flow)  # type: ignore[arg-type]


def samples(folder: Path) -> list[Sample]:
    child = ChildProcess("changefeed", ["x"], pid=os.getpid())
    client = {"destination": "d", "client": 1, "lag_s": 0, "open_batches": 0, **asdict(Counts())}
    canal = {"checkpoint_ts": 1, "begins": 1, "connections": 0, "refused": 0, "clients": [client]}
    whole = [*canal_samples(canal), *full_status(in_groups=False).samples(), *full_status(in_groups=True).samples()]
    return [*RunStatus(FeedFolder(folder, "f"), [child]).samples(), *whole]


def of_code(folder: Path) -> dict[str, tuple[str, str]]:
    """Type and labels by name. A label that not every sample has is in brackets."""
    labels: dict[str, list[set[str]]] = {}
    types = {}
    for sample in samples(folder):
        name = f"{sample.name}_total" if sample.counter else sample.name
        types[name] = "counter" if sample.counter else "gauge"
        labels.setdefault(name, []).append(set(sample.labels))
    return {name: (types[name], written(found)) for name, found in labels.items()}


def written(found: list[set[str]]) -> str:
    always, ever = set.intersection(*found), set.union(*found)
    return ", ".join([f"`{name}`" for name in sorted(always)] + [f"[`{name}`]" for name in sorted(ever - always)])


def of_page() -> dict[str, tuple[str, str]]:
    rows = [match for match in map(ROW.match, PAGE.read_text(encoding="utf-8").splitlines()) if match]
    assert len({row["name"] for row in rows}) == len(rows)
    return {
        row["name"]: (row["type"], ", ".join(sorted(row["labels"].strip().split(", "), key=lambda one: (one[:1] == "[", one))))
        for row in rows
    }


def test_the_page_has_every_metric_and_none_more(tmp_path: Path) -> None:
    assert of_page() == of_code(tmp_path)


def test_a_servers_changefeeds_have_the_metrics_of_a_run(tmp_path: Path) -> None:
    settings = FeedSettings("f", "blackhole://", 1, 0.0, "", "1")
    found = list(feed_samples([FeedFiles(tmp_path, "log").made(settings)], 0.0))
    by_name = {f"{sample.name}_total" if sample.counter else sample.name: sample for sample in found}
    page = of_page()
    for name, sample in by_name.items():
        kind = "counter" if sample.counter else "gauge"
        assert page[name] == (kind, ", ".join(f"`{label}`" for label in sorted(sample.labels)))


def test_no_other_module_makes_metrics() -> None:
    """A module that begins to make some has to be asked by this test."""
    makers = {str(path.relative_to(CODE.parent)) for path in CODE.rglob("*.py") if re.search(r'(gauge|counter)\(\s*f?"', path.read_text())}
    assert makers == MAKERS


def test_what_to_alert_on_is_there(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## The changefeed")[0]
    assert set(re.findall(r"`[^`]*?(tidemill_\w+[a-z])[^`_a-z]", text)) - {"tidemill_capture_"} <= set(of_code(tmp_path))
