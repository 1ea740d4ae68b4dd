"""`tidemill status --data-dir` of a `tidemill server`: what its files tell, also when it does not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tidemill.capture.status import CaptureStatus
from tidemill.cli.shared.terminal import echo
from tidemill.errors import redact
from tidemill.tso import describe


def is_of_server(data_dir: Path) -> bool:
    """Whether a data directory is that of a server."""
    return (data_dir / "server.json").is_file()


def print_server(data_dir: Path, *, as_json: bool) -> None:
    """Print the capture's last status, and state and checkpoint of each changefeed."""
    from tidemill.server.status import capture_status

    capture = capture_status(data_dir / "capture")
    feeds = [_feed(path) for path in sorted(data_dir.glob("changefeeds/*")) if not path.name.startswith(".")]
    if as_json:
        echo(json.dumps({"capture": capture.as_dict() if capture.updated else None, "changefeeds": feeds}, indent=2))
        return
    echo(_capture_line(capture))
    for feed in feeds:
        checkpoint = describe(feed["checkpoint_ts"]) if feed["checkpoint_ts"] else "none"
        echo(f"changefeed {feed['changefeed']}: {feed['state']}, checkpoint {checkpoint}")
        if feed["error"]:
            echo(f"  {feed['error']['code']}: {feed['error']['message']}")
    echo("These are its files. While it runs, `tidemill status --addr HOST:PORT` and `tidemill top` tell more.")


def _capture_line(capture: CaptureStatus) -> str:
    if not capture.updated:
        return "capture: it has not written a status yet"
    return f"capture: {capture.state}, resolved {describe(capture.resolved_ts)}, log {redact(capture.log)}"


def _feed(path: Path) -> dict[str, Any]:
    """State, checkpoint and error of a changefeed as this machine's host last wrote them."""
    from tidemill.changefeed.feed_folder import FeedFolder

    status = FeedFolder(path.parents[1], path.name).status() or {}
    error = status.get("error")
    shown = {"code": error["code"], "message": redact(error["message"])} if error else None
    state = status.get("state", "unknown")
    return {"changefeed": path.name, "state": state, "checkpoint_ts": status.get("checkpoint_ts"), "error": shown}
