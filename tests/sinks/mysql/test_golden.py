"""The recorded cluster into a real MariaDB: every type, key and DDL of it, against what a consumer of messages makes of the same log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.changelog.logs import golden_log
from tests.support.delivery.mysql_tables import differences, truth_of
from tests.support.delivery.runs import audited, tidemill
from tests.support.servers.mariadb import MariaDb
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader
from tidemill.demo.compare import Truth
from tidemill.demo.delivered import from_jsonl
from tidemill.sinks.mysql.session import Server
from tidemill.tidb.schema.tracking.history import SchemaHistory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

BEFORE_KEY = ("pub", "becomes_eligible")
"""The table held rows before it had a key: they are loaded by other means, and the log says so."""


TIDB_ONLY = ("pub.pglobal", "pub.dt4", "pub.dt5", "fdb.*", "sdb.sq", "pub.pkey")
"""A global unique index, what comes back by FLASHBACK, a default from a sequence; TRUNCATE PARTITION where KEY places rows otherwise."""

NOT_IN_MYSQL = ("pub.plist",)
"""A DEFAULT partition of LIST, see `Part.LIST_DEFAULT` in the table of dialects: its CREATE TABLE is refused."""


def before_the_end(log: Path) -> tuple[SchemaHistory, int]:
    """The schemas, and a ts just below the DROP DATABASE by which nearly all tables go."""
    history = load_history(LogReader(str(log)))
    (drop,) = [event for event in history.ddl_events(0, history.resolved_ts) if event.query == "DROP DATABASE `pub`"]
    return history, drop.ts - 1


def truth(log: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> Truth:
    """The tables as they are then, made of Open Protocol messages."""
    history, ts = before_the_end(log)
    uri = f"messages://{folder}/all.jsonl?protocol=open-protocol"
    code, _, err = tidemill(capsys, "replay", "--log", log, "--tz", "UTC", "--target-ts", ts, "--sink-uri", uri)
    assert code == 0, err
    return truth_of(audited(from_jsonl(folder / "all.jsonl")), {v.name: v.info for v in history.snapshot(ts).tables.values()})


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Truth]]:
    """The log, and a place for its truth: the first test makes it."""
    return golden_log(tmp_path_factory.mktemp("golden") / "log", partitions=2), []


@pytest.mark.parametrize(
    "parameters", ["", "transaction-atomicity=table&worker-count=3&max-txn-row=2", "batch-dml-enable=false&multi-stmt-enable=false"]
)
def test_every_table_is_as_it_is_upstream(
    mariadb: MariaDb, recorded: tuple[Path, list[Truth]], tmp_path: Path, parameters: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mariadb.clear()
    mariadb.run("CREATE DATABASE test")  # TiDB has it from the beginning
    log, made = recorded
    if not made:
        made.append(truth(log, tmp_path, capsys))
    expected = made[0]
    alone = TIDB_ONLY + (NOT_IN_MYSQL if Server(str(mariadb.rows("SELECT VERSION()")[0][0])).is_mysql else ())
    config = tmp_path / "feed.toml"
    config.write_text(f'[filter]\nrules = ["*.*", {", ".join(f"{chr(34)}!{name}{chr(34)}" for name in alone)}]\n')
    uri = f"{mariadb.uri}?{parameters}"
    feed = ("--tz", "UTC", "--config", config, "--sink-uri", uri)
    code, _, err = tidemill(capsys, "replay", "--log", log, "--target-ts", before_the_end(log)[1], *feed)
    assert code == 0, err
    left_out = {BEFORE_KEY, *(tuple(name.split(".")) for name in alone)}
    wanted = {name: table for name, table in expected.items() if not left_out & {name, (name[0], "*")}}
    assert len(wanted) > 40
    found = [str(d) for d in differences(mariadb, wanted)]
    assert found == [], "\n".join(found)
