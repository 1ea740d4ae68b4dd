"""A fifth of all statements fails at random, and one in twenty with a duplicate key, as TiCDC's tests inject: afterwards the tables are
those of the upstream."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.database_runs import delivered, hurried, wrong
from tests.support.faults.mysql_proxy import Cut, MysqlProxy, Refused
from tests.support.servers.mariadb import MariaDb
from tidemill.playground.workload.mixed import Options
from tidemill.sinks.mysql.codes import FATES, Fate

pytestmark = pytest.mark.slow

FAILS, DUPLICATE, WAITS, OF_THE_DRIVER = 0.2, 0.05, 0.01, 0.01
MOST_WAITS = 3  # each of them ends a batch
CODES = {fate: sorted(code for code, found in FATES.items() if code and found is fate) for fate in Fate}


class Storm:
    """Judges the statements of all connections."""

    def __init__(self, seed: int, fails: float) -> None:
        self._random, self._fails, self._of_tasks = Random(seed), fails, set[int]()
        self.faults: Counter[str] = Counter()

    def judge(self, text: bytes, connection: int) -> Refused | Cut | None:
        if text.startswith(b"BEGIN;"):
            self._of_tasks.add(connection)
        name, fault = self._fault(text, connection in self._of_tasks)
        self.faults[name] += 1
        return fault

    def _fault(self, text: bytes, of_task: bool) -> tuple[str, Refused | Cut | None]:
        fails, chosen = self._fails if of_task else OF_THE_DRIVER, self._random
        at = chosen.random()
        if at < WAITS and self.faults["wait"] < MOST_WAITS:
            return "wait", Refused(chosen.choice(CODES[Fate.WAIT]))
        if at < fails / 2:
            return "retry", Refused(chosen.choice(CODES[Fate.RETRY]))
        if at < fails:
            cut = Cut.BEFORE if b"EXCHANGE" in text else chosen.choice(list(Cut))
            return cut.value, cut
        if at < fails + DUPLICATE and of_task:
            return "duplicate", Refused(1062)
        return "none", None


@pytest.fixture(scope="module")
def sql() -> SqlLog:
    """Rows of every type, and DDLs."""
    sql = SqlLog(seed=11)
    sql.work("mixed", 100, Options(ddl_every=40))
    return sql


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("parameters", "fails"),
    [
        ("worker-count=4&max-txn-row=4", FAILS),
        ("transaction-atomicity=table&worker-count=4&max-txn-row=8", FAILS),
        ("multi-stmt-enable=false&batch-dml-enable=false&worker-count=4&max-txn-row=4", 0.05),
    ],
)
def test_whatever_fails_the_tables_are_the_upstreams(
    mariadb: MariaDb, sql: SqlLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parameters: str, fails: float
) -> None:
    hurried(monkeypatch)
    mariadb.clear()
    mariadb.run("CREATE DATABASE test")  # TiDB has it from the beginning
    storm = Storm(5, fails)
    log = sql.write(tmp_path / "log")
    with MysqlProxy(mariadb.port, storm.judge) as proxy:
        delivered(log, f"{proxy.uri}?{parameters}", "")
    assert [*wrong(mariadb, sql, keyless=False)] == []
    assert {"before", "after", "retry", "wait", "duplicate"} <= set(storm.faults), storm.faults
