"""Tables that are renamed and exchanged while they are captured: their labels, and what is remembered of them."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from tests.support.capture.captures import caught_up, compare, config, running, until
from tests.support.capture.region_driver import region, started, sub_ranges_of
from tidemill.capture.capture import Capture
from tidemill.capture.tikv.regions.state import SubRange
from tidemill.capture.tikv.watchdog.act import Watchdog
from tidemill.errors import UpstreamUnavailable
from tidemill.playground.server import Playground


def labels(capture: Capture) -> set[str]:
    """The labels of the tables of all sub-ranges, without their ids."""
    sub_ranges = (capture.puller.machine.sub_range(id_) for id_ in list(capture.receiver._sub_of))
    return {sub_range.span.label.partition(" (")[0] for sub_range in sub_ranges if sub_range is not None}


def test_a_renamed_table_is_called_by_its_new_name_from_then_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Playground(41, resolved_interval=0.1) as playground:
            playground.execute("create table t (id int primary key)")
            with caplog.at_level(logging.INFO):
                async with running(config(playground, tmp_path / "log")) as capture:
                    await until(lambda: "test.t" in labels(capture))
                    playground.execute("rename table t to u")
                    playground.execute("insert into u values (1)")
                    await until(lambda: "test.u" in labels(capture))
                    assert "test.t" not in labels(capture)
                    await caught_up(capture, playground.cluster.oracle.next())
            compare(playground.cluster, tmp_path / "log")
            assert f"the stream to store 1 ({playground.pd_address}) is open" in caplog.text

    asyncio.run(main())


def test_exchanges_leave_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        async with Playground(42, resolved_interval=0.1) as playground:
            playground.execute(
                "create table p (id int primary key) partition by range (id)"
                " (partition a values less than (100), partition b values less than (200));"
                "create table t (id int primary key)"
            )
            async with running(config(playground, tmp_path / "log", partitions=4)) as capture:
                for n in range(8):
                    playground.execute(f"insert into t values ({n}); alter table p exchange partition a with table t; delete from t")
                    await caught_up(capture, playground.cluster.oracle.next())
                    capture.pulling.tidy()
                logs = capture.receiver.logs
                await until(lambda: sum(len(log._bounds) for log in logs) <= 4)
            compare(playground.cluster, tmp_path / "log")

    asyncio.run(main())


def test_a_region_that_cannot_be_searched_for_locks_is_named_by_its_table(caplog: pytest.LogCaptureFixture) -> None:
    class Away:
        async def resolve(self, *_: object) -> None:
            raise UpstreamUnavailable("PD knows no region with a leader for key 7480")

    driver = started(region(667))
    driver.machine.rename_span(1, "shop.orders (112)")
    sub_range = driver.machine.sub_range(sub_ranges_of(driver)[0])
    assert isinstance(sub_range, SubRange)
    assert sub_range.region is not None
    watchdog = Watchdog.__new__(Watchdog)
    watchdog._resolver, watchdog._waiting = Away(), {}  # type: ignore[assignment]
    with caplog.at_level(logging.INFO):
        asyncio.run(watchdog._search(sub_range, sub_range.region, 10, 20))
    assert "region 667 of shop.orders (112) cannot be searched for locks: PD knows no region with a leader" in caplog.text
