"""What `tidemill run` tells of itself, made of what its children write down: status.json each second, /status and /metrics.

DIR/changefeeds/ID/status.json            this: the changefeed, with `capture` and `processes` inside
DIR/changefeeds/ID/delivery.json          by the Spark driver, after each batch
DIR/changefeeds/ID/capture/status.json    by the capture, each second
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from tidemill.capture.status import CaptureStatus
from tidemill.changefeed.checkpoint import FeedFolder, Status
from tidemill.changefeed.keeper import FeedKeeper
from tidemill.changefeed.states import State
from tidemill.changelog.storage import durable
from tidemill.changelog.storage.patience import TELL_EVERY_S
from tidemill.errors import DiskLow, LogRefused, LogUnavailable, redact
from tidemill.metrics.samples import Sample, counter, gauge
from tidemill.process.supervisor import ChildProcess
from tidemill.tso import describe, physical_ms

log = logging.getLogger(__name__)


class Health:
    """Reads what the children wrote, and knows their processes."""

    def __init__(self, folder: FeedFolder, children: Sequence[ChildProcess]) -> None:
        self._folder, self._children = folder, children
        self.error: dict[str, str] | None = None
        """What ended the run."""
        self.state = "starting"
        self.address: str | None = None
        """Where this is served."""
        self._next_word = 0.0  # when the next word is due of a status that cannot be written

    def look(self) -> dict[str, Any]:
        """The status as of now."""
        delivery = self._delivery()
        capture = _read(self._folder.capture / "status.json")
        checkpoint = int(delivery.get("checkpoint_ts", 0))
        return {
            **{f.name: delivery.get(f.name) for f in fields(Status)},
            "changefeed": self._folder.changefeed,
            "resume": self._resume if delivery["state"] == State.FAILED else None,
            "run": self.state,
            "status_addr": self.address,
            "checkpoint_ts": checkpoint,
            "checkpoint_time": describe(checkpoint) if checkpoint else "",
            "checkpoint_lag_s": _lag(checkpoint),
            "error": self.error or delivery.get("error"),
            "capture": capture,
            "processes": [{"name": h.name, "pid": h.pid, "restarts": h.restarts, "last_error": _error(h)} for h in self._children],
            "updated_at": time.time(),
        }

    def _delivery(self) -> dict[str, Any]:
        """What the changefeed says of itself; of one whose process has not spoken yet, what its keeper knows."""
        said = {"state": State.NORMAL, **_read(self._folder.delivery)}
        for child in self._children:
            if isinstance(child.rule, FeedKeeper):
                said |= child.rule.told(said, child.pid)
        return said

    @property
    def _resume(self) -> str | None:
        return next((child.rule.resume for child in self._children if isinstance(child.rule, FeedKeeper)), None)

    def write(self) -> None:
        """Replace status.json at once and whole. Nothing hangs on it: where it cannot be written, that is told, and the run goes on."""
        try:
            durable.write_json(self._folder.path / "status.json", self.look(), sync=False)
        except (LogUnavailable, LogRefused, DiskLow) as error:
            if time.monotonic() >= self._next_word:
                self._next_word = time.monotonic() + TELL_EVERY_S
                log.warning("the run's status cannot be written: %s", error.message)

    def samples(self) -> Iterable[Sample]:
        """As Prometheus has it, capture included."""
        delivery = self._delivery()
        feed = self._folder.changefeed
        status = _known(Status, {"changefeed": feed, **delivery})
        state = str(status.get("state", State.NORMAL))
        for known in State:
            yield gauge("tidemill_changefeed_state", "1 for the state the changefeed is in", known == state, changefeed=feed, state=known)
        checkpoint = int(status.get("checkpoint_ts", 0))
        yield gauge("tidemill_changefeed_checkpoint_ts", "Everything at or below this TSO is delivered", checkpoint, changefeed=feed)
        yield gauge("tidemill_changefeed_checkpoint_lag_seconds", "How far it is behind the clock", _lag(checkpoint), changefeed=feed)
        for name, text in _COUNTED.items():
            yield counter(f"tidemill_changefeed_{name}", text, int(status.get(name) or 0), changefeed=feed)
        for child in self._children:
            yield gauge("tidemill_process_up", "1 while a child runs", child.pid is not None, process=child.name)
            yield counter("tidemill_process_restarts", "How often a child was started again", child.restarts, process=child.name)
        yield from CaptureStatus(**_known(CaptureStatus, _read(self._folder.capture / "status.json"))).samples()


_COUNTED = {
    "batches": "Batches delivered",
    "rows": "Rows delivered",
    "messages": "Messages delivered",
    "bytes": "Bytes delivered",
    "ddls": "DDLs delivered",
    "slow_rows": "Rows that the plain encoder wrote instead of a kernel",
    "skipped_rows": "Rows that were left out by name (--skip-row)",
    "corrupted_rows": "Rows that were sent although they do not fit their checksum",
}


def resolved_of(folder: FeedFolder) -> int:
    """How far the capture is, for the supervisor; 0 before its first word."""
    return int(_read(folder.capture / "status.json").get("resolved_ts", 0))


def old_processes(folder: FeedFolder) -> list[int]:
    """Processes that the status of an earlier run names and that are still there."""
    status = _read(folder.path / "status.json")
    pids = [p["pid"] for p in status.get("processes", ()) if p.get("pid")]
    return [pid for pid in pids if _is_half(int(pid))]


def _is_half(pid: int) -> bool:
    """Whether a process is one of ours, not another one that got the number; and not one that is gone but for its exit code."""
    try:
        return b"tidemill" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def error_dict(code: str, message: str) -> dict[str, str]:
    """An error as statuses hold it."""
    return {"code": code, "message": redact(message)}


def _error(child: ChildProcess) -> dict[str, str] | None:
    return None if child.last_error is None else error_dict(*child.last_error)


def _lag(ts: int) -> float:
    return round(max(0.0, time.time() - physical_ms(ts) / 1000), 3) if ts else 0.0


def _known(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those values that the class has: the file may be another version's."""
    names = {f.name for f in fields(kind)}
    return {name: value for name, value in values.items() if name in names}


def _read(path: Path) -> Mapping[str, Any]:
    """A status file; empty where there is none, or none that can be read: statuses may be lost."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
