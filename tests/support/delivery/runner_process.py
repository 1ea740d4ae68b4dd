"""`python -m tidemill.changefeed.runner` for tests: its command line, its end, and the files in which it tells how far it is."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def command(folder: Path, *more: str, sink: str | None = None) -> list[str]:
    uri = sink or f"messages://{folder}/out?protocol=open-protocol"
    common = ["--changefeed-id", "f", "--log", str(folder / "log"), "--data-dir", str(folder / "data"), "--sink-uri", uri]
    return [sys.executable, "-m", "tidemill.changefeed.runner", *common, "--tz", "UTC", "--trigger-ms", "0", "--log-level", "warn", *more]


def run(arguments: Sequence[str], timeout: float = 240) -> tuple[int, str]:
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=timeout, check=False)
    return done.returncode, done.stdout + done.stderr


def state(folder: Path, name: str) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads((folder / "data/changefeeds/f" / name).read_text())
    except FileNotFoundError:
        return {}
    return content


def await_checkpoint(folder: Path, ts: int, process: subprocess.Popen[str]) -> None:
    """Return when the checkpoint has reached ts."""
    deadline = time.monotonic() + 200
    while state(folder, "checkpoint.json").get("checkpoint_ts", 0) < ts:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no progress"
        time.sleep(0.02)
