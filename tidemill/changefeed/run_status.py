"""The status of `tidemill run`, made from the files of its child processes: status.json each second, /status and /metrics.

DIR/changefeeds/ID/status.json            written here: the changefeed, with `capture` and `processes` inside
DIR/changefeeds/ID/delivery.json          written by the Spark driver, after each batch
DIR/changefeeds/ID/capture/status.json    written by the capture, each second
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from tidemill.canal.server.metrics import samples as canal_samples
from tidemill.capture.status import CaptureStatus
from tidemill.changefeed.feed_folder import FeedFolder
from tidemill.changefeed.feed_metrics import feed_samples, lag
from tidemill.changefeed.feed_status import ONLY_METRICS, Status, usable_status
from tidemill.changefeed.restart_rule import RestartRule
from tidemill.changefeed.states import State
from tidemill.changelog.storage.status_file import StatusFile, read_status
from tidemill.errors import FeedBroken, redact
from tidemill.metrics.rate import Rate
from tidemill.metrics.samples import Sample, build_info, counter, gauge
from tidemill.metrics.ticdc import with_ticdc_names
from tidemill.process.supervisor import ChildProcess
from tidemill.statefile import FEED_FILE, Fields, fitting
from tidemill.tso import describe


class RunStatus:
    """Puts the status together from the children's files and their processes."""

    def __init__(self, folder: FeedFolder, children: Sequence[ChildProcess]) -> None:
        self._folder, self._children = folder, children
        self.error: dict[str, str] | None = None
        """The error that ended the run."""
        self.state = "starting"
        self.address: str | None = None
        """The address that serves /status and /metrics."""
        self._rate = Rate()
        self._file = StatusFile(folder.path / "status.json", "the run")

    def snapshot(self) -> dict[str, Any]:
        """The status as of now."""
        delivery = self._delivery()
        self._rate.note(delivery.get("rows", 0), time.monotonic())
        capture = fitting(CaptureStatus, read_status(self._folder.capture / "status.json"), others=True)
        checkpoint = delivery.get("checkpoint_ts", 0)
        return {
            **{f.name: delivery.get(f.name) for f in fields(Status) if f.name not in ONLY_METRICS},
            "changefeed": self._folder.changefeed,
            "resume": self._resume if delivery["state"] == State.FAILED else None,
            "run": self.state,
            "status_addr": self.address,
            "checkpoint_ts": checkpoint,
            "checkpoint_time": describe(checkpoint) if checkpoint else "",
            "checkpoint_lag_s": lag(checkpoint, time.time()),
            "rows_per_s": self._rate.per_second,
            "error": self.error or delivery.get("error"),
            "capture": capture,
            **({"canal": read_status(self._folder.server)} if self._serves else {}),
            "processes": [{"name": c.name, "pid": c.pid, "restarts": c.restarts, "last_error": _error(c)} for c in self._children],
            "updated_at": time.time(),
        }

    def _delivery(self) -> dict[str, Any]:
        """What the changefeed's process wrote; while a new process has not written anything yet, what its restart rule knows."""
        said = {"state": State.NORMAL, **usable_status(read_status(self._folder.delivery))}
        for child in self._children:
            if isinstance(child.rule, RestartRule):
                said |= child.rule.told(said, child.pid)
        return said

    @property
    def _resume(self) -> str | None:
        return next((child.rule.resume for child in self._children if isinstance(child.rule, RestartRule)), None)

    @property
    def _serves(self) -> bool:
        return any(child.name == "canal" for child in self._children)

    def write(self) -> None:
        """Replace status.json as a whole."""
        self._file.write(self.snapshot())

    def samples(self) -> Iterable[Sample]:
        """The metrics for Prometheus, those of the capture included, some also under TiCDC's names."""
        return with_ticdc_names(self._samples(), self._folder.changefeed)

    def _samples(self) -> Iterable[Sample]:
        delivery = self._delivery()
        yield build_info()
        delivers = any(child.pid is not None for child in self._children if isinstance(child.rule, RestartRule))
        yield from feed_samples(self._folder.changefeed, delivery, time.time(), brokers=delivers)
        for child in self._children:
            yield from child_samples(child.name, child.pid is not None, child.restarts)
        if self._serves:
            yield from canal_samples(read_status(self._folder.server))
        yield from _capture_samples(self._folder.capture / "status.json")


def child_samples(name: str, runs: bool, restarts: int) -> Iterable[Sample]:
    """The metrics of a process that a run or a server supervises."""
    yield gauge("tidemill_process_up", "1 while a child runs", runs, process=name)
    yield counter("tidemill_process_restarts", "How often a child was started again", restarts, process=name)


def resolved_of(folder: FeedFolder) -> int:
    """The capture's resolved ts, for the supervisor; 0 before the capture has written its status."""
    found: int = fitting(CaptureStatus, read_status(folder.capture / "status.json")).get("resolved_ts", 0)
    return found


def old_processes(folder: FeedFolder) -> list[int]:
    """Processes of an earlier run that still live: its status names them."""
    try:
        listed = Fields(read_status(folder.path / "status.json"), "status.json", FEED_FILE).parts("processes", optional=True)
        pids = [process.integer("pid") for process in listed if "pid" in process]
    except FeedBroken:  # status files may be lost
        return []
    return [pid for pid in pids if _is_ours(pid)]


def _is_ours(pid: int) -> bool:
    """Whether this is a living process of Tidemill: not another one that got the same pid, and not a zombie."""
    try:
        return b"tidemill" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def error_dict(code: str, message: str) -> dict[str, str]:
    """An error as it stands in status files."""
    return {"code": code, "message": redact(message)}


def _error(child: ChildProcess) -> dict[str, str] | None:
    return None if child.last_error is None else error_dict(*child.last_error)


def _capture_samples(path: Path) -> list[Sample]:
    """The metrics of the capture, from its status file; none if it holds something that no capture writes."""
    try:
        found = list(CaptureStatus(**fitting(CaptureStatus, read_status(path))).samples())
    except (KeyError, TypeError, ValueError, AttributeError):
        return []
    return [sample for sample in found if isinstance(sample.value, int | float)]
