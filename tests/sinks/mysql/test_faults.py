"""What the sink does with each error of a server: a proxy between it and a real MariaDB answers statements with errors, or cuts the
connection, at every statement of a transaction."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.delivery.database_sinks import CREATE, LATER, Sink, change, made_of
from tests.support.faults.mysql_proxy import Cut, MysqlProxy, Refused
from tests.support.servers.mariadb import MariaDb
from tidemill.errors import SinkError, SinkUnavailable
from tidemill.kernels.rows.views import RawRecord
from tidemill.records import KIND_DELETE, KIND_INSERT, KIND_UPDATE
from tidemill.sinks.mysql import lanes
from tidemill.sinks.mysql.codes import FATES, HINTS, Fate, fate_of

pytestmark = pytest.mark.slow

PAGE = Path("docs/sinks/mysql.md")


@pytest.fixture
def db(mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch) -> MariaDb:
    monkeypatch.setattr(lanes, "FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(lanes, "LONGEST_WAIT_S", 0.01)
    mariadb.clear()
    mariadb.run(*CREATE)
    return mariadb


class Rig:
    """A sink behind a proxy. `judge` is asked of each packet of a transaction of rows."""

    def __init__(self, db: MariaDb) -> None:
        self.db = db
        self.seen: list[bytes] = []
        self.judge: Callable[[bytes], Refused | Cut | None] = lambda text: None
        self.proxy = MysqlProxy(db.port, self._judge)
        self._of_tasks: set[int] = set()

    def _judge(self, text: bytes, connection: int) -> Refused | Cut | None:
        if text.startswith(b"BEGIN;"):
            self._of_tasks.add(connection)
        if connection not in self._of_tasks or not is_of_rows(text):
            return None
        self.seen.append(text)
        return self.judge(text)

    def once(self, fault: Refused | Cut, at: int = 0) -> None:
        """Let the packet with that number fail, the first time."""
        self.seen.clear()
        self.judge = lambda text: fault if len(self.seen) == at + 1 else None

    def always(self, fault: Refused) -> None:
        """Let every packet fail."""
        self.seen.clear()
        self.judge = lambda text: fault

    def never(self) -> None:
        self.seen.clear()
        self.judge = lambda text: None


def is_of_rows(text: bytes) -> bool:
    """Whether a packet belongs to a transaction of a task: it begins with the fence, writes rows, or ends it."""
    return text.startswith(b"BEGIN;") or b"`s`." in text or text == b"COMMIT"


@pytest.fixture
def rig(db: MariaDb) -> Iterator[Rig]:
    rig = Rig(db)
    with rig.proxy:
        yield rig


def changes(ts: int) -> list[tuple[int, RawRecord]]:
    """What every attempt writes."""
    first = [(KIND_INSERT, 1, 11), (KIND_UPDATE, 2, 22), (KIND_DELETE, 3, 3)]
    return [*(change(*one, ts + 1) for one in first), change(KIND_INSERT, 4, 3, ts + 2)]


BEFORE = "INSERT INTO s.t VALUES (2, 2), (3, 3)"
AFTERWARDS = [(1, 11), (2, 22), (4, 3)]


def rows(db: MariaDb) -> list[tuple[int, int]]:
    return sorted(db.rows("SELECT * FROM s.t"))


def of(fate: Fate) -> list[int]:
    return sorted(code for code, found in FATES.items() if found is fate and code)


def write(sink: Sink, epoch: int = 1, ts: int = LATER) -> None:
    sink.begin(epoch, ts, ts + 10)
    sink.deliver(*changes(ts))
    sink.task.flush()


@pytest.mark.parametrize("code", [*of(Fate.RETRY), *of(Fate.RECONNECT)])
def test_the_transaction_is_tried_again(rig: Rig, code: int) -> None:
    rig.db.run(BEFORE)
    with made_of(rig.proxy) as make:  # type: ignore[arg-type]
        rig.once(Refused(code))
        write(make())
    assert rows(rig.db) == AFTERWARDS
    texts = b";".join(rig.seen)
    assert texts.count(b"REPLACE INTO `s`.`t`") == 1, "the second attempt is in safe mode"


@pytest.mark.parametrize("code", of(Fate.WAIT))
def test_the_batch_is_tried_again_later(rig: Rig, code: int) -> None:
    rig.db.run(BEFORE)
    with made_of(rig.proxy) as make:  # type: ignore[arg-type]
        sink = make()
        rig.always(Refused(code))
        with pytest.raises(SinkUnavailable, match=f"error {code}: injected") as caught:
            write(sink)
        assert caught.value.retryable
        assert len(rig.seen) == 1, "a server that takes nothing is not asked again and again"
        sink.task.abandon()
        rig.never()
        write(sink, 2)
    assert rows(rig.db) == AFTERWARDS


DISK_FULL = [
    (1021, "Disk full (/tmp/#sql); waiting for someone to free some space"),
    (1114, "The table 't' is full"),
    (28, 'Got error 28 "No space left on device"'),
    (1030, 'Got error 28 "No space left on device" from storage engine InnoDB'),
    (1026, "Error writing file './s/t' (Errcode: 28 \"No space left on device\")"),
    (3, "Error writing file '/tmp/ML' (errno: 28 - No space left on device)"),
]


@pytest.mark.parametrize(("code", "text"), DISK_FULL)
def test_a_full_disk_is_waited_for(rig: Rig, code: int, text: str) -> None:
    with made_of(rig.proxy) as make:  # type: ignore[arg-type]
        rig.always(Refused(code, text))
        with pytest.raises(SinkUnavailable, match=re.escape(text)):
            write(make())
    assert fate_of(1030, 'Got error 127 "Record is crashed" from storage engine') is Fate.FAIL


@pytest.mark.parametrize("code", [*sorted(HINTS.keys() - FATES.keys()), 1048, 1264, 1366, 1452, 1690, 3140])
def test_all_else_stops_the_changefeed(rig: Rig, code: int) -> None:
    with made_of(rig.proxy) as make:  # type: ignore[arg-type]
        rig.always(Refused(code))
        with pytest.raises(SinkError, match=f"error {code}: injected") as caught:
            write(make())
        assert not caught.value.retryable
        assert len(rig.seen) == 1
        assert not caught.value.hint or HINTS[code] in caught.value.hint
    assert rows(rig.db) == []


@pytest.mark.parametrize("parameters", ["", "batch-dml-enable=false&multi-stmt-enable=false"])
@pytest.mark.parametrize("cut", Cut)
def test_a_connection_that_is_lost_in_any_statement(rig: Rig, parameters: str, cut: Cut) -> None:
    """Also at COMMIT, when nobody knows whether it was done."""
    with made_of(rig.proxy) as make:  # type: ignore[arg-type]
        sink = make(parameters)
        rig.db.run(BEFORE)
        write(sink)
        count = len(rig.seen)
        assert count == (7 if parameters else 2)
        for at in range(count):
            rig.db.run("DELETE FROM s.t", BEFORE)
            rig.once(cut, at)
            write(sink, at + 2, LATER + 100 * (at + 1))
            assert rows(rig.db) == AFTERWARDS, (at, rig.seen)
            assert len(rig.seen) > at + 1, "it was tried again"


def test_a_transaction_that_never_comes_through_is_left_to_the_batch(rig: Rig) -> None:
    with made_of(rig.proxy) as make:  # type: ignore[arg-type]
        rig.always(Refused(1213))
        with pytest.raises(SinkUnavailable, match="1213"):
            write(make())
    assert len(rig.seen) == lanes.TRIES


@pytest.mark.parametrize("code", of(Fate.SPLIT))
def test_what_is_too_large_for_a_server_is_split(rig: Rig, code: int) -> None:
    """A limit that nobody told, of a proxy perhaps."""

    def judge(text: bytes) -> Refused | None:
        return Refused(code) if len(text) > 5_000 else None

    rig.judge = judge
    with made_of(rig.proxy) as make:  # type: ignore[arg-type]
        sink = make("max-txn-row=2000")
        sink.begin(1)
        sink.deliver(*(change(KIND_INSERT, n, n, LATER + 1) for n in range(2_000)))
        sink.task.flush()
        assert max(map(len, rig.seen)) > 5_000
        assert len(rows(rig.db)) == 2_000
        rig.seen.clear()
        sink.begin(2, LATER + 10, LATER + 20)
        sink.deliver(*(change(KIND_DELETE, n, n, LATER + 11) for n in range(2_000)))
        sink.task.flush()
        assert max(map(len, rig.seen)) <= 5_000, "it is known from now on"
    assert rows(rig.db) == []


def test_a_row_that_no_split_makes_small_enough_stops_the_changefeed(rig: Rig) -> None:
    with made_of(rig.proxy) as make:  # type: ignore[arg-type]
        rig.always(Refused(1153))
        with pytest.raises(SinkError, match=r"(?s)1153.*Raise max_allowed_packet") as caught:
            write(make())
    assert not caught.value.retryable


def test_statements_stay_below_a_small_max_allowed_packet(db: MariaDb) -> None:
    """Of many rows, whatever the server takes: a statement of 2,000 rows was refused as one row that is too large."""
    (most,) = db.rows("SELECT @@global.max_allowed_packet")[0]
    db.run("SET GLOBAL max_allowed_packet = 4096")
    try:
        with made_of(db) as make:
            sink = make("max-txn-row=2000")
            for epoch, kind in enumerate((KIND_INSERT, KIND_UPDATE, KIND_DELETE), 1):
                sink.begin(epoch, LATER + 10 * epoch, LATER + 10 * epoch + 10)
                sink.deliver(*(change(kind, n, n + 10_000, LATER + 10 * epoch + 1) for n in range(2_000)))
                sink.task.flush()
                assert len(rows(db)) == (0 if kind == KIND_DELETE else 2_000)
    finally:
        db.run(f"SET GLOBAL max_allowed_packet = {most}")


@pytest.mark.parametrize(
    ("statement", "ddl"),
    [
        ("DROP TABLE s.t", r"CREATE TABLE `s`\.`t` \(\n  `c1` bigint.*`c2` bigint"),
        ("DROP DATABASE s", r"CREATE TABLE `s`\.`t` \("),
        ("ALTER TABLE s.t DROP COLUMN c2", r"ALTER TABLE `s`\.`t` ADD COLUMN `c2` bigint"),
    ],
)
def test_what_is_missing_is_named_with_the_ddl_that_makes_it(db: MariaDb, statement: str, ddl: str) -> None:
    db.run(statement)
    with made_of(db) as make, pytest.raises(SinkError, match=f"(?s)changefeed resume.*{ddl}|--create-tables.*{ddl}") as caught:
        write(make())
    assert not caught.value.retryable


def test_the_page_lists_every_code() -> None:
    listed = {
        int(number)
        for line in PAGE.read_text().split("## Errors")[1].split("\n## ")[0].splitlines()
        for number in re.findall(r"\d{3,4}", line)
    }
    assert {code for code in FATES if code} - listed == set()
