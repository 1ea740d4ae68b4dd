"""The main job with transaction-atomicity=global: whoever reads the database sees whole transactions, whatever is killed on the way."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.delivery.bank_reader import BankReader
from tests.support.delivery.mysql_tables import differences
from tests.support.delivery.runs import await_that, settled
from tests.support.servers.mariadb import MariaDb
from tidemill.demo.session import Delivery, Upstream

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

UPSTREAM = ("--workload", "bank", "--stores", "2", "--resolved-interval", "0.2", "--region-every", "50")
CONFIG = "force-replicate = true\n"
"""For the table without a key, in which a row that is written twice is there twice."""


@contextlib.contextmanager
def a_history(upstream: Upstream) -> Iterator[None]:
    """A table without a key gets rows all the time."""
    upstream.call("sql", text="create table bank_a.history (n bigint, about varchar(20))")
    end = threading.Event()

    def write() -> None:
        number = 0
        while not end.wait(0.03):
            upstream.call("sql", text=f"insert into bank_a.history values ({number}, 'a'), ({number}, 'b')")
            number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


@pytest.mark.thorough("tests/sinks/mysql/test_global.py and tests/simulate have the atomicity, test_run_mysql.py the kills")
def test_a_reader_sees_whole_transactions_and_each_is_applied_once(tmp_path: Path) -> None:
    config = tmp_path / "feed.toml"
    config.write_text(CONFIG)
    options = ("--trigger-ms", "50", "--sink-retry", "240s", "--config", str(config))
    with MariaDb() as db, Upstream(tmp_path, seed=29, rate=60, options=UPSTREAM) as upstream, BankReader(db) as reader:
        uri = f"{db.uri}?transaction-atomicity=global&max-txn-row=5"
        with Delivery(tmp_path, upstream, uri, options=options, start_ts=upstream.began_ts) as run:
            with a_history(upstream):
                await_that(lambda: len(reader.checkpoints) > 20, "transactions are delivered", run)
                db.kill()
                db.start()
                before = run.checkpoint()
                await_that(lambda: run.checkpoint() > before, "it goes on after the database was killed", run)
                run.kill()
                before = run.checkpoint()
                run.start()
                await_that(lambda: run.checkpoint() > before, "it goes on after everything was killed", run)
                await_that(lambda: len(reader.checkpoints) > 60 and sum(reader.sums.values()) > 100, "the reader has seen enough", run)
            end_ts, truth = settled(upstream, run)
            assert run.stop() == 0
        assert reader.wrong == []
        assert [str(d) for d in differences(db, truth)][:10] == []
        history = db.rows("SELECT n, about FROM bank_a.history")
        assert len(history) == len(set(history)) > 20
        await_that(lambda: max(reader.checkpoints) >= end_ts, "the reader sees the end")
