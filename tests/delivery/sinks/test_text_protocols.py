"""The golden log replayed as Canal-JSON, CSV and simple: TiCDC's messages, on the partitions and in the order that a protocol asks for."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelog.logs import golden_log, golden_span
from tests.support.changelog.sqllogs import SqlLog
from tests.support.golden import ticdc
from tidemill.changefeed.replay import replay
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings
from tidemill.errors import ConfigError
from tidemill.protocols.canal import DdlMessage as CanalDdl
from tidemill.protocols.canal.decode import events_of
from tidemill.protocols.canal.packets import Messages as Packet
from tidemill.protocols.canal.packets import parse_packet
from tidemill.protocols.canal.parse import parse_entry
from tidemill.protocols.canal_json import DdlMessage, RowEvent, WatermarkMessage, decode
from tidemill.protocols.common.claim_check import unpack
from tidemill.protocols.simple import Bootstrap, SimpleDecoder, Watermark
from tidemill.protocols.simple import RowEvent as SimpleRow
from tidemill.sinks.claim_check import ClaimCheckStorage

PARTITIONS = 3
WINDOWS = {"online_ddl", "partition_range", "ddl_schema_misc"}
"""Cases with rows that were written while their table's DDL ran: TiCDC shows some of them by the schema of before."""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(golden_log(tmp_path_factory.mktemp("golden") / "log", partitions=2, segments=3))


LAST = "partition_hash_list_key"
"""The last case of the tests that do not take all: behind it there are more DDLs and random rows. Canal-JSON has them."""


def messages(log: str, path: Path, protocol: str, more: str = "", toml: str = "", last: str = LAST) -> list[tuple[int, bytes]]:
    """(partition, value) of all messages up to the end of a case in the order of delivery."""
    config = parse_config(toml)
    uri = config.sink_uri(f"messages://{path}?protocol={protocol}&partition-num={PARTITIONS}{more}")
    replay(log, Settings("test", uri, config, UTC), target_ts=golden_span(last)[1])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["key"] for line in lines} == {None}
    return [(line["partition"], base64.b64decode(line["value"])) for line in lines]


def wanted(name: str, config: str, last: str = LAST) -> list[dict[str, Any]]:
    """Golden rows of a configuration up to the end of a case that were read in UTC, without force-replicate."""
    end = golden_span(last)[1]
    rows = [line for line in ticdc.lines(name) if line["kind"] == "row" and line["config"] == config and "error" not in line]
    rows = [line for line in rows if ticdc.rows()[line["id"]].zone == "UTC" and not ticdc.rows()[line["id"]].expected["force"]]
    return [line for line in rows if golden_span(line["case"])[0] < end]


def check_rows(rows: list[dict[str, Any]], found: Counter[Any], shown: Any) -> None:
    """Each expected row came, but for some of DDLs' windows."""
    missing = []
    for line in rows:
        value = shown(line)
        if found[value]:
            found[value] -= 1
        else:
            missing.append(line)
    assert {line["case"] for line in missing} <= WINDOWS
    assert len(missing) < 12


@pytest.mark.slow
def test_canal_json(log: str, tmp_path: Path) -> None:
    got = messages(log, tmp_path / "out", "canal-json", "&enable-tidb-extension=true", last="schema_drop")
    events = [(partition, decode(value)[0], value) for partition, value in got]
    found = Counter(
        re.sub(rb'("es":\d+,"ts":)\d+', rb"\g<1>0", value, count=1) for _, event, value in events if isinstance(event, RowEvent)
    )
    check_rows(
        wanted("canal_json", "ext", "schema_drop"),
        found,
        lambda line: line["value"].encode() if "value" in line else ticdc.raw(line["value_b64"]),
    )
    ddls = [(partition, event) for partition, event, _ in events if isinstance(event, DdlMessage)]
    assert {partition for partition, _ in ddls} == {0}
    texts = [line for line in ticdc.lines("canal_json") if line["kind"] == "ddl" and line["config"] == "ext"]
    missing = {json.loads(line["value"])["sql"] for line in texts} - {event.query for _, event in ddls}
    assert sorted(query[:27] for query in missing) == [
        "CREATE TABLE `pub`.`nokey` ",
        "CREATE TABLE `pub`.`uk_null",
    ]  # with force-replicate only
    last: dict[int, int] = {}
    watermarks = Counter(partition for partition, event, _ in events if isinstance(event, WatermarkMessage))
    assert set(watermarks) == set(range(PARTITIONS))
    assert len(set(watermarks.values())) == 1
    for partition, event, _ in events:
        if isinstance(event, WatermarkMessage):
            last[partition] = event.ts
        else:
            assert (event.commit_ts or 0) > last.get(partition, 0)


@pytest.mark.slow
def test_canal_json_without_extension_has_no_watermarks(log: str, tmp_path: Path) -> None:
    got = messages(log, tmp_path / "out", "canal-json")
    assert not any(isinstance(decode(value)[0], WatermarkMessage) for _, value in got)
    assert len(got) > 400


@pytest.mark.slow
def test_canal(log: str, tmp_path: Path) -> None:
    """Protobuf: packets of many rows, DDLs on partition 0, nothing for resolved ts."""
    got = [(partition, parse_packet(value)) for partition, value in messages(log, tmp_path / "out", "canal")]
    assert all(isinstance(body, Packet) and 0 < len(body.entries) <= 2048 for _, body in got)
    entries = [(partition, entry) for partition, body in got if isinstance(body, Packet) for entry in body.entries]
    assert len(entries) > 3 * len(got) / 2
    found = Counter(entry for _, entry in entries)
    check_rows(wanted("canal", "default"), found, lambda line: ticdc.raw(line["entry"]))
    assert {partition for partition, entry in entries if isinstance(events_of(parse_entry(entry))[0], CanalDdl)} == {0}


@pytest.mark.slow
def test_csv(log: str, tmp_path: Path) -> None:
    refused = 'filter.rules = ["*.*", "!pub.enums"]\n'  # it has a row without a name for its ENUM
    got = messages(log, tmp_path / "out", "csv", toml=refused)
    found = Counter(value for _, value in got)
    rows = [line for line in wanted("csv", "default") if line["case"] != "types_enum_set"]
    check_rows(rows, found, lambda line: ticdc.raw(line["value"]))
    with pytest.raises(ConfigError, match="protocol csv is for files"):
        parse_config("").sink_uri("kafka://127.0.0.1:9092/t?protocol=csv")


@pytest.mark.slow
def test_simple(log: str, tmp_path: Path) -> None:
    got = messages(log, tmp_path / "out", "simple")
    rows: Counter[str] = Counter()
    decoders = [SimpleDecoder() for _ in range(PARTITIONS)]
    kinds: Counter[tuple[int, type]] = Counter()
    for partition, value in got:
        event = decoders[partition].decode(value)
        kinds[partition, type(event)] += 1
        if isinstance(event, SimpleRow):
            assert event.typed  # a bootstrap message or a DDL came before
            rows[json.dumps(json.loads(value) | {"buildTs": 0}, sort_keys=True)] += 1
    check_rows(wanted("simple", "json"), rows, lambda line: json.dumps(json.loads(line["value"]), sort_keys=True))
    assert all(kinds[partition, kind] for partition in range(PARTITIONS) for kind in (Bootstrap, Watermark))


@pytest.mark.parametrize("everywhere", [True, False])
def test_all_tables_are_described_at_the_start(tmp_path: Path, everywhere: bool) -> None:
    """Ahead of everything else, also those that have no rows; not those that are not delivered."""
    sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (id INT PRIMARY KEY, x INT)", "CREATE TABLE no_key (x INT)")
    sql.run("INSERT INTO a VALUES (1)", "CREATE TABLE c (id INT PRIMARY KEY)", "INSERT INTO a VALUES (2)")
    config = parse_config(f"[sink]\nsend-all-bootstrap-at-start = true\nsend-bootstrap-to-all-partition = {str(everywhere).lower()}\n")
    sink = config.sink_uri(f"messages://{tmp_path}/out?protocol=simple&partition-num=2")
    replay(sql.write(tmp_path / "log"), Settings("r", sink, config, UTC))
    lines = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    decoded = [(line["partition"], SimpleDecoder().decode(base64.b64decode(line["value"]))) for line in lines]
    partitions = range(2 if everywhere else 1)
    first = decoded[: 2 * len(partitions)]
    assert {(p, e.table.table) for p, e in first if isinstance(e, Bootstrap)} == {(p, t) for p in partitions for t in "ab"}
    later = [e.table.table for _, e in decoded[len(first) :] if isinstance(e, Bootstrap)]
    assert "b" not in later
    assert "no_key" not in later


@pytest.mark.parametrize("option", ["claim-check", "handle-key-only"])
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_rows_of_simple_that_are_too_large(tmp_path: Path, option: str, compression: str) -> None:
    """TiCDC's kafka_simple_claim_check and kafka_simple_handle_key_only: the message has the handle key alone, the whole is kept."""
    noise = "".join(f"{one:04x}" for one in range(500))  # it does not become small
    sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY, x TEXT)")
    sql.run("INSERT INTO a VALUES (1, 'small')", f"INSERT INTO a VALUES (2, '{noise}')")
    sql.run(f"UPDATE a SET x = '{noise}!' WHERE id = 2", "DELETE FROM a WHERE id = 2")
    kept = tmp_path / "kept"
    handling = (
        f'[sink.kafka-config.large-message-handle]\nlarge-message-handle-option = "{option}"\nclaim-check-storage-uri = "file://{kept}"\n'
        f'large-message-handle-compression = "{compression}"\n'
    )
    config = parse_config(handling)
    sink = config.sink_uri(f"messages://{tmp_path}/out?protocol=simple&max-message-bytes=1700")
    replay(sql.write(tmp_path / "log"), Settings("r", sink, config, UTC))
    decoder = SimpleDecoder()
    values = [base64.b64decode(json.loads(line)["value"]) for line in (tmp_path / "out").read_text().splitlines()]
    rows = [event for event in map(decoder.decode, values) if isinstance(event, SimpleRow)]
    assert all(len(value) <= 1700 for value in values)
    assert [bool(row.only_handle_key or row.claim_check) for row in rows] == [False, True, True, True]
    large = rows[1:]
    if option == "handle-key-only":
        assert [row.only_handle_key for row in large] == [True] * 3
        for row in large:
            assert {*(row.after or {}), *(row.before or {})} == {"id"}
        return
    fetch = ClaimCheckStorage(f"file://{kept}").fetch
    whole = [decoder.decode(unpack(fetch(row.claim_check or ""))[1]) for row in large]
    before = [(row.before or {}).get("x") for row in whole if isinstance(row, SimpleRow)]
    after = [(row.after or {}).get("x") for row in whole if isinstance(row, SimpleRow)]
    assert (before, after) == ([None, noise.encode(), f"{noise}!".encode()], [noise.encode(), f"{noise}!".encode(), None])
