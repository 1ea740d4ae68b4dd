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
from tests.support.servers.registries import Front, MemoryRegistry
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
    partitions: int = 0


WAYS = {
    # The consumer keeps the columns of a table for each partition until a DDL comes there, and DDLs go to the first partition alone.
    "canal-json": Way("kafka-consumer", "canal-json", f"&{EXTENDED}", 1),
    "open-protocol": Way("kafka-consumer", "open-protocol", "", 3),
    "simple": Way("kafka-consumer", "simple", "", 3),
    # It makes floats of decimals that are numbers.
    "avro": Way("kafka-consumer", "avro", f"&{EXTENDED}&avro-enable-watermark=true&avro-decimal-handling-mode=string", 3),
    "files-csv": Way("storage-consumer", "csv"),
    "files-canal-json": Way("storage-consumer", "canal-json", f"&{EXTENDED}"),
}

TEXTS = {
    **SCENARIOS,
    "accounts": """
create table acc (id int primary key, bal bigint, u int, unique key (u));
insert into acc values (1, 100, 1), (2, 200, 2), (3, 300, 3), (4, null, null);
begin; update acc set bal = bal - 10 where id = 1; update acc set bal = bal + 10 where id = 2; commit;
begin; update acc set u = -1 where id = 1; update acc set u = 1 where id = 2; update acc set u = 2 where id = 1; commit;
update acc set id = 10 where id = 3;
update acc set bal = 7 where u is not null;
delete from acc where id = 2
""",
}

FROM_KAFKA = frozenset(kind for kind, way in WAYS.items() if way.program == "kafka-consumer")

ONE_PARTITION = frozenset({"partition_table", "tables_of_many_schemas"})
"""Scenarios with EXCHANGE PARTITION. The consumer writes rows before it only if it read them before; it reads Kafka partitions apart."""

ONE_TABLE = {"conflict_key_generated_column": "g", "default_value": "d", "large_txn": "t", "types": "t", "wide_table": "w"}
"""Scenarios of one table. With a schema registry a topic has no other, and the consumer reads one topic."""


@dataclass(frozen=True, slots=True)
class Instead:
    """Another text for a part of a scenario, where a consumer could not read TiCDC's own message of it."""

    text: str
    by: str
    why: str
    kinds: frozenset[str] = frozenset()
    """Empty: all."""


MEMBERS = "the schema files of TiCDC v8.5 have no members of ENUM and SET, for which it looks there"
BIT = "0, 18446744073709551615, 'a'"

INSTEAD = {
    "conflict_key_generated_column": [
        Instead(
            "x int generated always as (v * 2) virtual",
            "x int",
            "a row has no virtual columns, but the schema file has",
            frozenset({"files-csv"}),
        )
    ],
    "ddl": [
        Instead("rename column a to aa", "change column a aa int", "its list of ALTER TABLE lacks RENAME COLUMN: it panics", FROM_KAFKA)
    ],
    "default_value": [
        Instead("enum('m', 'n')", "varchar(1)", MEMBERS, frozenset({"files-csv"})),
    ],
    "types": [
        Instead(
            BIT, "0, 200, 'a'", "mysqlType is `bit` without a length: it takes one byte", frozenset({"canal-json", "files-canal-json"})
        ),
        Instead(BIT, "0, 200, 'a'", "it reads BIT as an int64, and panics", frozenset({"open-protocol"})),
        Instead("e enum('a', 'it''s', ''), s set('x', 'y', 'z')", "e varchar(9), s varchar(9)", MEMBERS, frozenset({"files-csv"})),
        Instead("-00:00:00.5", "-00:00:05", "it loses the fraction of TIME: its columns have no precision", frozenset({"avro"})),
        Instead("-01:02:03.004", "-01:02:03", "the same", frozenset({"avro"})),
    ],
}

OF_THE_CONSUMER = {
    ("conflict_key_generated_column", "avro"): "it puts a transaction into one chunk, and a delete has no columns but the key's",
}
"""Scenario and way → what the consumer itself cannot do, so that it ends or its tables differ; TiCDC's own messages are no better."""


def sent(name: str, kind: str) -> Iterator[str]:
    """Yield the statements of a scenario. The last makes finish_mark, which is there when the consumer has run all before it.

    From Kafka it runs CREATE TABLE as soon as it has read it, before the rows that came earlier; a view waits for them all.
    """
    text = TEXTS[name]
    for part in INSTEAD.get(name, ()):
        if not part.kinds or kind in part.kinds:
            assert part.text in text
            text = text.replace(part.text, part.by)
    yield from (f"create database {name}", f"use {name}", *statements(text))
    if WAYS[kind].program == "storage-consumer":
        yield "create table finish_mark (id int primary key)"
    elif kind == "avro":
        yield f"create view finish_mark as select * from {ONE_TABLE[name]}"
    else:
        yield from ("create table last_table (id int primary key)", "create view finish_mark as select * from last_table")


@pytest.fixture(scope="module")
def database() -> Iterator[MariaDb]:
    with MariaDb("--sql-mode=", "--character-set-server=utf8mb4", "--collation-server=utf8mb4_bin") as server:
        yield server


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with Front(MemoryRegistry()) as front:
        yield front.url


def outcome(name: str, kind: str, database: MariaDb, broker: KafkaBroker, registry: str, folder: Path) -> list[str]:
    """Let the consumer read a scenario. Return how it ended before the last table, or what differs."""
    way = WAYS[kind]
    database.clear()
    database.run("CREATE DATABASE app")
    sql = SqlLog()
    sql.run(*sent(name, kind))
    topic = new_topic_name()
    place = f"kafka://{broker.address}/{topic}" if way.program == "kafka-consumer" else f"file://{folder}/out"
    partitions = f"&partition-num={1 if name in ONE_PARTITION else way.partitions}" if way.partitions else ""
    schemas = f"&schema-registry={registry}" if way.protocol == "avro" else ""
    config = parse_config("")
    uri = f"{place}?protocol={way.protocol}{way.more}{partitions}"
    replay(sql.write(folder / "log"), Settings("r", config.sink_uri(uri + schemas), config, UTC))
    flags = {"consumer_group_id": topic} if way.program == "kafka-consumer" else {}
    if schemas:
        flags["schema_registry_uri"] = registry
    # Most protocols tell neither collations nor unique keys, csv no keys at all: its workers, and batches, would write the changes of one
    # row in any order. MariaDB 10 has no vectors.
    downstream = f"{database.uri}?enable-ddl-ts=false&worker-count=1&batch-dml-enable=false&has-vector-type=true"

    def is_there() -> bool:
        found = database.rows(f"SELECT 1 FROM information_schema.tables WHERE table_schema = '{name}' AND table_name = 'finish_mark'")
        return bool(found)

    with Consumer(way.program, folder, upstream_uri=uri, downstream_uri=downstream, **flags) as consumer:
        ended = consumer.until(is_there)
    return [ended] if ended else [*wrong(database, sql, keyless=False)]


@pytest.mark.parametrize(("kind", "scenario"), [(kind, name) for kind in WAYS for name in TEXTS if kind != "avro" or name in ONE_TABLE])
def test_tables_are_those_of_the_upstream(
    scenario: str, kind: str, database: MariaDb, kafka_broker: KafkaBroker, registry: str, tmp_path: Path
) -> None:
    if program(WAYS[kind].program) is None:
        pytest.skip(why_not(WAYS[kind].program))
    found = outcome(scenario, kind, database, kafka_broker, registry, tmp_path)
    limit = OF_THE_CONSUMER.get((scenario, kind))
    assert bool(found) is (limit is not None), "\n".join(found) or limit
