"""What every test finds as it was: verbs that a test runs in its own process send Tidemill's log to streams that are closed afterwards.

`pytest --order SEED` runs files, and the tests of each, in an order that follows from the seed: a test that needs another one shows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings

settings.register_profile("tidemill", deadline=None)  # how long an example takes says how busy the machine is
settings.load_profile("tidemill")


LONGEST = (
    "integration/test_run_kafka.py",
    "integration/test_long_outage.py",
    "integration/test_run_away.py",
    "integration/test_run_avro.py",
    "chaos/test_chaos.py",
    "integration/test_run.py",
    "changefeed/test_runner.py",
    "integration/test_consume.py",
    "integration/test_initial_load.py",
    "tidb/schema/test_forgetting.py",
    "delivery/test_kafka_trouble.py",
    "integration/test_groups_spark.py",
    "capture/test_split_tables.py",
    "capture/test_tables_live.py",
    "integration/test_delivery_cluster.py",
    "capture/groups/test_group_captures.py",
    "capture/test_many_tables.py",
)
"""Files that take more than a minute, the longest first: two workers end at about the same time only if these do not begin last."""


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # xdist would begin with the files that have the most tests, which are the quick ones


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--order", metavar="SEED", help="run files, and the tests of each, in an order that follows from this number")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("--order")
    if seed is None:
        places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: places.get(item.path, len(LONGEST)))
    else:
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
