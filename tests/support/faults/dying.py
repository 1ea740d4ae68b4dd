"""`python -m tests.support.faults.dying FILE capture …`: a tidemill whose capture kills itself (SIGKILL) at a point that FILE names.

At each point it checks FILE. It removes the file before it dies, so that the next process survives. It looks for requests of another
layout more often than others do.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidemill.capture import growth
from tidemill.capture.capture import Capture
from tidemill.capture.growth import Settled
from tidemill.capture.tikv.feed.puller import Puller
from tidemill.capture.tikv.receive.ingest import Receiver
from tidemill.capture.tikv.sort.partition import PartitionLog
from tidemill.capture.tikv.tables import TableSpans
from tidemill.changelog.writer import LogWriter, PartitionWriter

POINTS: dict[str, tuple[type, str, bool]] = {
    "schema sealed": (Capture, "_schema_sealed", False),
    "schema followed": (TableSpans, "follow", True),
    "span added": (TableSpans, "_capture", True),
    "span placed": (Receiver, "place", True),
    "subscribed": (Receiver, "subscribe", True),
    "scanned": (Puller, "post", False),
    "rows sealed": (PartitionLog, "seal", True),
    "head set": (PartitionWriter, "set_head", False),
    "retired": (TableSpans, "_retire", True),
}
"""Point → class, method, whether it dies behind the call (or before it)."""
OF_LAYOUTS: dict[str, tuple[type, str, bool]] = {
    "settled": (Settled, "__init__", True),  # all folders are held at one ts
    "layout written": (LogWriter, "set_identity", True),
    "layout not written": (LogWriter, "set_identity", False),
}
"""The same, of a change of the log's layout."""


def arm(file: Path) -> None:
    """Put the points in place."""
    for point, (owner, name, behind) in (POINTS | OF_LAYOUTS).items():
        setattr(owner, name, _wrapped(getattr(owner, name), point, behind, file))


def _wrapped(method: Callable[..., Any], point: str, behind: bool, file: Path) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        if not behind:
            _die(point, file)
        result = method(*arguments, **options)
        if behind:
            _die(point, file)
        return result

    return call


def _die(point: str, file: Path) -> None:
    if file.exists() and file.read_text() == point:
        file.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    arm(Path(sys.argv[1]))
    growth.LOOK_EVERY, growth.AHEAD_MS, growth.REST_S = 0.1, 500, 0.5
    from tidemill.cli.main import main

    main(sys.argv[2:])
