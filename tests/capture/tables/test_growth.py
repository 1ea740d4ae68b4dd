"""A log gets more partitions while it is captured: nothing is lost or duplicated, and readers keep each table's order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.changelog.conftest import META
from tests.support.capture.captures import compare, config, log_changes, running, until
from tests.support.capture.loops import run
from tests.support.capture.progress import id_of
from tests.support.changelog.logs import START, batch_of, build_log, put
from tests.support.changelog.memory_storage import Bucket, MemoryStorage
from tidemill import tso
from tidemill.capture import growth
from tidemill.capture.capture import Capture
from tidemill.capture.growth import Change, Settled, change_layout
from tidemill.changelog import log_format, retention
from tidemill.changelog.log_format import Affinity, Layout, LogIdentity
from tidemill.changelog.options import LogOptions
from tidemill.changelog.reader import LogReader
from tidemill.changelog.spread import SplitTable
from tidemill.changelog.storage.open import LocalStorage
from tidemill.changelog.verify import verify
from tidemill.changelog.writer import LogWriter
from tidemill.cli.changelog import log as log_commands
from tidemill.cli.main import main
from tidemill.errors import LogError
from tidemill.playground.server import Playground
from tidemill.tidb.schema.tracking.history import SchemaHistory


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "LOOK_EVERY", 0.1)
    monkeypatch.setattr(growth, "AHEAD_MS", 500)
    monkeypatch.setattr(growth, "REST_S", 0.5)


async def complete(capture: Capture, ts: int) -> None:
    await until(lambda: capture.status.state == "running" and capture.resolved_ts >= ts)


def test_an_identity_knows_its_layouts() -> None:
    plain = LogIdentity("1", START, 2)
    grown = plain.grown(START + 50, 4).grown(START + 90, 5)
    assert grown.layouts == (Layout(START, 2), Layout(START + 50, 4), Layout(START + 90, 5))
    assert [grown.layout_at(START + at).partitions for at in (0, 49, 50, 89, 90)] == [2, 2, 4, 4, 5]
    assert grown.switches(START, START + 90) == [START + 50, START + 90]
    assert grown.switches(START + 50, START + 89) == []
    assert (grown.settled_ts, plain.settled_ts) == (START + 90, START)
    assert LogIdentity.from_json(grown.to_json()) == grown
    assert json.loads(grown.to_json())["format"] == 3, "older versions refuse it by name"
    for wrong in (5, 4, 2000):
        with pytest.raises(LogError, match="never shrinks"):
            grown.grown(START + 99, wrong)
    with pytest.raises(LogError, match="affinity key"):
        LogIdentity("1", START, 2, Affinity.KEY).grown(START + 9, 4)
    with pytest.raises(LogError, match="format 1"):
        LogIdentity("1", START, 2, format=1).grown(START + 9, 4)
    broken = json.loads(grown.to_json()) | {"partitions": 6}
    with pytest.raises(LogError, match="layouts"):
        LogIdentity.from_json(json.dumps(broken))


@pytest.mark.parametrize("remote", [False, True])
def test_new_partitions_are_complete_up_to_where_they_begin(tmp_path: Path, *, remote: bool) -> None:
    """Before anything is written to the new partitions, for readers that knew the log before, and for its next writer."""
    storage = MemoryStorage(Bucket()) if remote else LocalStorage(str(tmp_path / "log"))
    with LogWriter.create(storage, LogIdentity("1", START, 2), snapshot=META) as writer:
        reader = LogReader(storage)
        for p in range(2):
            writer.partition(p).publish(START + 50, [batch_of([put(70 + p, 1, START + 50)])])
        writer.schema.set_head(START + 50)
        assert reader.resolved_ts() == START + 50
        writer.set_identity(writer.identity.grown(START + 50, 4))
        for folder in (writer.schema, *(writer.partition(p) for p in range(2))):
            folder.set_head(START + 70)
    assert reader.resolved_ts_if_above(START + 50) == START + 50, "the new ones are not further"
    assert reader.partitions == 4
    assert reader.heads() == [START + 70, START + 70, START + 50, START + 50]
    assert reader.chain(3, START, START + 50) == []
    with LogWriter.open(storage, partitions=2) as writer:
        assert [writer.partition(p).head for p in range(4)] == [START + 70, START + 70, START + 50, START + 50]
        for p in (2, 3):
            writer.partition(p).publish(START + 80, [batch_of([put(70 + p, 1, START + 60)])])
    assert len(reader.chain(3, START + 10, START + 80)) == 1
    assert [p for p in verify(storage).problems if "schema history" not in p.text] == []
    with pytest.raises(LogError, match="partitions 4, not 3"):
        LogWriter.open(storage, partitions=3)


def test_a_log_whose_folders_have_moved_on_keeps_its_layout(tmp_path: Path) -> None:
    """A head advanced, or was lost in a crash: the settled ts does not hold any more."""
    with LogWriter.create(tmp_path / "log", LogIdentity("1", START, 2), snapshot=META) as writer:
        folders = (writer.schema, *(writer.partition(p) for p in range(2)))
        for folder in folders:
            folder.set_head(START + 9)
        writer.partition(1).set_head(START + 10)
        growth.ask(writer.storage, growth.Request(4))
        growth.change_layout(writer, growth.Settled(START + 9, growth.Change(4)))
        assert LogReader(tmp_path / "log").partitions == 2
        assert growth.requested(writer.storage) == growth.Request(4), "the capture begins again and tries again"
        for folder in folders:
            folder.set_head(START + 11)
        growth.change_layout(writer, growth.Settled(START + 11, growth.Change(4)))
        assert LogReader(tmp_path / "log").partitions == 4
        assert growth.requested(writer.storage) is None


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.thorough("test_split_tables.py has a log of groups that grows"))])
def test_a_log_grows_while_it_is_written(tmp_path: Path, workers: int) -> None:
    """From 2 to 4 partitions, then to 5, under rows and DDLs, in one process and in groups."""

    async def main() -> None:
        async with Playground(51, stores=2, resolved_interval=0.1) as playground:
            execute = playground.execute
            for i in range(8):
                execute(f"create table t{i} (id int primary key, v int)")
            stop, n = asyncio.Event(), 0

            async def write() -> None:
                nonlocal n
                while not stop.is_set():
                    execute(f"insert into t{n % 8} (id, v) values ({n}, {n})")
                    if n % 40 == 39:
                        execute(f"alter table t{n // 40 % 8} add column c{n} int")
                    n += 1
                    await asyncio.sleep(0.01)

            async with running(config(playground, tmp_path / "log", partitions=2, workers=workers)) as capture:
                writing = asyncio.ensure_future(write())
                reader = LogReader(tmp_path / "log")
                for partitions in (4, 5):
                    await complete(capture, playground.cluster.oracle.next())
                    growth.ask(reader.storage, growth.Request(partitions))
                    await until(lambda: reader.identity_now().partitions == partitions)  # noqa: B023
                    ts = playground.cluster.oracle.next()
                    await complete(capture, ts)
                stop.set()
                await writing
                await complete(capture, playground.cluster.oracle.next())
                assert not reader.storage.read(log_format.GROWTH)
                assert len(capture.status.heads) == 5
            changes, _ = compare(playground.cluster, tmp_path / "log")
            assert changes >= n
            used = Counter({p: len(rows) for p, rows in log_changes(tmp_path / "log").items()})
            assert used[2] + used[3] + used[4] > 0
            assert verify(tmp_path / "log").problems == []
            async with running(config(playground, tmp_path / "log", partitions=2, workers=workers)) as capture:  # with its old flags
                execute(f"insert into t0 (id, v) values ({n}, 0)")
                await complete(capture, playground.cluster.oracle.next())
            compare(playground.cluster, tmp_path / "log")

    run(main())


@pytest.mark.slow
def test_a_table_that_is_held_up_is_waited_for_and_holds_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Playground(52, resolved_interval=0.1) as playground:
            playground.execute("create table a (id int primary key); create table b (id int primary key); insert into a values (1)")
            key = next(k for k, _ in playground.cluster.mvcc.items(b"t", b"u") if id_of(playground, "a").to_bytes(7, "big") in k)
            async with running(config(playground, tmp_path / "log", partitions=2)) as capture:
                await complete(capture, playground.cluster.oracle.next())
                pending = playground.cluster.prewrite([(key, playground.cluster.mvcc.get(key, 1 << 62))], ttl_ms=3_600_000)
                monkeypatch.setattr(growth, "HOLD_S", 1.0)
                growth.ask(capture.writer.storage, growth.Request(3))
                await until(lambda: "one was held up" in capture.status.growth)
                ts = playground.cluster.oracle.next()
                await until(lambda: capture.writer.schema.head >= ts)
                assert capture.writer.identity.partitions == 2
                monkeypatch.setattr(growth, "CLOSE_MS", 1000)
                await until(lambda: "once all partitions" in capture.status.growth)
                playground.cluster.commit(pending)
                monkeypatch.setattr(growth, "CLOSE_MS", 10_000)
                await until(lambda: capture.status.state == "running" and capture.writer.identity.partitions == 3)
                await complete(capture, playground.cluster.oracle.next())
            compare(playground.cluster, tmp_path / "log")

    run(main())


def test_what_cannot_be_is_refused_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = build_log(tmp_path / "log", [put(70, 1, START + 5)], partitions=2)
    assert ended("log", "grow", str(log), "--partitions", "4") == 1
    assert "format 1 keeps its number of partitions" in capsys.readouterr().err
    with LogWriter.create(tmp_path / "new", LogIdentity("1", START, 2), snapshot=META):
        pass
    grow = ["log", "grow", str(tmp_path / "new"), "--partitions", "4"]
    assert ended(*grow, "--wait", "0") == 0
    assert "not yet" in capsys.readouterr().out
    assert growth.requested(LocalStorage(str(tmp_path / "new"))) == growth.Request(4)
    split = ["log", "split", str(tmp_path / "new"), "--over"]
    assert ended(*split, "3", "--table", "d.t") == 1
    assert "2 partitions: a table cannot be split over 3" in capsys.readouterr().err
    for name in ("", "d", "d.", ".t"):
        assert ended(*split, "2", "--table", name) == 2
        assert "DATABASE.TABLE" in capsys.readouterr().err
    growing = threading.Timer(0.3, _grow, [tmp_path / "new"])
    growing.start()
    assert ended(*grow) == 0, "it asks for what is asked for already"
    assert "has 4 partitions, for rows from" in capsys.readouterr().out
    growing.join()
    assert ended(*grow) == 0
    assert "has 4 partitions already, for rows from" in capsys.readouterr().out


def test_a_log_that_has_so_many_partitions_needs_no_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new_log(tmp_path / "log")
    assert ended("log", "grow", str(tmp_path / "log"), "--partitions", "2") == 0
    assert capsys.readouterr().out == f"{tmp_path / 'log'} has 2 partitions already\n", "it always had: there is no `from`"
    assert not LocalStorage(tmp_path / "log").read(log_format.GROWTH)


def new_log(place: Path) -> LocalStorage:
    with LogWriter.create(place, LogIdentity("1", START, 2), snapshot=META):
        pass
    return LocalStorage(place)


@pytest.mark.parametrize("remote", [False, True])
def test_a_request_that_waits_is_not_replaced(tmp_path: Path, *, remote: bool) -> None:
    storage = MemoryStorage(Bucket()) if remote else LocalStorage(str(tmp_path / "log"))
    first = growth.Request(table="d.t", over=2, layouts=1)
    assert growth.ask(storage, first) == first
    for other in (growth.Request(4), growth.Request(table="d.t", over=3, layouts=1), growth.Request(table="d.u", over=2, layouts=1)):
        with pytest.raises(LogError, match=r"another request for a layout waits for the capture: d.t over 2 partitions") as caught:
            growth.ask(storage, other)
        assert "log cancel" in caught.value.hint
    assert growth.ask(storage, growth.Request(table="D.T", over=2, layouts=5)) == first == growth.requested(storage)
    growth.refuse(storage, growth.Request(4), LogError("somebody else's"))
    assert growth.requested(storage) == first
    growth.refuse(storage, first, LogError("too few regions", hint="SPLIT TABLE"))
    assert growth.requested(storage) is None
    refused = growth.refusal(storage)
    assert refused is not None
    assert (refused.message, refused.hint) == ("too few regions", "SPLIT TABLE")
    assert growth.ask(storage, growth.Request(4)) == growth.Request(4), "what was refused does not wait"
    assert growth.cancel(storage) == growth.Request(4)
    assert growth.cancel(storage) is None


@pytest.mark.parametrize("remote", [False, True])
def test_of_two_who_ask_at_once_one_is_refused(tmp_path: Path, *, remote: bool) -> None:
    bucket, told, done = Bucket(), threading.Barrier(8), []

    def ask(n: int) -> None:
        storage = MemoryStorage(bucket) if remote else LocalStorage(str(tmp_path / "log"))
        told.wait()
        with contextlib.suppress(LogError):
            done.append(growth.ask(storage, growth.Request(10 + n)))

    threads = [threading.Thread(target=ask, args=[n]) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [growth.requested(MemoryStorage(bucket) if remote else LocalStorage(str(tmp_path / "log")))]


def test_a_command_that_waits_ends_well_only_when_it_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = new_log(tmp_path / "log")
    grow = ["log", "grow", str(tmp_path / "log"), "--partitions", "4", "--wait"]

    def meanwhile(what: Callable[[], object]) -> str:
        """It happens between the command's first look and its second one."""
        left = [what]
        with monkeypatch.context() as patch:
            patch.setattr(log_commands, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: left.pop()()))
            assert ended(*grow, "60") == 1
        return capsys.readouterr().err

    assert ended(*grow, "1") == 1
    said = capsys.readouterr().err
    assert "TM:ErrUpstreamUnavailable" in said
    assert "the request waits: to 4 partitions" in said
    assert growth.requested(storage) == growth.Request(4), "it stays"
    assert "somebody took it back" in meanwhile(lambda: ended("log", "cancel", str(tmp_path / "log")))
    other = json.dumps(growth.Request(table="d.t", over=2).to_dict()).encode()
    assert "another one is there: d.t over 2 partitions" in meanwhile(lambda: storage.replace(log_format.GROWTH, other))
    assert ended("log", "cancel", str(tmp_path / "log")) == 0
    assert "the request is taken back: d.t over 2 partitions" in capsys.readouterr().out
    said = meanwhile(lambda: growth.refuse(storage, growth.Request(4), LogError("no way", hint="Do that.")))
    assert "keeps its layout: no way\n  Do that." in said
    assert storage.read(log_format.GROWTH) is None
    assert ended("log", "cancel", str(tmp_path / "log")) == 0
    assert "nothing waits" in capsys.readouterr().out


def test_a_new_layout_leaves_out_tables_that_are_gone(tmp_path: Path) -> None:
    """Split tables go by their ids: TRUNCATE gives the name to another one, DROP and CREATE too; RENAME lets an id have another name."""

    def split(table_id: int, name: str) -> SplitTable:
        return SplitTable(table_id, name, (b"k",), (0, 1))

    log = (
        LogIdentity("1", START, 2).spread(START + 1, split(7, "d.a")).spread(START + 2, split(8, "d.b")).spread(START + 3, split(9, "d.a"))
    )
    found = log.layout.split_named("D.A")
    assert found is not None
    assert found.table_id == 9, "the newest"
    names = {8: "d.c", 9: "d.a"}
    grown = growth.Change(4, names=names).of(log, START + 4)
    assert [(one.table_id, one.name) for one in grown.layout.split_tables] == [(8, "d.c"), (9, "d.a")]
    assert grown.layouts[:-1] == log.layouts, "rows below were spread as they were"
    apart = growth.Change(split=split(10, "d.n"), names=names).of(log, START + 4)
    assert [one.table_id for one in apart.layout.split_tables] == [8, 9, 10]
    together = growth.Change(gathered=9, names=names).of(log, START + 4)
    assert [one.table_id for one in together.layout.split_tables] == [8]
    assert growth.Request(table="d.a", over=1, layouts=len(log.layouts)).is_done(together)
    assert LogIdentity.from_json(together.to_json()) == together
    assert growth.Change(4, names={}).of(log, START + 4).layout.split_tables == ()


def ended(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    return int(end.value.code or 0)


def _grow(log: Any) -> None:
    with LogWriter.open(log) as writer:
        for folder in (writer.schema, *(writer.partition(p) for p in writer.partitions)):
            folder.set_head(START + 9)
        growth.change_layout(writer, growth.Settled(START + 9, growth.Change(4)))


@pytest.mark.parametrize(
    "left",
    [
        b"garbage", b"[]", b'{"partitions": 1e999}', b'{"partitions": 4.7}', b"[" * 100_000,
        b'{"split": {"table": "d.t", "over": -2, "layouts": 0}}', b'{"split": {"table": "d.t", "over": 0, "layouts": 0}}',
        b'{"split": {"table": "", "over": 2, "layouts": 0}}', b'{"split": 3}',
    ],
)  # fmt: skip
def test_a_request_that_says_nothing_is_removed(tmp_path: Path, left: bytes) -> None:
    with LogWriter.create(tmp_path / "log", LogIdentity("1", START, 2), snapshot=META) as writer:
        writer.storage.replace(growth.GROWTH, left)
        assert growth.refusal(writer.storage) is None
        assert growth.requested(writer.storage) is None
        assert writer.storage.read(growth.GROWTH) is None


def test_a_request_that_was_left_while_another_was_done_waits_for_its_turn(tmp_path: Path) -> None:
    with LogWriter.create(tmp_path / "log", LogIdentity("1", START, 2), snapshot=META) as writer:
        for folder in (writer.schema, *(writer.partition(p) for p in range(2))):
            folder.set_head(START + 9)
        second = growth.Request(table="d.t", over=2, layouts=0)
        growth.ask(writer.storage, second)
        growth.change_layout(writer, growth.Settled(START + 9, growth.Change(4)))
        assert LogReader(tmp_path / "log").partitions == 4
        assert not second.is_done(writer.identity)
        assert growth.requested(writer.storage) == second


def test_a_layout_is_not_undone_by_maintenance_that_still_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread of maintenance goes on after the capture's tasks have ended, and writes log.json too."""
    storage, hour = LocalStorage(str(tmp_path / "log"), sync=False), tso.compose(3_600_000)
    end = START + 30 * hour
    with LogWriter.create(storage, LogIdentity("1", START, 2), snapshot=META) as writer:
        for at in range(START + hour, end + 1, hour):
            for folder in (writer.schema, writer.partition(0), writer.partition(1)):
                folder.publish(at, [])
    with LogWriter.open(storage, options=LogOptions(low_water_bytes=0, retention_ms=24 * 3_600_000)) as writer:
        layout = threading.Thread(target=change_layout, args=(writer, Settled(end, Change(4))))
        load = retention.load_history

        def meanwhile(*args: Any, **more: Any) -> SchemaHistory:
            layout.start()
            layout.join(0.2)  # it waits for the maintenance; one that does not is done by now
            return load(*args, **more)

        monkeypatch.setattr(retention, "load_history", meanwhile)
        assert writer.maintain(end).start_ts == START + 6 * hour
        layout.join()
        assert (writer.identity.partitions, writer.identity.start_ts) == (4, START + 6 * hour)
        assert LogReader(storage).identity == writer.identity
