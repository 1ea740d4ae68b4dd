"""`python -m tests.support.delivery.by_spark`: the runner of a changefeed, which leaves every batch to Spark, also while it is starting."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.changefeed import runner
from tidemill.delivery.work_item import WorkItem
from tidemill.spark import local


def _never(items: Sequence[WorkItem]) -> bool:
    return False


if __name__ == "__main__":
    local.fits_here = _never
    runner.main()
