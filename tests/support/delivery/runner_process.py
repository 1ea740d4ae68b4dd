"""`python -m tidemill.changefeed.runner` for tests: its options, its end, and the files in which it tells how far it is."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidemill.changefeed.runner_options import Options
from tidemill.config.file import parse_config
from tidemill.process.children import program
from tidemill.process.orders import begin


def options(folder: Path, *, sink: str | None = None, **more: Any) -> Options:
    uri = sink or f"messages://{folder}/out?protocol=open-protocol"
    found = Options("f", str(folder / "log"), folder / "data", uri, parse_config(""), tz="UTC", trigger_ms=0, log_level="warn")
    return replace(found, **more)


def started(order: Options) -> subprocess.Popen[str]:
    """The process with these options. Its stdin is left open: it ends when it does."""
    process = subprocess.Popen(
        program("tidemill.changefeed.runner"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdin is not None
    process.stdin.write(begin(order).decode())
    process.stdin.flush()
    return process


def output_of(process: subprocess.Popen[str], timeout: float = 600) -> str:
    """What it says until its end."""
    stdin, process.stdin = process.stdin, None  # `communicate` would close it
    output, _ = process.communicate(timeout=timeout)
    assert stdin is not None
    stdin.close()
    return output


def run(order: Options) -> tuple[int, str]:
    with started(order) as process:
        output = output_of(process)
    return process.returncode, output


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
