"""Transfers between accounts, from TiKV's feed to Canal's Java client: whatever is killed, each prefix of transactions sums up."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.delivery.runs import await_that, settled
from tests.support.faults.outages import QUICK
from tidemill.demo.session import Delivery, Upstream
from tidemill.playground.programs.canal_client import ClientRefused, JavaClient
from tidemill.process.ports import free_ports

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

START = 1000
"""The balance of each account at first."""

Accounts = dict[tuple[str, str], int]


def apply(accounts: Accounts, entries: Iterable[dict[str, Any]]) -> int:
    """Write rows into accounts; wherever a transaction ends, the sum is right. How many have ended."""
    ended = 0
    for one in entries:
        for _, after in one.get("rows", []):
            row = {column[2]: column[5] for column in after}
            accounts[one["schema"], row["id"]] = int(row["balance"])
        if one["type"] == "TRANSACTIONEND":
            ended += 1
            assert sum(accounts.values()) == START * len(accounts), one["file"]
    return ended


class Teller:
    """A client that keeps its accounts as they were at its last acknowledgement, so that it can go on there."""

    def __init__(self, address: str) -> None:
        self.address, self.rng = address, random.Random("bank")
        self.kept: Accounts = {}
        self.transactions = 0
        self.client = JavaClient()

    def connect(self) -> None:
        """When the server listens."""

        def connected() -> bool:
            try:
                self.client.connect(self.address, "bank", filter_=r"bank.*\.accounts")
            except ClientRefused:
                return False
            return True

        await_that(connected, "the server listens")

    def read(self, *, acknowledge: bool = True) -> bool:
        """One batch, which ends anywhere, also inside of a transaction. Whether there was any."""
        number, entries = self.client.get(self.rng.randrange(1, 30), 200)
        accounts = dict(self.kept)
        ended = apply(accounts, entries)
        if entries and acknowledge:
            self.client.ack(number)
            self.kept, self.transactions = accounts, self.transactions + ended
        return bool(entries)


def server_of(run: Delivery) -> psutil.Process:
    """The process that serves clients."""
    assert run.process is not None
    children = psutil.Process(run.process.pid).children(recursive=True)
    (found,) = (one for one in children if "tidemill.cli.canal.serving" in command_line(one))
    return found


def command_line(process: psutil.Process) -> list[str]:
    """Empty: the process has ended meanwhile, as Java's short-lived children do."""
    with suppress(psutil.NoSuchProcess):
        return process.cmdline()
    return []


@pytest.mark.thorough("tests/canal/server/test_killed.py kills such a server; docs/tutorials/canal.md runs one in tests/docs")
def test_every_prefix_sums_up(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    options = ("--workload", "bank", "--stores", "2", "--resolved-interval", "0.3", "--region-every", "20")
    sink = f"canal://127.0.0.1:{port}/bank?get.wait=any"
    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream(tmp_path, seed=5, rate=30, options=options))
        run = stack.enter_context(Delivery(tmp_path, upstream, sink, options=QUICK, start_ts=upstream.began_ts))
        teller = Teller(f"127.0.0.1:{port}")
        stack.callback(lambda: teller.client.kill())
        teller.connect()
        for killed in ("client", "server"):
            upto = teller.transactions + 10
            while teller.transactions < upto:
                teller.read()
                run.check()
            while not teller.read(acknowledge=False):
                run.check()
            if killed == "client":
                teller.client.kill()
                teller.client = JavaClient()
            else:
                server_of(run).kill()
            teller.connect()
        end_ts, truth = settled(upstream, run)
        run.wait_until_served(end_ts)
        while teller.read():
            pass
        assert run.stop() == 0
    wanted = {(schema, str(row["id"])): row["balance"] for (schema, _), (_, rows) in truth.items() for row in rows}
    assert teller.kept == wanted
    assert teller.transactions > 20
