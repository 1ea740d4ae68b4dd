"""What every test finds as it was: verbs that a test runs in its own process send Tidemill's log to streams that are closed afterwards.

`pytest --order SEED` runs files, and the tests of each, in an order that follows from the seed: a test that needs another one shows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import groupby
from random import Random

import pytest
from hypothesis import settings

settings.register_profile("tidemill", deadline=None)  # how long an example takes says how busy the machine is
settings.load_profile("tidemill")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--order", metavar="SEED", help="run files, and the tests of each, in an order that follows from this number")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("--order")
    if seed is not None:
        random = Random(seed)
        files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
        random.shuffle(files)
        for tests in files:
            random.shuffle(tests)
        items[:] = [test for tests in files for test in tests]


@pytest.fixture(autouse=True)
def logging_stays_as_it_was() -> Iterator[None]:
    logger = logging.getLogger("tidemill")
    handlers, level, propagate = list(logger.handlers), logger.level, logger.propagate
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)
    logger.propagate = propagate
