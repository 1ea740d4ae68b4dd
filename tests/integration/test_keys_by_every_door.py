"""What finds rows by their keys: `redo apply`, the repairs of `diff --fix-sql`, `consume` into a database, and a Drainer. They share one
random history, with a real MariaDB as the judge; `mysql://` in all its settings is in tests/sinks/mysql/test_keys.py.

`TIDEMILL_FUZZ=N` makes N histories, of more types each.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.support.binlog.in_batches import delivered as read_by_a_drainer
from tests.support.binlog.made import outlet
from tests.support.binlog.written import WrittenBinlogs
from tests.support.changelog.key_histories import KINDS, histories
from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.database_runs import FORCED, delivered, hurried, wrong
from tests.support.delivery.messages import decoded_from
from tests.support.delivery.repairs import repaired
from tests.support.delivery.runs import tidemill
from tests.support.servers.databases import mariadb  # noqa: F401 – a fixture
from tests.support.servers.mariadb import MariaDb
from tests.support.thorough import FUZZ
from tidemill.changefeed.replay import replay
from tidemill.changelog.feeds import register
from tidemill.config.file import parse_config
from tidemill.config.uri import parse_sink_uri
from tidemill.consumer.database import DatabaseTables
from tidemill.consumer.order.progress import Progress
from tidemill.delivery.inputs.table_router import Settings
from tidemill.protocols.open.events import DdlMessage

pytestmark = pytest.mark.slow

TIMES = FUZZ
KINDS_AT_ONCE = 10 if TIMES == 1 else len(KINDS)
COMMIT_EVERY = 7
Capsys = pytest.CaptureFixture[str]


@dataclass(frozen=True)
class Made:
    """A history, its binlogs and its log. `middle`: a ts in it; `end`: one behind it."""

    sql: SqlLog
    binlogs: WrittenBinlogs
    log: str
    middle: int
    end: int


@pytest.fixture(scope="module", params=range(TIMES))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    seed: int = request.param
    sql = SqlLog()
    binlogs = WrittenBinlogs.of(sql)
    statements = [*histories(seed, random.Random(seed).sample(KINDS, KINDS_AT_ONCE))]
    middle = sql.run(*statements[: len(statements) // 2])
    end = sql.run(*statements[len(statements) // 2 :])
    return Made(sql, binlogs, sql.write(tmp_path_factory.mktemp("keys") / "log"), middle, end)


@pytest.fixture
def db(mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch) -> Iterator[MariaDb]:  # noqa: F811
    hurried(monkeypatch)
    mariadb.clear()
    mariadb.run("CREATE DATABASE app CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    yield mariadb
    mariadb.clear()


def run(capsys: Capsys, *arguments: object) -> tuple[int, str]:
    code, out, err = tidemill(capsys, *arguments)
    assert code in (0, 1), err
    return code, out + err


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "feed.toml"
    path.write_text(FORCED)
    return path


def test_redo_apply(db: MariaDb, made: Made, config: Path, tmp_path: Path, capsys: Capsys) -> None:
    delivered(made.log, db.uri, target_ts=made.middle)
    register(made.log, "test", made.middle)
    given = ("--log", made.log, "--sink-uri", f"{db.uri}?max-txn-row=1", "--config", config, "--tz", "UTC", "--tmp-dir", tmp_path)
    code, said = run(capsys, "redo", "apply", *given)
    assert code == 0, said
    assert [*wrong(db, made.sql)] == []


def test_the_repairs_of_diff(db: MariaDb, made: Made, tmp_path: Path, capsys: Capsys) -> None:
    """Of a database that is half a history behind."""
    delivered(made.log, db.uri, target_ts=made.middle)
    given = ("--force-replicate", "--log", made.log, "--sink-uri", db.uri, "--ts", made.end)
    assert run(capsys, "diff", *given, "--fix-sql", tmp_path / "fix.sql")[0] == 1
    repaired(db, tmp_path / "fix.sql")
    code, said = run(capsys, "diff", *given)
    assert code == 0, said
    assert [*wrong(db, made.sql)] == []


def test_consume(db: MariaDb, made: Made, tmp_path: Path) -> None:
    settings = parse_config(FORCED)
    replay(made.log, Settings("test", settings.sink_uri(f"messages://{tmp_path / 'out'}?protocol=open-protocol"), settings, UTC))
    tables = DatabaseTables(parse_sink_uri(db.uri), "c")
    events = groupby(decoded_from(tmp_path / "out"), key=lambda event: (event.ts, isinstance(event, DdlMessage)))
    for number, ((ts, is_ddl), some) in enumerate(events):
        group: list[Any] = [*some]
        for ddl in group if is_ddl else ():
            tables.ddl(ddl)
        if not is_ddl:
            tables.rows(group)
        if number % COMMIT_EVERY == 0:
            tables.commit(Progress(ts))
    tables.commit(Progress(made.end))
    tables.close()
    assert [*wrong(db, made.sql)] == []


@pytest.mark.parametrize(
    "manner",
    [
        pytest.param({"worker_count": 1}, marks=pytest.mark.thorough("four workers with merged rows find them by the same statements")),
        {"worker_count": 4, "to": {"merge": True}},
        {"safe_mode": True},
    ],
)
def test_a_drainer(db: MariaDb, made: Made, manner: dict[str, Any]) -> None:
    read = asyncio.run(read_by_a_drainer(made.binlogs.schemas(), made.binlogs.committed))
    into = outlet(db, **manner)
    into.write(read)
    into.flush()
    into.close()
    assert [*wrong(db, made.sql)] == []
