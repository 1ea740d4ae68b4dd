"""The main job into a real MariaDB: its tables are the upstream's, whatever is killed on the way."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil
import pytest

from tests.support.delivery.mysql_tables import differences
from tests.support.delivery.runs import await_that, processes, settled, tidemill
from tests.support.faults.outages import UPSTREAM
from tests.support.servers.mariadb import MariaDb
from tidemill.demo.session import Delivery, Upstream

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

OPTIONS = ("--trigger-ms", "300", "--sink-retry", "240s")


def kill_a(role: str, run: Delivery) -> None:
    """`kill -9` of one of the run's processes."""

    def killed() -> bool:
        for process in processes(run).get(role, ()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                return True
        return False

    await_that(killed, f"there is a {role}", run)


@pytest.mark.parametrize(
    ("parameters", "roles"),
    [
        ("", ["worker"]),
        pytest.param(
            "transaction-atomicity=table", ["worker", "driver"], marks=pytest.mark.thorough("a driver that dies is in tests/chaos")
        ),
    ],
)
def test_tables_are_those_of_the_upstream_whatever_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], parameters: str, roles: list[str]
) -> None:
    with MariaDb() as db, Upstream(tmp_path, seed=23, rate=15, options=UPSTREAM) as upstream:
        uri = f"{db.uri}?{parameters}"
        with Delivery(tmp_path, upstream, uri, options=OPTIONS, start_ts=upstream.began_ts) as run:
            await_that(lambda: run.feed_status().get("rows", 0) > 20, "rows are delivered", run)

            db.kill()
            before = run.checkpoint()
            db.start()
            await_that(lambda: run.checkpoint() > before, "it goes on after the database was killed", run)

            run.kill()
            before = run.checkpoint()
            run.start()
            await_that(lambda: run.checkpoint() > before, "it goes on after everything was killed", run)

            for role in roles:
                kill_a(role, run)
                before = run.checkpoint()
                await_that(lambda: run.checkpoint() > before, f"it goes on after its {role} was killed", run)  # noqa: B023

            _, truth = settled(upstream, run)
            assert run.stop() == 0
        for source in (("--pd", upstream.pd), ("--log", run.log)):
            code, out, err = tidemill(capsys, "diff", *source, "--sink-uri", uri)
            assert code == 0, out + err
        assert [str(d) for d in differences(db, truth)][:10] == []
        assert sum(len(rows) for _, rows in truth.values()) > 0
