"""A whole run whose log lies on S3, which goes away again and again, in every way: nothing is lost, and no process ends."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.delivery.runs import assert_equal, audited, await_that, settled
from tests.support.faults.outages import hasty_storage
from tests.support.faults.proxy import Proxy
from tests.support.faults.s3_faults import Fault, spoiled
from tests.support.servers.s3 import make_bucket, s3_server
from tidemill.demo.delivered import from_files
from tidemill.demo.session import Delivery, Upstream

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

__all__ = ["hasty_storage", "s3_server"]

AWAY_S = 3.0
"""How long each outage goes on after the capture has told of it: longer than --sink-retry."""


@pytest.mark.parametrize(
    "ways",
    [
        ["does not answer", "loses answers"],
        pytest.param(
            ["answers 503", "refuses connections"], marks=pytest.mark.thorough("the other ways are told and outlived as these are")
        ),
    ],
    ids=" and ".join,
)
@pytest.mark.usefixtures("hasty_storage")
def test_a_log_on_s3_goes_away_and_comes_back(tmp_path: Path, s3_server: str, ways: list[str]) -> None:
    """It answers 503, refuses connections, does not answer, loses answers, and is slow. Rows and DDLs go on upstream."""
    make_bucket(s3_server, "run-away")
    rng = random.Random(1)
    spoil: list[Callable[[str, str], Fault]] = [lambda method, path: Fault.NONE]
    proxy = Proxy()
    link = proxy.port

    def flaky(method: str, path: str) -> Fault:
        time.sleep(rng.random() * 0.05)
        return rng.choice((*[Fault.NONE] * 6, Fault.LOST_ANSWER, Fault.LOST_REQUEST, Fault.UNAVAILABLE))

    with spoiled(s3_server, lambda method, path: spoil[0](method, path)) as endpoint:
        proxy.start(int(endpoint.rpartition(":")[2]))
        url = f"s3://test:test@run-away/log?endpoint_override=127.0.0.1:{link}&scheme=http&region=us-east-1"
        direct = url.replace(f"127.0.0.1:{link}", s3_server.partition("://")[2])
        sink = f"file://{tmp_path}/delivered?protocol=open-protocol&partition-num=3"
        options = ("--stores", "2", "--resolved-interval", "1", "--ddl-every", "100", "--region-every", "80")
        try:
            with Upstream(tmp_path, seed=5, rate=4, options=options) as upstream:
                run_options = ("--log", url, "--log-partitions", "1", "--trigger-ms", "200", "--sink-retry", "2s")
                with Delivery(tmp_path, upstream, sink, options=run_options, start_ts=upstream.began_ts) as delivery:
                    await_that(lambda: delivery.feed_status().get("rows", 0) > 5, "rows are delivered", delivery)
                    kinds: dict[str, tuple[Callable[[], object], Callable[[], object] | None, bool]] = {
                        "answers 503": (lambda: spoil.__setitem__(0, lambda method, path: Fault.UNAVAILABLE), None, True),
                        "refuses connections": (proxy.refuse, proxy.forward, True),
                        "does not answer": (proxy.hang, proxy.forward, True),
                        "loses answers": (lambda: spoil.__setitem__(0, flaky), None, False),
                    }
                    for begin, end, is_told in (kinds[way] for way in ways):
                        before = delivery.checkpoint()
                        begin()
                        if is_told:
                            await_that(lambda: bool(delivery.capture_status().get("storage")), "the status tells of it", delivery)
                        threading.Event().wait(AWAY_S)  # the outage itself
                        delivery.check()
                        spoil[0] = lambda method, path: Fault.NONE
                        if end is not None:
                            end()
                        await_that(lambda: delivery.checkpoint() > before, "the delivery goes on", delivery)  # noqa: B023
                        await_that(lambda: not delivery.capture_status().get("storage"), "the status tells of its end", delivery)
                    end_ts, truth = settled(upstream, delivery)
                    restarts = {p["name"]: p["restarts"] for p in delivery.status()["processes"]}
                    assert delivery.stop() == 0
            said = (tmp_path / "tidemill.log").read_text()
        finally:
            proxy.close()
    assert restarts == {"capture": 0, "changefeed": 0}
    assert "storage is away and is tried again" in said
    assert "storage is back" in said
    assert "Traceback" not in said + (tmp_path / "run.log").read_text()
    assert_equal(audited(from_files(tmp_path / "delivered")), direct, truth, end_ts)
