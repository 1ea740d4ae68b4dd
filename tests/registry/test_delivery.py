"""Deliveries of avro with a registry into message files: when schemas are registered, and what a refusal, an outage and a collision do."""

from __future__ import annotations

import base64
import json
import logging
import struct
import threading
from datetime import UTC
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.servers.registries import Fault, Front, MemoryRegistry, Reply, forward
from tidemill.changefeed import replay as module
from tidemill.changefeed.replay import Delivered, replay
from tidemill.config.file import parse_config
from tidemill.config.registry_address import with_registry
from tidemill.delivery.inputs import table_pack
from tidemill.delivery.inputs.table_router import Settings
from tidemill.delivery.machine.actions import Report
from tidemill.delivery.machine.failures import Stopped
from tidemill.delivery.machine.retry import RetryPolicy
from tidemill.errors import ConfigError, RegistryError, RegistryUnavailable, SchemaIncompatible, TopicCollision
from tidemill.playground.programs.schema_registry import RegistryProcess

pytestmark = pytest.mark.slow

EACH = "[sink]\ndispatchers = [{matcher = ['*.*'], topic = 'tidb_{schema}_{table}'}]\n"
"""A topic a table."""


class Sent(NamedTuple):
    """A message: its topic and the schema ids of its key and value."""

    topic: str
    key_id: int | None
    value_id: int | None


def settings(out: Path, registry: str, config: str = EACH, *, topic: str = "only", more: str = "") -> Settings:
    read = parse_config(config)
    uri = with_registry(f"messages://{out}?protocol=avro&topic={topic}&partition-num=2{more}", registry)
    return Settings("r", read.sink_uri(uri), read, UTC)


def sent(out: Path) -> list[Sent]:
    found = []
    for line in out.read_text().splitlines() if out.exists() else ():
        message: dict[str, Any] = json.loads(line)
        ids = [
            struct.unpack(">bi", base64.b64decode(message[side])[:5]) if message[side] is not None else None for side in ("key", "value")
        ]
        assert all(one is None or one[0] == 0 for one in ids)
        found.append(Sent(message["topic"], *(one[1] if one is not None else None for one in ids)))
    return found


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY", RetryPolicy(first_s=0.05, longest_s=0.05, total_s=0.2))


def test_only_tables_with_rows_are_registered_before_their_first_row(front: Front, memory: MemoryRegistry, tmp_path: Path) -> None:
    sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (id INT PRIMARY KEY)", "CREATE TABLE empty (id INT PRIMARY KEY)")
    sql.run("INSERT INTO a VALUES (1), (2)", "CREATE TABLE c (id INT PRIMARY KEY)", "ALTER TABLE empty ADD COLUMN x INT")
    sql.run("INSERT INTO c VALUES (1)", "INSERT INTO a VALUES (3)", "DELETE FROM a WHERE id = 1", "DROP TABLE c")
    asked: list[list[str]] = []
    done = replay(sql.write(tmp_path / "log"), settings(tmp_path / "out", front.url), on_batch=lambda r: asked.append(front.registered))
    assert asked[0] == ["tidb_app_a-key", "tidb_app_a-value"]
    assert front.registered == [f"tidb_app_{t}-{side}" for t in "ac" for side in ("key", "value")]
    assert {method for method, _ in front.requests} == {"POST"}
    got = sent(tmp_path / "out")
    assert done.messages == len(got) == 5
    ids = memory.ids
    for one in got:
        key, value = (memory.subjects[f"{one.topic}-{side}"] for side in ("key", "value"))
        assert one.key_id == ids[key[0]]
        assert one.value_id in (ids[value[0]], None)
    assert [one.value_id for one in got].count(None) == 1


def test_calls_of_many_versions(front: Front, tmp_path: Path) -> None:
    """Two calls for a table's first version, one for each version whose value differs, none where nothing that is sent differs."""
    sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY)")
    for number in range(6):
        sql.run(f"INSERT INTO a (id) VALUES ({number})", f"ALTER TABLE a ADD COLUMN c{number} INT")
    sql.run(
        "INSERT INTO a (id) VALUES (10)", "ALTER TABLE a ADD INDEX i (c1)", "INSERT INTO a (id) VALUES (11)", "ALTER TABLE a DROP COLUMN c5"
    )
    sql.run("INSERT INTO a (id) VALUES (12)", "UPDATE a SET c1 = 5")
    replay(sql.write(tmp_path / "log"), settings(tmp_path / "out", front.url))
    assert front.registered == ["tidb_app_a-key", *["tidb_app_a-value"] * 7]
    assert len(front.requests) == 8
    assert len(sent(tmp_path / "out")) == 6 + 1 + 1 + 1 + 9


def test_no_ddl_and_no_resolved_events_but_for_the_watermark(front: Front, tmp_path: Path) -> None:
    sql = SqlLog()
    sql.run("CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    log = sql.write(tmp_path / "log")
    assert replay(log, settings(tmp_path / "out", front.url)).messages == 1
    assert len(sent(tmp_path / "out")) == 1
    more = "&avro-enable-watermark=true&enable-tidb-extension="
    replay(log, settings(tmp_path / "without", front.url, more=more + "false"))
    assert len(sent(tmp_path / "without")) == 1
    replay(log, settings(tmp_path / "with", front.url, more=more + "true"))
    assert {base64.b64decode(json.loads(line)["value"] or "")[0] for line in (tmp_path / "with").read_text().splitlines()} == {0, 1, 2}


def test_with_the_watermark_a_delete_has_its_commit_ts(front: Front, tmp_path: Path) -> None:
    sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY)")
    before = sql.run("INSERT INTO a VALUES (1)")
    after = sql.run("DELETE FROM a")
    more = "&avro-enable-watermark=true&enable-tidb-extension=true"
    replay(sql.write(tmp_path / "log"), settings(tmp_path / "out", front.url, more=more))
    values = [base64.b64decode(json.loads(line)["value"]) for line in (tmp_path / "out").read_text().splitlines()]
    (deleted,) = (value[1:] for value in values if value[0] == 3)
    assert len(deleted) == 8
    assert before < int.from_bytes(deleted, "big") < after


# outages


def test_a_registry_that_is_away_for_a_while_delays_the_batch(front: Front, tmp_path: Path) -> None:
    sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY)")
    sql.run("INSERT INTO a VALUES (1)", "ALTER TABLE a ADD COLUMN b INT", "INSERT INTO a VALUES (2, 2)")
    front.faults = [None, None, *[Fault(Reply(503, b""))] * 4]
    reports: list[Report] = []
    replay(sql.write(tmp_path / "log"), settings(tmp_path / "out", front.url), on_batch=reports.append)
    assert [r.attempts for r in reports if r.stats.rows] == [1, 2]
    assert [one.topic for one in sent(tmp_path / "out")] == ["tidb_app_a"] * 2


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault(), "TM:ErrSchemaRegistryUnavailable"),
        pytest.param(
            Fault(hang=True),
            "TM:ErrSchemaRegistryUnavailable",
            marks=pytest.mark.thorough("the first one ends so too; the next test has a registry that hangs"),
        ),
        (Fault(Reply(200, b"<html>hello</html>")), "TM:ErrSchemaRegistryUnavailable"),
        (Fault(Reply(200, b'{"id": "seven"}')), "TM:ErrSchemaRegistryUnavailable"),
        (Fault(Reply(422, b'{"error_code": 42201, "message": "Invalid schema"}')), "TM:ErrSchemaRegistry"),
        (Fault(Reply(401, b"")), "TM:ErrSchemaRegistry"),
    ],
)
def test_a_registry_that_stays_so_ends_it_and_nothing_past_it_is_sent(front: Front, tmp_path: Path, fault: Fault, code: str) -> None:
    sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (id INT PRIMARY KEY)")
    sql.run("INSERT INTO a VALUES (1)", "ALTER TABLE b ADD COLUMN b INT", "INSERT INTO a VALUES (2)", "INSERT INTO b VALUES (2, 2)")
    timeout = "1s" if fault.hang else "60s"  # the calls before the fault get their answers also on a busy machine
    log, chosen = sql.write(tmp_path / "log"), settings(tmp_path / "out", f"{front.url}?timeout={timeout}")
    front.faults = [None, None]
    front.fault = fault
    reports: list[Report] = []
    with pytest.raises((RegistryError, RegistryUnavailable)) as caught:
        replay(log, chosen, on_batch=reports.append)
    assert caught.value.code == code
    assert len(sent(tmp_path / "out")) == 1
    front.fault = None
    replay(log, chosen, start_ts=reports[-1].to_ts)
    assert [one.topic for one in sent(tmp_path / "out")] == ["tidb_app_a", "tidb_app_b"]  # `replay` begins the file again


def test_a_slow_registry_is_waited_for(front: Front, tmp_path: Path) -> None:
    """It answers the first request once the client has hung up on it twice."""
    sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY)")
    sql.run("INSERT INTO a VALUES (1)")
    front.faults = [Fault(hang=True), Fault(dribble=True)]
    replay(sql.write(tmp_path / "log"), settings(tmp_path / "out", f"{front.url}?timeout=1s"))
    assert len(sent(tmp_path / "out")) == 1
    assert len(front.requests) == 4


def test_a_stop_does_not_wait_for_the_registry(front: Front, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY", RetryPolicy(first_s=3600, total_s=7200))
    sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY)")
    sql.run("INSERT INTO a VALUES (1)")
    stop = threading.Event()
    stop.set()
    front.fault = Fault()
    with pytest.raises(Stopped):
        replay(sql.write(tmp_path / "log"), settings(tmp_path / "out", front.url), stop=stop)


# refusals


def test_a_refused_schema_stops_before_its_first_row_and_goes_on_without_loss(
    registry: RegistryProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Apicurio at BACKWARD; the document's own case: a NOT NULL column is added."""
    registry.set_compatibility("BACKWARD")
    sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY, x INT)", "CREATE TABLE b (id INT PRIMARY KEY)")
    sql.run("INSERT INTO a VALUES (1, 1)", "INSERT INTO b VALUES (1)")
    sql.run(
        "ALTER TABLE a ADD COLUMN y INT NOT NULL", "INSERT INTO b VALUES (2)", "INSERT INTO a VALUES (2, 2, 2)", "INSERT INTO b VALUES (3)"
    )
    log = sql.write(tmp_path / "log")
    reports: list[Report] = []
    with Front(forward(registry.url)) as front:
        chosen = settings(tmp_path / "out", front.url, EACH.replace("tidb_", "r1_"))
        with caplog.at_level(logging.WARNING), pytest.raises(SchemaIncompatible) as caught:
            replay(log, chosen, on_batch=reports.append)
        for part in ("table app.a", "subject r1_app_a-value (compatibility BACKWARD)", "column `y` (INT as int)", "answers 409: "):
            assert part in caught.value.message
        (warning,) = (r.getMessage() for r in caplog.records if "will refuse" in r.getMessage())
        assert "r1_app_a-value" in warning
        assert "column `y`" in warning
        assert [one.topic for one in sent(tmp_path / "out")] == ["r1_app_a", "r1_app_b"]
        with pytest.raises(SchemaIncompatible):
            replay(log, chosen, start_ts=reports[-1].to_ts)
        assert sent(tmp_path / "out") == []
        registry.set_compatibility("NONE")
        replay(log, chosen, start_ts=reports[-1].to_ts)
        assert sorted(one.topic for one in sent(tmp_path / "out")) == ["r1_app_a", "r1_app_b", "r1_app_b"]
    registry.set_compatibility("BACKWARD")


def test_removing_the_subject_mends_it_too(registry: RegistryProcess, tmp_path: Path) -> None:
    registry.set_compatibility("FULL")
    sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY, x INT NOT NULL)")
    sql.run("INSERT INTO a VALUES (1, 1)", "ALTER TABLE a DROP COLUMN x", "INSERT INTO a VALUES (2)")
    log, chosen = sql.write(tmp_path / "log"), settings(tmp_path / "out", registry.url, EACH.replace("tidb_", "r2_"))
    reports: list[Report] = []
    with pytest.raises(SchemaIncompatible, match=r"column `x` .* was dropped"):
        replay(log, chosen, on_batch=reports.append)
    registry.delete_subject("r2_app_a-value")
    assert replay(log, chosen, start_ts=reports[-1].to_ts).messages == 1
    registry.set_compatibility("BACKWARD")


# topics


def run(sql: SqlLog, folder: Path, front: Front, config: str, **more: Any) -> Delivered:
    return replay(sql.write(folder / "log"), settings(folder / "out", front.url, config, **more))


def test_one_table_may_have_the_sinks_topic_or_a_fixed_one(front: Front, tmp_path: Path) -> None:
    sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE keyless (id INT)", "CREATE VIEW v AS SELECT * FROM a")
    sql.run("INSERT INTO a VALUES (1)", "RENAME TABLE a TO z", "INSERT INTO z VALUES (2)")
    assert run(sql, tmp_path, front, "").messages == 2
    assert {one.topic for one in sent(tmp_path / "out")} == {"only"}
    fixed = "[sink]\ndispatchers = [{matcher = ['*.*'], topic = 'fixed.one'}]"
    assert replay(str(tmp_path / "log"), settings(tmp_path / "out", front.url, fixed)).messages == 2
    assert {one.topic for one in sent(tmp_path / "out")} == {"fixed.one"}
    assert {"fixed_one-key", "only-key"} < set(front.registered)


@pytest.mark.parametrize(
    ("config", "shared"),
    [
        ("", "topic only"),
        ("[sink]\ndispatchers = [{matcher = ['*.*'], topic = 'one'}]", "topic one"),
        ("[sink]\ndispatchers = [{matcher = ['*.a'], topic = 'x.y'}, {matcher = ['*.b'], topic = 'x_y'}]", "subject x_y-value"),
        ("[sink]\ndispatchers = [{matcher = ['*.a'], partition = 'ts'}]", "topic only"),
    ],
)
def test_two_tables_of_one_topic_are_refused_at_once(front: Front, tmp_path: Path, config: str, shared: str) -> None:
    sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (id INT PRIMARY KEY)")
    sql.run("INSERT INTO a VALUES (1)")
    with pytest.raises(TopicCollision, match=r"tables app\.a and app\.b") as caught:
        run(sql, tmp_path, front, config)
    assert f"would share {shared}" in caught.value.message
    assert "{schema}" in caught.value.hint
    assert sent(tmp_path / "out") == []
    assert front.requests == []


def test_names_that_make_the_same_topic(front: Front, tmp_path: Path) -> None:
    sql = SqlLog(
        "CREATE TABLE `a-b` (id INT PRIMARY KEY)", "CREATE TABLE `a b` (id INT PRIMARY KEY)", "CREATE TABLE c (id INT PRIMARY KEY)"
    )
    sql.run("INSERT INTO c VALUES (1)")
    run(sql, tmp_path, front, EACH)
    other = SqlLog("CREATE TABLE `a b` (id INT PRIMARY KEY)", "CREATE TABLE `a/b` (id INT PRIMARY KEY)")
    other.run("INSERT INTO `a b` VALUES (1)")
    with pytest.raises(TopicCollision, match=r"tables app\.a b and app\.a/b, .* would share topic tidb_app_a_b"):
        run(other, tmp_path / "other", front, EACH)


@pytest.mark.parametrize("ddl", ["CREATE TABLE b (id INT PRIMARY KEY)", "RENAME TABLE hidden TO b"])
def test_a_table_that_comes_later_stops_it_at_its_ddl(front: Front, tmp_path: Path, ddl: str) -> None:
    """No row of the new table is needed for that; what came before is delivered."""
    sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE hidden (id INT PRIMARY KEY)")
    sql.run("INSERT INTO a VALUES (1)", ddl, "INSERT INTO a VALUES (2)")
    config = "[filter]\nrules = ['*.*', '!*.hidden']"
    reports: list[Report] = []
    with pytest.raises(TopicCollision, match=r"tables app\.a and app\.b, as they are past .* would share topic only") as caught:
        replay(sql.write(tmp_path / "log"), settings(tmp_path / "out", front.url, config), on_batch=reports.append)
    assert len(sent(tmp_path / "out")) == 1
    assert [e.query.split()[0] for e in reports[-1].ddls] == [ddl.split()[0]]
    assert f"--start-ts {reports[-1].to_ts}" in caught.value.hint


def test_a_table_may_take_the_place_of_another(front: Front, tmp_path: Path) -> None:
    sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY)")
    sql.run(
        "INSERT INTO a VALUES (1)", "DROP TABLE a", "CREATE TABLE b (id INT PRIMARY KEY)", "INSERT INTO b VALUES (1)", "TRUNCATE TABLE b"
    )
    sql.run("INSERT INTO b VALUES (3)")
    assert run(sql, tmp_path, front, "").messages == 3


@pytest.mark.parametrize("topic", ["{schema}", "x_{table}", "{schema}_x"])
def test_an_expression_needs_schema_and_table(front: Front, tmp_path: Path, topic: str) -> None:
    with pytest.raises(ConfigError, match=r"both \{schema\} and \{table\}"):
        settings(tmp_path / "out", front.url, f"[sink]\ndispatchers = [{{matcher = ['*.*'], topic = '{topic}'}}]")


# secrets


def test_a_password_is_nowhere(
    registry: RegistryProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in what is logged, at any level and by any library; not in packs and not in errors."""
    packs: list[bytes] = []
    write = table_pack.PackStore._write

    def noting(self: Any, content: Any) -> str:
        path = write(self, content)
        packs.append(Path(path).read_bytes())
        return path

    monkeypatch.setattr(table_pack.PackStore, "_write", noting)
    sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY)")
    sql.run("INSERT INTO a VALUES (1)", "ALTER TABLE a ADD COLUMN y INT NOT NULL", "INSERT INTO a VALUES (2, 2)")
    log = sql.write(tmp_path / "log")
    registry.set_compatibility("BACKWARD")
    with Front(forward(registry.url), user="us:er", password="s3cr/et@x") as front, caplog.at_level(logging.DEBUG):
        right = f"http://us%3Aer:s3cr%2Fet%40x@{front.address}"
        chosen = settings(tmp_path / "out", right, EACH.replace("tidb_", "secret_"))
        with pytest.raises(SchemaIncompatible) as refused:
            replay(log, chosen)
        with pytest.raises(RegistryError) as unknown:
            replay(log, settings(tmp_path / "out", right.replace("et%40x", "et%40y"), EACH))
    assert packs
    shown = "\n".join([*caplog.messages, str(refused.value), str(unknown.value), repr(chosen), str(chosen.sink), caplog.text])
    for secret in ("s3cr", "c3Ny", "us:er", base64.b64encode(b"us:er:s3cr/et@x").decode()):
        assert secret not in shown
        assert all(secret.encode() not in pack for pack in packs)
