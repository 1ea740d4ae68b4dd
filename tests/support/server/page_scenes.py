"""What a page shows: changefeeds in every state with an hour of history, a capture with everything that can hold it, a log."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.server.fake_service import FakeService
from tidemill.capture.status import CaptureStatus
from tidemill.changefeed.states import State
from tidemill.server import service as s
from tidemill.server.page.history import POINTS, STEP_S, Point
from tidemill.server.page.log_lines import Ring
from tidemill.server.page.watch import Watch
from tidemill.tso import compose, describe, when

HTML = '<img src=x onerror="window.hacked=1"><script>window.hacked=2</script>&amp;\'"'
"""Text that a page must show as it is."""
KEY = "7480000000000000685f728000000000000011"
ROW = f"shop.orders:{KEY}@467000000000000007"

_SINKS = (
    "kafka://xxxxx@kafka-1:9092,kafka-2:9092/orders?protocol=open-protocol&partition-num=6",
    "mysql://cdc:xxxxx@replica:3306/",
    "s3://lake/cdc?protocol=canal-json",
    "kafka://kafka-1:9092/items?protocol=avro&schema-registry=http://registry:8081",
)


def now_ts(behind_s: float = 0.0) -> int:
    return compose(int((time.time() - behind_s) * 1000))


def info(
    name: str, state: State = State.NORMAL, lag: float = 1.2, sink: str = _SINKS[0], error: s.RunningError | None = None, **more: Any
) -> s.ChangefeedInfo:
    ts = now_ts(lag)
    config = {"filter": {"rules": ["shop.*", "!shop.log_lines"]}, "sink": {"protocol": "open-protocol"}}
    return s.ChangefeedInfo(
        upstream_id=7_300_000_000_000_000_001,
        namespace="default",
        id=name,
        sink_uri=sink,
        create_time=datetime.now(UTC) - timedelta(days=3),
        start_ts=ts - 1,
        target_ts=0,
        admin_job_type=0,
        sort_engine=s.SORT_ENGINE,
        config=config,
        state=state,
        error=error,
        error_history=(),
        creator_version="0.1.0",
        resolved_ts=now_ts(0.8),
        checkpoint_ts=ts,
        checkpoint_time=when(ts),
        task_status=(s.TaskStatus("capture-one", (104, 106)),),
        given_config=config,
        **more,
    )


def failure(code: str, message: str, hint: str) -> s.RunningError:
    return s.RunningError(datetime.now(UTC) - timedelta(minutes=7), "10.0.3.7:8300", code, message, hint)


def mixed() -> list[s.ChangefeedInfo]:
    """One in each state."""
    soon = datetime.now(UTC) + timedelta(seconds=40)
    away = failure("TM:ErrSinkUnavailable", "kafka-2:9092: connection refused", "Start the broker. The batch is tried again by itself.")
    wrong = failure(
        "TM:ErrUnsupportedValue",
        f"row of shop.orders (id 17, key {KEY}, start_ts 467000000000000001, commit_ts 467000000000000007): year 0 has no form in Avro",
        f"Change the row, or the column's type; --skip-row '{ROW}' goes on without this row",
    )
    return [
        info("orders", lag=1.3),
        info("replica-mysql", State.NORMAL, 0.9, _SINKS[1]),
        info("lake", State.NORMAL, 64.0, _SINKS[2]),
        info("orders-eu", State.PENDING, 412.0, _SINKS[0], away, retry_at=soon),
        info("items-avro", State.FAILED, 5000.0, _SINKS[3], wrong, holds_log_until=datetime.now(UTC) + timedelta(hours=22)),
        info("audit", State.STOPPED, 90000.0, _SINKS[1], holds_log_until=datetime.now(UTC) + timedelta(hours=3)),
        info("backfill", State.FINISHED, 200000.0, _SINKS[2], warnings=("integrity.corruption-handle-level has no meaning here",)),
    ]


def healthy_capture() -> CaptureStatus:
    heads = [now_ts(0.8), now_ts(0.9), now_ts(0.7), now_ts(0.8)]
    return CaptureStatus(
        state="running",
        pid=4242,
        cluster_id="7300000000000000001",
        log="s3://cdc/log",
        start_ts=now_ts(90000),
        resolved_ts=min(heads),
        resolved_time=describe(min(heads)),
        heads=heads,
        tables=118,
        regions={"live": 3480, "scanning": 2},
        rows=93_221_100,
        segments=18220,
        waiting_bytes=3_400_000,
        memory_bytes=81_000_000,
        counted_since=time.time() - 86000,
        gc_safe_point=now_ts(90),
        updated=time.time(),
    )


def held_capture() -> CaptureStatus:
    """A lock holds one table, a store does not answer for another."""
    at = now_ts(340)
    where: dict[str, Any] = {
        "partition": 1,
        "seconds": 334.0,
        "since": "2026-11-24T10:00:00+00:00",
        "resolved_ts": at,
        "resolved_time": describe(at),
        "table": "shop.orders",
        "start_key": "74",
        "end_key": "75",
        "phase": "live",
        "region": 4711,
        "store": 3,
        "store_address": "tikv-3:20160",
        "cause": "lock",
        "lock": {
            "start_ts": now_ts(345),
            "key": "7480000000000000685f7280000000000000ff",
            "primary": "7480000000000000685f728000000000000001",
            "table": "shop.orders",
            "ttl_ms": 3000,
        },
    }
    away = {
        **{k: v for k, v in where.items() if k not in ("lock", "region", "store", "store_address")},
        "table": "shop.items",
        "cause": "not subscribed",
        "last_error": "store 5 cannot be reached: connection refused",
        "seconds": 61.0,
    }
    found = healthy_capture()
    heads = [found.heads[0], at, found.heads[2], found.heads[3]]
    return replace(
        found,
        heads=heads,
        resolved_ts=at,
        resolved_time=describe(at),
        holding=where,
        stuck=[{k: v for k, v in where.items() if k != "partition"}],
        held_tables=[{**where, "behind_s": 340.0, "ranges": 3}, {**away, "behind_s": 61.0, "ranges": 1}],
    )


def many(count: int) -> list[s.ChangefeedInfo]:
    return [info(f"feed-{i:03d}", State.WARNING if i % 41 == 0 else State.NORMAL, 1 + i % 7, _SINKS[i % 4]) for i in range(count)]


LINES = (
    "[2026/11/24 10:31:02.101 +00:00] [INFO] [server.manager] the server has 7 changefeeds",
    "[2026/11/24 10:31:03.551 +00:00] [INFO] [delivery] [orders][server.host.feed] the first batch begins at 467000000000000001",
    "[2026/11/24 10:31:09.001 +00:00] [WARN] [delivery] [orders-eu][delivery.driver] batch 411 failed and is tried again in 4 s: "
    "TM:ErrSinkUnavailable: kafka-2:9092: connection refused",
    "[2026/11/24 10:31:14.220 +00:00] [ERROR] [server.manager] changefeed items-avro is in state failed: TM:ErrUnsupportedValue",
    "[2026/11/24 10:31:15.000 +00:00] [WARN] [capture] [capture.tikv.watchdog] region 4711 at store 3 of shop.orders is locked for 330 s",
)


def scene(
    infos: list[s.ChangefeedInfo], capture: CaptureStatus, lines: tuple[str, ...] = LINES, *, tokens: bool = False
) -> tuple[FakeService, Watch]:
    """A service that has these changefeeds, and what its page shows, with an hour of history."""
    service = FakeService({one.id: one for one in infos}, {one.id: one.sink_uri for one in infos}, capture=capture, now=now_ts())
    ring = Ring()
    ring.add("\n".join(lines))
    watch = Watch(service, ring=ring, address="10.0.3.7:8300", tokens=tokens)
    begun = time.time() - POINTS * STEP_S
    for i in range(POINTS):
        watch.history.note(begun + i * STEP_S, {one.id: _point(one, number, i) for number, one in enumerate(infos)})
    return service, watch


def _point(one: s.ChangefeedInfo, number: int, i: int) -> Point:
    lag = max(0.5, time.time() - one.checkpoint_time.timestamp())
    wave = 1 + 0.4 * math.sin(i / 11 + number) + 0.2 * math.sin(i / 3 + 2 * number)
    falls_behind = lag > 300
    hour = max(1.0, lag - (POINTS - i) * STEP_S) if falls_behind else lag * wave + (18 if i in range(150, 163) else 0)
    speed = 0.0 if falls_behind and hour > 20 else 800 * wave * (1 + number % 3)
    return Point(hour, 0.8 * wave, speed)


def as_json(watch: Watch) -> Mapping[str, Any]:
    """The overview, at once."""
    return asyncio.run(watch.overview())
