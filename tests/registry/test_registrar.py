"""Ids for table versions: how often the registry is asked, what it refuses, and what is said then. With a real registry."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.servers.registries import Fault, Front, MemoryRegistry, Reply, forward
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader
from tidemill.errors import RegistryError, RegistryUnavailable, SchemaIncompatible
from tidemill.playground.programs.schema_registry import RegistryProcess
from tidemill.protocols.options import AvroOptions, EncodingOptions, MessageFormat
from tidemill.registry.registrar import NO_KEY, Registrar, open_registrar
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.tracking.history import TableVersion

pytestmark = pytest.mark.slow

OPTIONS = EncodingOptions(protocol=MessageFormat.AVRO)


def registrar(front: Front, cache: Path | None = None) -> Registrar:
    return open_registrar(replace(OPTIONS, avro=AvroOptions(registry=f"{front.url}?timeout=5s")), cache)


class Story:
    """A table and the DDLs on it: `versions[0]` before them, `versions[n]` after the n-th, `events[n - 1]`."""

    def __init__(self, folder: Path, create: str, *ddls: str) -> None:
        sql = SqlLog(create)
        sql.run(*ddls)
        self._history = load_history(LogReader(sql.write(folder / "log")))
        self.events: list[DdlEvent] = self._history.ddl_events(sql.start_ts, self._history.resolved_ts)
        assert len(self.events) == len(ddls)
        self.versions: list[TableVersion] = [v for ts in (sql.start_ts, *(e.ts for e in self.events)) for v in self._tables(ts)]

    def _tables(self, ts: int) -> list[TableVersion]:
        return [v for v in self._history.snapshot(ts).tables.values() if v.schema == "app"]


@pytest.fixture
def front(registry: RegistryProcess) -> Iterator[Front]:
    registry.set_compatibility("BACKWARD")
    with Front(forward(registry.url)) as front:
        yield front
    registry.set_compatibility("BACKWARD")


CREATE = "CREATE TABLE t (id BIGINT PRIMARY KEY, a INT, b VARCHAR(20))"


def test_a_version_costs_two_calls_and_only_what_changed(front: Front, tmp_path: Path) -> None:
    story = Story(
        tmp_path,
        CREATE,
        "ALTER TABLE t ADD COLUMN c INT",
        "ALTER TABLE t ADD INDEX i (a)",
        "ALTER TABLE t DROP COLUMN c",
        "TRUNCATE TABLE t",
    )
    one = registrar(front)
    ids = [one.ids(version, "calls") for version in story.versions]
    assert front.registered == ["calls-key", "calls-value", "calls-value"]
    assert len({key for key, _ in ids}) == 1
    assert ids[0] == ids[3] == ids[4] != ids[1] == ids[2]
    assert one.ids(story.versions[0], "other")[0] == ids[0][0]  # a text has one id under every subject
    assert front.registered[3:] == ["other-key", "other-value"]


def test_a_restart_asks_for_nothing_again(front: Front, tmp_path: Path) -> None:
    story = Story(tmp_path, CREATE, "ALTER TABLE t ADD COLUMN c INT")
    first = registrar(front, tmp_path / "schemas.jsonl")
    first.meet()
    ids = [first.ids(version, "restart") for version in story.versions]
    front.requests.clear()
    second = registrar(front, tmp_path / "schemas.jsonl")
    second.meet()
    assert [second.ids(version, "restart") for version in story.versions] == ids
    assert front.requests == [("GET", "/subjects")]


def test_a_registry_that_lost_its_subjects_gets_them_again(front: Front, tmp_path: Path, registry: RegistryProcess) -> None:
    story = Story(tmp_path, CREATE)
    first = registrar(front, tmp_path / "schemas.jsonl")
    first.ids(story.versions[0], "lost")
    registry.delete_subject("lost-value")
    second = registrar(front, tmp_path / "schemas.jsonl")
    second.meet()
    second.ids(story.versions[0], "lost")
    assert front.registered == ["lost-key", "lost-value", "lost-value"]


def test_a_table_without_a_key_has_no_key_subject(front: Front, tmp_path: Path) -> None:
    story = Story(tmp_path, "CREATE TABLE t (a INT)")
    key, value = registrar(front).ids(story.versions[0], "no.key")
    assert (key, value > 0) == (NO_KEY, True)
    assert front.registered == ["no_key-value"]


REFUSED = [
    ("BACKWARD", "ALTER TABLE t ADD COLUMN c INT NOT NULL", "column `c` (INT as int) was added NOT NULL and without default"),
    ("BACKWARD", "ALTER TABLE t MODIFY COLUMN a VARCHAR(9)", "column `a` has another type: INT as int NULL and TEXT as string NULL"),
    ("BACKWARD", "ALTER TABLE t MODIFY COLUMN a INT NOT NULL", "column `a` has another type: INT as int NULL and INT as int do not"),
    ("FULL", "ALTER TABLE t ADD COLUMN c INT NOT NULL", "column `c` (INT as int) was added NOT NULL and without default"),
    ("FULL", "ALTER TABLE t DROP COLUMN b", "column `b` (TEXT as string) was dropped, and had no default"),
    ("FULL", "ALTER TABLE t MODIFY COLUMN a BIGINT", "column `a` has another type: BIGINT as long NULL and INT as int NULL"),
]
TAKEN = [
    ("BACKWARD", "ALTER TABLE t ADD COLUMN c INT"),
    ("BACKWARD", "ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 5"),
    ("BACKWARD", "ALTER TABLE t DROP COLUMN b"),
    ("BACKWARD", "ALTER TABLE t MODIFY COLUMN a BIGINT"),
    ("FULL", "ALTER TABLE t ADD COLUMN c INT"),
    ("FULL", "ALTER TABLE t DROP COLUMN a"),
    ("NONE", "ALTER TABLE t ADD COLUMN c INT NOT NULL"),
    ("NONE", "ALTER TABLE t MODIFY COLUMN a VARCHAR(9)"),
    ("NONE", "ALTER TABLE t DROP COLUMN b"),
]
CHANGED = "CREATE TABLE t (id BIGINT PRIMARY KEY, a INT, b VARCHAR(20) NOT NULL)"


@pytest.mark.parametrize(("level", "ddl", "why"), REFUSED)
def test_what_the_registry_refuses_is_foreseen_and_explained(
    front: Front, tmp_path: Path, registry: RegistryProcess, caplog: pytest.LogCaptureFixture, level: str, ddl: str, why: str
) -> None:
    story = Story(tmp_path, CHANGED, ddl)
    topic = f"refused{REFUSED.index((level, ddl, why))}"
    one = registrar(front)
    one.ids(story.versions[0], topic)
    registry.set_compatibility(level)
    with caplog.at_level(logging.WARNING):
        one.foresee(story.events[0], (story.versions[0], topic), (story.versions[1], topic))
    (warning,) = (r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING)
    for part in (f"{topic}-value", f"compatibility {level}", why, ddl.split(" COLUMN ")[1].split()[0]):
        assert part in warning, warning
    with pytest.raises(SchemaIncompatible) as caught:
        one.ids(story.versions[1], topic)
    error = caught.value
    assert not error.retryable
    for part in ("table app.t", f"subject {topic}-value (compatibility {level})", why, "answers 409: ", "RuleViolationException"):
        assert part in error.message, error.message
    assert "compatibility of" in error.hint
    assert "NONE" in error.hint
    registry.set_compatibility("NONE")
    assert one.ids(story.versions[1], topic)[1] > 0


@pytest.mark.parametrize(("level", "ddl"), TAKEN)
def test_what_the_registry_takes_is_not_warned_of(
    front: Front, tmp_path: Path, registry: RegistryProcess, caplog: pytest.LogCaptureFixture, level: str, ddl: str
) -> None:
    story = Story(tmp_path, CHANGED, ddl)
    topic = f"taken{TAKEN.index((level, ddl))}"
    one = registrar(front)
    one.ids(story.versions[0], topic)
    registry.set_compatibility(level)
    with caplog.at_level(logging.WARNING):
        one.foresee(story.events[0], (story.versions[0], topic), (story.versions[1], topic))
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []
    assert one.ids(story.versions[1], topic)[1] > 0


def test_a_harmless_ddl_asks_the_registry_nothing(front: Front, tmp_path: Path) -> None:
    story = Story(
        tmp_path, CREATE, "ALTER TABLE t ADD COLUMN c INT", "ALTER TABLE t ADD INDEX i (a)", "RENAME TABLE t TO u", "DROP TABLE u"
    )
    one = registrar(front)
    one.ids(story.versions[0], "app_t")
    front.requests.clear()
    sent = [*zip(story.versions, ("app_t", "app_t", "app_t", "app_u"), strict=True), None]
    for event, before, after in zip(story.events, sent, sent[1:], strict=False):
        one.foresee(event, before, after)
    assert front.requests == []


def test_a_registry_that_is_away_when_a_ddl_is_seen_does_not_hold_it_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    story = Story(tmp_path, CREATE, "ALTER TABLE t ADD COLUMN c INT NOT NULL")
    with Front(MemoryRegistry()) as front:
        one = registrar(front)
        one.ids(story.versions[0], "away")
        front.fault = Fault(Reply(503, b"SECRET"))
        front.requests.clear()
        with caplog.at_level(logging.WARNING):
            one.foresee(story.events[0], (story.versions[0], "away"), (story.versions[1], "away"))
        assert len(front.requests) == 1
    (warning,) = (r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING)
    assert "could not be asked" in warning
    assert "SECRET" not in warning


def test_a_registry_that_keeps_its_subjects_to_itself(tmp_path: Path) -> None:
    story = Story(tmp_path, CREATE)
    with Front(MemoryRegistry()) as front:
        one = registrar(front, tmp_path / "schemas.jsonl")
        one.ids(story.versions[0], "topic")
        front.fault = Fault(Reply(403, b'{"error_code": 40301, "message": "denied"}'))
        one.meet()
        front.fault = Fault(Reply(401, b'{"error_code": 40101, "message": "who?"}'))
        with pytest.raises(RegistryError, match="who"):
            one.meet()
        front.fault = Fault()
        with pytest.raises(RegistryUnavailable):
            one.meet()
        front.fault = None
        front.requests.clear()
        one.ids(story.versions[0], "topic")
        assert front.requests == []


def test_a_registry_takes_debeziums_envelopes(front: Front, tmp_path: Path) -> None:
    """At BACKWARD a nullable column more is compatible, and one without a value in old messages is refused and named."""
    envelopes = EncodingOptions(MessageFormat.DEBEZIUM_AVRO, avro=AvroOptions(registry=f"{front.url}?timeout=5s"))
    create = "CREATE TABLE t (id BIGINT PRIMARY KEY, d DECIMAL(10, 2) DEFAULT 1.5, e ENUM('a', 'b') DEFAULT 'b', b VARBINARY(9), f BIT(9))"
    story = Story(tmp_path, create, "ALTER TABLE t ADD COLUMN c DATETIME(6)", "ALTER TABLE t ADD COLUMN n INT NOT NULL")
    one = open_registrar(envelopes)
    ids = [one.ids(version, "dbserver1.app.t") for version in story.versions[:2]]
    assert front.registered == ["dbserver1_app_t-key", "dbserver1_app_t-value", "dbserver1_app_t-value"]
    assert one.ids(story.versions[0], "dbserver1.app.t") == ids[0]
    assert open_registrar(envelopes).ids(story.versions[1], "dbserver1.app.t") == ids[1], "the same text again"
    with pytest.raises(
        SchemaIncompatible, match=r"subject dbserver1_app_t-value \(compatibility BACKWARD\): column `n` .* was added NOT NULL"
    ):
        one.ids(story.versions[2], "dbserver1.app.t")
