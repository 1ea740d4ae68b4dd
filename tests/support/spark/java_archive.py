"""The archive of Spark's classes that the set-up makes: the Spark sessions of the tests start sooner by it."""

from __future__ import annotations

import os
from pathlib import Path

from tidemill.spark.java.archive import PLACE

FOLDER = Path(__file__).parents[3] / ".tidemill" / "java"


def use() -> None:
    """Let Spark sessions that this process and its children start find the archive."""
    os.environ.setdefault(PLACE, str(FOLDER))
