"""TiCDC's kafka-consumer and storage-consumer read what Tidemill writes, into a MariaDB: its tables are the upstream's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.database_runs import wrong
from tests.support.delivery.scenarios import SCENARIOS, statements
from tests.support.server.real_cdc import Consumer, program, why_not
from tests.support.servers.kafka import new_topic_name
from tests.support.servers.mariadb import MariaDb
from tidemill.changefeed.replay import replay
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings
from tidemill.playground.programs.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(300)]

EXTENDED = "enable-tidb-extension=true"


@dataclass(frozen=True, slots=True)
class Way:
    """How changes come to a consumer."""

    program: str
    protocol: str
    more: str = ""


WAYS = {
    "canal-json": Way("kafka-consumer", "canal-json", f"&{EXTENDED}"),
    "open-protocol": Way("kafka-consumer", "open-protocol"),
    "simple": Way("kafka-consumer", "simple"),
    "files-csv": Way("storage-consumer", "csv"),
    "files-canal-json": Way("storage-consumer", "canal-json", f"&{EXTENDED}"),
}

OF_THE_CONSUMER: dict[tuple[str, str], str] = {}
"""Scenario and way → what the consumer itself cannot do, so that it ends or its tables differ; TiCDC's own messages are no better."""


@pytest.fixture(scope="module")
def database() -> Iterator[MariaDb]:
    with MariaDb("--sql-mode=") as server:
        yield server


def outcome(name: str, way: Way, database: MariaDb, broker: KafkaBroker, folder: Path) -> list[str]:
    """Let the consumer read a scenario. Return how it ended before the last table, or what differs."""
    database.clear()
    database.run("CREATE DATABASE app")
    sql = SqlLog()
    sql.run(f"create database {name}", f"use {name}", *statements(SCENARIOS[name]), "create table finish_mark (id int primary key)")
    topic = new_topic_name()
    place = f"kafka://{broker.address}/{topic}" if way.program == "kafka-consumer" else f"file://{folder}/out"
    partitions = "&partition-num=3" if way.program == "kafka-consumer" else ""
    config = parse_config("")
    uri = f"{place}?protocol={way.protocol}{way.more}{partitions}"
    replay(sql.write(folder / "log"), Settings("r", config.sink_uri(uri), config, UTC))
    group = {"consumer_group_id": topic} if way.program == "kafka-consumer" else {}
    downstream = f"{database.uri}?enable-ddl-ts=false"

    def is_there() -> bool:
        found = database.rows(f"SELECT 1 FROM information_schema.tables WHERE table_schema = '{name}' AND table_name = 'finish_mark'")
        return bool(found)

    with Consumer(way.program, folder, upstream_uri=uri, downstream_uri=downstream, **group) as consumer:
        ended = consumer.until(is_there)
    return [ended] if ended else [*wrong(database, sql, name, keyless=False)]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("kind", WAYS)
def test_tables_are_those_of_the_upstream(scenario: str, kind: str, database: MariaDb, kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    way = WAYS[kind]
    if program(way.program) is None:
        pytest.skip(why_not(way.program))
    found = outcome(scenario, way, database, kafka_broker, tmp_path)
    limit = OF_THE_CONSUMER.get((scenario, kind))
    assert bool(found) is (limit is not None), found
