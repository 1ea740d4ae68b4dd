"""What every test finds as it was: verbs that a test runs in its own process send Tidemill's log to streams that are closed afterwards."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def logging_stays_as_it_was() -> Iterator[None]:
    logger = logging.getLogger("tidemill")
    handlers, level, propagate = list(logger.handlers), logger.level, logger.propagate
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)
    logger.propagate = propagate
