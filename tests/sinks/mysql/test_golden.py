"""The recorded cluster into a real MariaDB: every type, key and DDL of it, against what a consumer of messages makes of the same log."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.changelog.logs import golden_log
from tests.support.delivery.mysql_tables import differences, truth_of
from tests.support.delivery.runs import audited, tidemill
from tests.support.servers.mariadb import MariaDb
from tidemill.changefeed.replay import replay
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader
from tidemill.config.file import parse_config
from tidemill.config.uri import parse_sink_uri
from tidemill.delivery.inputs.table_router import Settings
from tidemill.demo.compare import Truth
from tidemill.demo.delivered import from_jsonl
from tidemill.sinks.mysql.session import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

BEFORE_KEY = ("pub", "becomes_eligible")
"""The table held rows before it had a key: they are loaded by other means, and the log says so."""


TIDB_ONLY = ("pub.pglobal", "pub.dt4", "pub.dt5", "fdb.*", "sdb.sq", "pub.pkey")
"""A global unique index, what comes back by FLASHBACK, a default from a sequence; TRUNCATE PARTITION where KEY places rows otherwise."""

NOT_IN_MYSQL = ("pub.plist",)
"""A DEFAULT partition of LIST, see `Part.LIST_DEFAULT` in the table of dialects: its CREATE TABLE is refused."""


class Recorded(NamedTuple):
    """The log, and the tables as they are upstream at a ts just below the DROP DATABASE by which nearly all go."""

    log: Path
    ts: int
    truth: Truth


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The truth is made of Open Protocol messages."""
    folder = tmp_path_factory.mktemp("golden")
    log = golden_log(folder / "log", partitions=2)
    history = load_history(LogReader(str(log)))
    (drop,) = [event for event in history.ddl_events(0, history.resolved_ts) if event.query == "DROP DATABASE `pub`"]
    ts = drop.ts - 1
    uri = parse_sink_uri(f"messages://{folder}/all.jsonl?protocol=open-protocol")
    replay(str(log), Settings("truth", uri, parse_config(""), UTC), target_ts=ts)
    infos = {v.name: v.info for v in history.snapshot(ts).tables.values()}
    return Recorded(log, ts, truth_of(audited(from_jsonl(folder / "all.jsonl")), infos))


OTHERWISE = pytest.mark.thorough("DDLs go the same way in every setting; test_keys.py and test_storms.py have rows in these")


@pytest.mark.parametrize(
    "parameters",
    [
        "",
        pytest.param("transaction-atomicity=table&worker-count=3&max-txn-row=2", marks=OTHERWISE),
        pytest.param("batch-dml-enable=false&multi-stmt-enable=false", marks=OTHERWISE),
    ],
)
def test_every_table_is_as_it_is_upstream(
    mariadb: MariaDb, recorded: Recorded, tmp_path: Path, parameters: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mariadb.clear()
    mariadb.run("CREATE DATABASE test")  # TiDB has it from the beginning
    alone = TIDB_ONLY + (NOT_IN_MYSQL if Server(str(mariadb.rows("SELECT VERSION()")[0][0])).is_mysql else ())
    config = tmp_path / "feed.toml"
    config.write_text(f'[filter]\nrules = ["*.*", {", ".join(f"{chr(34)}!{name}{chr(34)}" for name in alone)}]\n')
    uri = f"{mariadb.uri}?{parameters}"
    feed = ("--tz", "UTC", "--config", config, "--sink-uri", uri)
    code, _, err = tidemill(capsys, "replay", "--log", recorded.log, "--target-ts", recorded.ts, *feed)
    assert code == 0, err
    left_out = {BEFORE_KEY, *(tuple(name.split(".")) for name in alone)}
    wanted = {name: table for name, table in recorded.truth.items() if not left_out & {name, (name[0], "*")}}
    assert len(wanted) > 40
    found = [str(d) for d in differences(mariadb, wanted)]
    assert found == [], "\n".join(found)
