"""What every test finds as it was: verbs that a test runs in its own process send Tidemill's log to streams that are closed afterwards.

`pytest --order SEED` runs files, and the tests of each, in an order that follows from the seed: a test that needs another one shows.
"""

from __future__ import annotations

import gc
import logging
import os
import tempfile
from collections.abc import Generator, Iterator
from itertools import groupby
from pathlib import Path
from random import Random

import pytest
from _pytest.scope import Scope
from hypothesis import settings

from tests.support.servers.chosen import only_databases
from tests.support.spark import java_archive, sessions

settings.register_profile("tidemill", deadline=None)  # how long an example takes says how busy the machine is
settings.load_profile("tidemill")


pytest_plugins = ("tests.support.servers.kafka",)
"""Fixtures of the whole session: imported into several modules, each would have a broker of its own."""

LONGEST = (
    "spark/source/test_source_in_spark.py",
    "integration/test_run_away.py",
    "consumer/test_spark.py",
    "views/test_spark.py",
    "docs/test_tutorials.py",
    "integration/test_delivery_cluster.py",
    "chaos/test_chaos.py",
    "capture/test_initial_load.py",
    "integration/test_bad_input.py",
    "views/test_kills.py",
    "capture/groups/test_group_captures.py",
    "views/test_generated.py",
    "sinks/storage/test_storage.py",
    "spark/cluster/test_in_spark.py",
    "simulate/test_databases.py",
    "integration/test_groups_spark.py",
    "integration/test_servers.py",
    "spark/catalog/test_catalog_in_spark.py",
    "integration/test_initial_load.py",
    "capture/tables/test_split_tables.py",
    "consumer/test_consume.py",
    "sinks/mysql/test_golden.py",
    "integration/test_run.py",
    "spark/test_jobs.py",
    "integration/test_run_mysql.py",
    "integration/test_server.py",
    "integration/test_run_avro.py",
    "docs/test_quick_start.py",
    "capture/tables/test_tables_live.py",
    "integration/test_consume.py",
    "capture/test_capture.py",
    "capture/tikv/test_gc.py",
    "integration/test_long_outage.py",
    "chaos/test_binlog_chaos.py",
    "spark/messages/test_avro.py",
    "changefeed/test_runner.py",
    "integration/test_run_split.py",
    "delivery/sinks/test_kafka_trouble.py",
    "capture/tables/test_many_tables.py",
    "spark/messages/test_canal.py",
    "sinks/kafka/test_kafka.py",
    "canal/server/test_turns.py",
    "views/test_view.py",
    "registry/test_kafka.py",
    "changelog/storage/test_s3.py",
    "spark/cluster/test_captures.py",
    "binlog/drainer/database/test_batches.py",
    "kernels/test_guarded_fuzz.py",
    "views/test_expressions.py",
    "binlog/drainer/rows/test_messages.py",
    "tidb/schema/test_forgetting.py",
    "sinks/kafka/test_security.py",
    "metrics/test_stalls.py",
    "spark/cluster/test_object_store.py",
    "integration/test_demo.py",
    "tidb/ddltext/test_vectors.py",
    "registry/test_delivery.py",
    "playground/test_cli.py",
    "sinks/mysql/test_keys.py",
    "sinks/lake/test_renames.py",
    "binlog/drainer/database/test_writing.py",
    "verify/test_topics.py",
)
"""Files that take more than half a minute, the longest first: workers end at about the same time only if these do not begin last."""


def pytest_configure(config: pytest.Config) -> None:
    java_archive.use()
    if config.getoption("--thorough"):
        os.environ.setdefault("TIDEMILL_FUZZ", "3")
        os.environ["TIDEMILL_THOROUGH"] = "yes"
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # xdist would begin with the files that have the most tests, which are the quick ones


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--order", metavar="SEED", help="run files, and the tests of each, in an order that follows from this number")
    parser.addoption("--thorough", action="store_true", help="also run the tests that have the marker `thorough`")


@pytest.hookimpl(tryfirst=True)  # afterwards pytest groups the tests by the fixtures that they share
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    only_databases(config, items)
    if not config.getoption("--thorough"):
        _leave_out_thorough(config, items)
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
            _together(tests)
            tests.sort(key=lambda test: test.get_closest_marker("last") is not None)
        items[:] = [test for tests in files for test in tests]


def _leave_out_thorough(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests with the marker `thorough`, but for those that the command line names one by one."""
    named = {argument for argument in config.args if "::" in argument}
    kept, left_out = [], []
    for item in items:
        is_named = bool(named & {item.nodeid, item.nodeid.partition("[")[0]})
        (kept if is_named or item.get_closest_marker("thorough") is None else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Hardly any of what is made while tests are collected is garbage: to look for it is a fifth of the time that every worker takes."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """What was collected stays until the end: a collection of garbage need not walk over ten thousand tests each time."""
    gc.collect()
    gc.freeze()


def _together(tests: list[pytest.Item]) -> None:
    """Put tests beside each other that share the value of a fixture of their file: else the fixture is made again and again."""
    first: dict[tuple[object, ...], int] = {}
    for test in tests:
        first.setdefault(_shared(test), len(first))
    tests.sort(key=lambda test: first[_shared(test)])


def _shared(test: pytest.Item) -> tuple[object, ...]:
    """Which values of fixtures that live longer than a test the test has."""
    spec = getattr(test, "callspec", None)
    scopes = {} if spec is None else spec._arg2scope
    return tuple((name, spec.indices[name]) for name in sorted(scopes) if scopes[name] > Scope.Function)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that starts a Spark of its own finds none in this process."""
    if item.get_closest_marker("spark") and not sessions.shares(getattr(item, "module", None)):
        sessions.end_session()


def pytest_unconfigure() -> None:
    sessions.end_session()


@pytest.fixture(autouse=True)
def logging_stays_as_it_was() -> Iterator[None]:
    """And the folder for temporary files, which a verb may be given."""
    logger = logging.getLogger("tidemill")
    handlers, level, propagate = list(logger.handlers), logger.level, logger.propagate
    folder = tempfile.tempdir
    yield
    tempfile.tempdir = folder
    logger.handlers[:] = handlers
    logger.setLevel(level)
    logger.propagate = propagate
