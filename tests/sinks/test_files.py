"""file://: one file a partition and batch, in place at once, replaced when a batch is repeated."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.delivery.messages import context, messages_of
from tidemill.config.uri import parse_sink_uri
from tidemill.errors import ConfigError, SinkError, SinkUnavailable
from tidemill.sinks.base import DriverSink
from tidemill.sinks.files import FilesTaskSink, file_name, read_messages
from tidemill.sinks.spec import open_driver_sink

TARGETS = [("t", 0), ("t", 1), ("u.v", 0)]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"file://{tmp_path}/out?protocol=open-protocol"


def folder(uri: str) -> Path:
    return Path(parse_sink_uri(uri).path)


def run_batch(
    uri: str,
    driver: DriverSink,
    number: int,
    rows: list[tuple[int, bytes, bytes | None]],
    *,
    epoch: int = 1,
    ddl: bytes = b"",
    resolved: bool = True,
) -> None:
    """Batch `number` covers (100 n, 100 n + 100]; each row is its own item."""
    interval = {"batch": number, "epoch": epoch, "from_ts": 100 * number, "to_ts": 100 * number + 100}
    driver.begin_batch(context(**interval))
    sink = FilesTaskSink(parse_sink_uri(uri))
    for item, row in enumerate(rows):
        sink.begin(context(**interval, item=item))
        sink.deliver(messages_of([row]), TARGETS)
        assert sink.flush() == 1
    if ddl:
        driver.send("t", ddl, b"", range(2))
    if resolved:
        driver.send_resolved(TARGETS, b"resolved", b"%d" % number)
    driver.finish_batch(context(**interval))


def contents(uri: str) -> dict[str, list[bytes | None]]:
    """Keys by file."""
    found = sorted(folder(uri).glob("*/*/*.messages"))
    return {str(p.relative_to(folder(uri))): [key for key, _ in read_messages(p)] for p in found}


def test_files_of_a_batch_hold_rows_then_ddl_then_resolved(uri: str) -> None:
    driver = open_driver_sink(uri)
    run_batch(uri, driver, 1, [(1, b"a", b"1"), (2, b"b", None), (1, b"c", b"3")], ddl=b"ddl")
    driver.close()
    name = file_name(100, 200)
    assert contents(uri) == {
        f"t/0/{name}": [b"ddl", b"resolved"],
        f"t/1/{name}": [b"a", b"c", b"ddl", b"resolved"],
        f"u.v/0/{name}": [b"b", b"resolved"],
    }
    assert list(read_messages(folder(uri) / "u.v/0" / name)) == [(b"b", None), (b"resolved", b"1")]
    assert json.loads((folder(uri) / "tidemill.json").read_text()) == {
        "format": 1, "changefeed": "feed", "protocol": "open-protocol", "resolved_ts": 200,
    }  # fmt: skip
    assert sorted(p.name for p in folder(uri).iterdir()) == [".tidemill", "t", "tidemill.json", "u.v"], "no parts are left"


def test_a_repeated_batch_replaces_its_files(uri: str) -> None:
    driver = open_driver_sink(uri)
    run_batch(uri, driver, 1, [(0, b"a", b"1")])
    driver.close()
    again = open_driver_sink(uri)
    run_batch(uri, again, 1, [(0, b"a", b"1")], epoch=2)
    run_batch(uri, again, 2, [(0, b"b", b"1")], epoch=3)
    again.close()
    assert contents(uri)[f"t/0/{file_name(100, 200)}"] == [b"a", b"resolved"]
    assert [keys for path, keys in contents(uri).items() if path.startswith("t/0")] == [[b"a", b"resolved"], [b"b", b"resolved"]]


def test_an_idle_feed_keeps_one_file_a_partition(uri: str) -> None:
    driver = open_driver_sink(uri)
    run_batch(uri, driver, 1, [(0, b"a", b"1")])
    for number in range(2, 6):
        run_batch(uri, driver, number, [])
    run_batch(uri, driver, 6, [(0, b"b", b"1")])
    driver.close()
    names = [path.partition("t/0/")[2] for path in contents(uri) if path.startswith("t/0")]
    assert names == [file_name(100, 200), file_name(600, 700)]
    assert contents(uri)[f"t/1/{file_name(600, 700)}"] == [b"resolved"]


def test_nothing_is_visible_before_the_batch_ends_and_nothing_of_a_failed_try(uri: str) -> None:
    driver = open_driver_sink(uri)
    sink = FilesTaskSink(parse_sink_uri(uri))
    driver.begin_batch(context(epoch=1))
    sink.begin(context(epoch=1))
    sink.deliver(messages_of([(0, b"a", b"1")]), TARGETS)
    assert sink.flush() == 1
    assert contents(uri) == {}
    driver.discard(context(epoch=1))
    with pytest.raises(SinkError):
        sink.deliver(messages_of([(0, b"late", b"1")]), TARGETS)
    sink.abandon()
    driver.begin_batch(context(epoch=2))
    driver.send_resolved(TARGETS[:1], b"resolved", b"")
    driver.finish_batch(context(epoch=2))
    assert contents(uri) == {f"t/0/{file_name(100, 200)}": [b"resolved"]}
    driver.close()


def test_left_overs_of_a_crash_are_removed(uri: str) -> None:
    crashed = open_driver_sink(uri)
    crashed.begin_batch(context(batch=7, epoch=3))
    sink = FilesTaskSink(parse_sink_uri(uri))
    sink.begin(context(batch=7, epoch=3))
    sink.deliver(messages_of([(0, b"a", b"1")]), TARGETS)
    driver = open_driver_sink(uri)
    run_batch(uri, driver, 8, [(1, b"b", b"1")], epoch=4)
    assert list((folder(uri) / ".parts").iterdir()) == []
    driver.close()


def test_a_folder_belongs_to_one_changefeed_and_a_replay_empties_it(uri: str) -> None:
    driver = open_driver_sink(uri)
    run_batch(uri, driver, 1, [(0, b"a", b"1")])
    driver.close()
    other = open_driver_sink(uri)
    with pytest.raises(ConfigError, match="belongs to changefeed 'feed', not 'other'"):
        other.begin_batch(context(feed="other"))
    before = contents(uri)
    replay = open_driver_sink(uri, fresh=True)
    with pytest.raises(ConfigError, match="belongs to changefeed 'feed', not 'replay'"):
        replay.begin_batch(context(feed="replay"))
    assert contents(uri) == before
    fresh = open_driver_sink(uri, fresh=True)
    run_batch(uri, fresh, 5, [(0, b"b", b"1")], resolved=False)
    assert contents(uri) == {f"t/0/{file_name(500, 600)}": [b"b"]}
    fresh.close()


def test_a_folder_holds_one_protocol(uri: str, tmp_path: Path) -> None:
    """Also where the other one is written as files of tables."""
    run_batch(uri, open_driver_sink(uri), 1, [(0, b"k", b"v")])
    for protocol, fresh in (("simple", False), ("simple", True), ("csv", True)):
        driver = open_driver_sink(uri.replace("open-protocol", protocol), fresh=fresh)
        with pytest.raises(ConfigError, match=f"holds what was delivered as open-protocol; this is {protocol}"):
            driver.begin_batch(context(batch=2, epoch=1, from_ts=200, to_ts=300))
    assert len(contents(uri)) == 3
    tables = f"file://{tmp_path}/tables?protocol=csv"
    driver = open_driver_sink(tables)
    driver.begin_batch(context(batch=1, epoch=1, from_ts=100, to_ts=200))
    driver.finish_batch(context(batch=1, epoch=1, from_ts=100, to_ts=200))
    with pytest.raises(ConfigError, match="holds what was delivered as csv; this is open-protocol"):
        open_driver_sink(tables.replace("csv", "open-protocol"), fresh=True).begin_batch(context(batch=1, epoch=1, from_ts=1, to_ts=2))


def test_a_driver_that_slept_behind_its_check_of_the_fence_changes_nothing(uri: str) -> None:
    old, new, woken = open_driver_sink(uri), open_driver_sink(uri), list[bool]()

    def check(*, now: bool = False) -> None:
        if not woken:
            woken.append(True)
            run_batch(uri, new, 1, [(0, b"a", b"1")], epoch=2)
            run_batch(uri, new, 2, [(0, b"b", b"2")], epoch=3)

    late = context(1, epoch=1, from_ts=100, to_ts=200)
    old.begin_batch(late)
    old.send_resolved(TARGETS, b"late", b"1")
    with pytest.raises(SinkUnavailable, match="another driver, of epoch 3"):
        old.finish_batch(replace(late, check_fence=check))
    assert json.loads((folder(uri) / "tidemill.json").read_text())["resolved_ts"] == 300
    assert contents(uri)[f"t/0/{file_name(100, 200)}"] == [b"a", b"resolved"]


def test_new_folders_are_synced_up_to_the_first_that_was_there(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[str] = set()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.add(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    run_batch(uri, open_driver_sink(uri), 1, [(0, b"a", b"1")])
    made = [path for path in folder(uri).rglob("*") if path.is_dir() and not path.name.startswith(".")]
    assert {str(path.parent) for path in [*made, folder(uri)]} <= synced


def test_a_cut_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.messages"
    for data in (b"\0\0", b"\0\0\0\1k", b"\0\0\0\1k\0\0\0\5vvv", b"\xff\xff\xff\xfe"):
        path.write_bytes(data)
        with pytest.raises(SinkError, match="cut short"):
            list(read_messages(path))
