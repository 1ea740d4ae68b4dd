"""The processes that own the captures of queries: found, watched and ended by tests."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.spark.frames import Row, Stream
from tidemill.spark.cluster import place

PATIENCE_S = 150.0


@contextmanager
def captures_in(folder: Path) -> Iterator[Path]:
    """Owners that are started meanwhile have their folders here. Those that still live at the end are ended."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(place.VARIABLE, str(folder))
        try:
            yield folder
        finally:
            for process in owners(folder):
                process.terminate()
                process.wait(PATIENCE_S)


def owners(folder: Path) -> list[psutil.Process]:
    """The owners that live."""
    found = []
    for lock in folder.glob("*/owner.lock"):
        pid = json.loads(lock.read_text() or "{}").get("pid", 0)
        with suppress(psutil.NoSuchProcess):
            if "tidemill.spark.cluster.owner" in psutil.Process(pid).cmdline():
                found.append(psutil.Process(pid))
    return found


def next_batch(stream: Stream) -> list[Row]:
    """The rows of the next batch, when there is one."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        batch = stream.batch()
        if batch:
            return batch
        time.sleep(0.05)
    raise AssertionError("the stream gave no more batches")


def journal(folder: Path) -> str:
    """What owners and captures have logged."""
    return "".join(path.read_text() for path in folder.glob("*/capture.log"))


def until(condition: Any) -> None:
    """Look again and again."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it has not come to this"
        time.sleep(0.05)
