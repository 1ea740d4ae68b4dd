"""What a capture in groups tells of itself."""

from __future__ import annotations

import json
from dataclasses import asdict, fields

from tidemill.capture.status import CaptureStatus, Section
from tidemill.cli.changefeeds.status import summary
from tidemill.metrics.histogram import Histograms, all_from
from tidemill.metrics.samples import Sample


def test_the_status_is_of_all_parts_and_metrics_name_the_group() -> None:
    parts = [
        Section({0: 5}, tables=2, regions={"live": 3, "gap": 0}, rows=10, slowest=[{"resolved_ts": 9, "seconds": 1.0}]),
        Section(
            {1: 7},
            tables=1,
            regions={"live": 1, "gap": 1},
            rows=5,
            slowest=[{"resolved_ts": 8, "seconds": 4.0}],
            stuck=[{"resolved_ts": 8}],
        ),
    ]
    status = CaptureStatus(state="running")
    status.take(parts)
    assert (status.tables, status.rows, status.regions) == (3, 15, {"live": 4, "gap": 1})
    assert status.holding == {"resolved_ts": 8, "seconds": 4.0}
    assert len(status.stuck) == 1
    plain = {s.name: s for s in status.samples()}
    assert (plain["tidemill_capture_rows"].value, plain["tidemill_capture_rows"].labels) == (15, {})
    status.groups = [{"group": g, "state": "running", "restarts": g, "part": asdict(part)} for g, part in enumerate(parts)]
    rows: list[Sample] = [s for s in status.samples() if s.name == "tidemill_capture_rows"]
    assert [(s.labels, s.value) for s in rows] == [({"group": "0"}, 10), ({"group": "1"}, 5)]
    assert Section.from_dict(json.loads(json.dumps(asdict(parts[0])))) == parts[0]


def test_whatever_a_part_tells_is_in_status_and_metrics() -> None:
    part = Section(heads={0: 5})
    histograms = Histograms(("sort",))
    histograms.observe("sort", 0.25)
    part.stages = histograms.as_dict()
    others = ("heads", "synced", "counted_since", "slowest", "stuck", "held_tables", "paused", "stages")
    counted = [one for one in fields(Section) if one.name not in others]
    for i, one in enumerate(counted):
        setattr(part, one.name, {f"key {i}": 1000 + i} if str(one.type).startswith("dict") else 1000 + i)
    status = CaptureStatus(state="running")
    status.take([part, part])
    shown = {sample.value for sample in status.samples()}
    for i, one in enumerate(counted):
        assert getattr(status, one.name) in (2 * (1000 + i), {f"key {i}": 2 * (1000 + i)}), one.name
        assert 2 * (1000 + i) in shown, f"{one.name} is not a metric"
    [of_sort] = [made for stage, made in all_from(status.stages).items() if stage == "sort"]
    assert (of_sort.count, of_sort.sum) == (2, 0.5)
    assert ("tidemill_capture_stage_seconds", {"stage": "sort"}) in [(s.name, s.labels) for s in status.samples()]


def test_the_status_verb_tells_of_each_group() -> None:
    running = {"group": 0, "state": "running", "since": "then", "host": "h", "pid": 7, "attempt": 2, "partitions": [0, 3],
               "heads": {"0": 470626791390707712, "3": 470626791390707713}, "error": None, "part": {"tables": 5, "rows": 88}}  # fmt: skip
    waiting = {"group": 1, "state": "waiting", "since": "then", "host": "", "pid": 0, "attempt": -1, "partitions": [1], "heads": {"1": 0},
               "error": {"code": "TM:ErrJobLost", "message": "no master"}, "part": {}}  # fmt: skip
    lines = summary({"groups": [running, waiting], "holding": {"table": "d.t", "phase": "live", "group": 0, "host": "h", "seconds": 300}})
    [first, second, held] = [line for line in lines if line.startswith(("group", "held"))]
    assert "running since then, process 7 on h, attempt 2; partitions 0, 3 up to 470626791390707712 (2026-" in first
    assert first.endswith("5 tables, 88 rows")
    assert second.endswith("TM:ErrJobLost: no master")
    assert "pulled by group 0 on h" in held
