"""A reader of the bank workload's tables in a database downstream: the sum of all balances, in one snapshot after the other."""

from __future__ import annotations

import contextlib
import threading
from types import TracebackType
from typing import Self

import pymysql

from tests.support.servers.mariadb import MariaDb

ACCOUNTS, START = 100, 1000
ALL = "SELECT balance FROM bank_a.accounts UNION ALL SELECT balance FROM bank_b.accounts"
SUM = f"SELECT COUNT(*), COALESCE(SUM(balance), 0) FROM ({ALL}) accounts"
"""How many accounts there are, and what they hold."""


class BankReader:
    """Reads in a thread until the end, over whatever happens to the server. `sums`: how often each (accounts, sum) was seen."""

    def __init__(self, db: MariaDb) -> None:
        self._db, self._end = db, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sums: dict[tuple[int, int], int] = {}
        self.checkpoints: set[int] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end.set()
        self._thread.join()

    @property
    def wrong(self) -> list[tuple[int, int]]:
        """What should not have been seen: part of the first rows of a bank, or another sum."""
        return [(count, total) for count, total in self.sums if count % ACCOUNTS or total != count * START]

    def _run(self) -> None:
        while not self._end.is_set():
            with contextlib.suppress(pymysql.err.MySQLError, OSError), contextlib.closing(self._db.connect(autocommit=False)) as connection:
                while not self._end.wait(0.002):
                    self._look(connection)

    def _look(self, connection: pymysql.Connection) -> None:  # type: ignore[type-arg]
        with connection.cursor() as cursor:
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            cursor.execute(SUM)
            ((count, total),) = cursor.fetchall()
            cursor.execute("SELECT checkpoint_ts FROM tidb_cdc.tidemill_feed_v1")
            self.checkpoints |= {int(ts) for (ts,) in cursor.fetchall()}
            cursor.execute("ROLLBACK")
        self.sums[int(count), int(total)] = self.sums.get((int(count), int(total)), 0) + 1
