"""The storage sink: what it publishes, when, and what is left of attempts that fail."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import TypeVar
from zoneinfo import ZoneInfo

import pytest
from moto.sts.models import sts_backends

from tests.sinks.storage.conftest import Place, local_files
from tests.support.delivery.messages import context, messages_of
from tests.support.delivery.storage_feed import Feed, Line, content, some_lines
from tests.support.golden.ticdc_files import ticdc_files
from tests.support.schema.recorded_schemas import recorded_history
from tests.support.schema.tables import ddl_event, table_version
from tests.support.servers.s3 import make_bucket, objects
from tests.support.simulate.stores import GatedStore
from tidemill.config.uri import SinkUri, parse_sink_uri
from tidemill.errors import ConfigError, SinkError, SinkUnavailable
from tidemill.protocols.options import MessageFormat
from tidemill.sinks.base import BatchContext
from tidemill.sinks.storage import parts
from tidemill.sinks.storage.driver import StorageDriverSink
from tidemill.sinks.storage.open import store_of
from tidemill.sinks.storage.paths import RESERVED
from tidemill.sinks.storage.store import Store
from tidemill.sinks.storage.task import StorageTaskSink
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.tso import compose

CSV, CANAL_JSON = MessageFormat.CSV, MessageFormat.CANAL_JSON


def lines_of(data: bytes, protocol: MessageFormat) -> list[Line]:
    """The lines of one of TiCDC's files as messages, with their commit_ts."""
    found = []
    for line in data.splitlines(keepends=True):
        if protocol is CSV:
            found.append((int(line.split(b",")[3]), line))
        else:
            found.append((json.loads(line)["_tidb"]["commitTs"], line.removesuffix(b"\r\n")))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "protocol"),
    [
        ("file", CSV),
        ("file", CANAL_JSON),
        ("s3", CSV),
        pytest.param("s3", CANAL_JSON, marks=pytest.mark.thorough("a bucket gets CSV, a folder both protocols")),
    ],
    indirect=["place"],
)
def test_a_session_with_45_ddls_gives_ticdcs_files(place: Place, protocol: MessageFormat) -> None:
    """Every file of the recorded session: data, index, schema files and the checkpoint. Versions are told by done_ts, as TiCDC's are."""
    golden = {n: d for n, d in ticdc_files(protocol.value).items() if n.startswith("cdc_ddl")}
    history, first, last = recorded_history()
    events = [replace(e, ts=e.done_ts) for e in history.ddl_events(first, last) if e.schema.startswith("cdc_ddl")]
    versions = {(e.schema, e.after.info.name, e.ts): replace(e.after, from_ts=e.ts) for e in events if e.after is not None}
    rows: list[tuple[int, TableVersion, int, Line]] = []
    for name, data in golden.items():
        if "/CDC0" in name:
            schema, table, number, *rest = name.split("/")
            version = versions[schema, table, int(number)]
            partition = version.physical_ids.index(int(rest[0])) if len(rest) > 1 else 0
            rows += [(line[0], version, partition, line) for line in lines_of(data, protocol)]
    feed = Feed(place.uri("date-separator=none", protocol))
    at = first
    for number, (ts, ddls) in enumerate(groupby(events, key=lambda event: event.ts)):
        inside = sorted((row for row in rows if at < row[0] <= ts), key=lambda row: row[0])
        feed.batch(context(number, from_ts=at, to_ts=ts), [row[1:] for row in inside], ddls)
        at = ts
    assert not [row for row in rows if row[0] > at]
    assert place.published() == golden | {"metadata": b'{"checkpoint-ts":%d}' % at}
    assert len(golden) > 50


def test_files_are_cut_by_size_and_numbered_on(place: Place) -> None:
    version = table_version("d", "t")
    feed = Feed(place.uri("date-separator=none&file-size=1048576&file-index-digit=6"))
    line = b"x" * 300_000 + b"\r\n"
    feed.batch(context(1, from_ts=100, to_ts=200), [(version, 0, (101 + i, line)) for i in range(9)])
    feed = Feed(feed.uri)
    feed.batch(context(2, from_ts=200, to_ts=300), [(version, 0, (201, b"last\r\n"))])
    files = place.published()
    folder = f"d/t/{max(version.from_ts, 100)}"
    assert {name: len(data) for name, data in files.items() if "CDC0" in name} == {
        f"{folder}/CDC000001.csv": 4 * len(line),
        f"{folder}/CDC000002.csv": 4 * len(line),
        f"{folder}/CDC000003.csv": len(line),
        f"{folder}/CDC000004.csv": len(b"last\r\n"),
    }
    assert files[f"{folder}/meta/CDC.index"] == b"CDC000004.csv\n"
    assert files["metadata"] == b'{"checkpoint-ts":300}'


def test_rows_go_by_the_date_of_their_commit_in_the_changefeeds_zone(place: Place) -> None:
    """Four commits around midnight in Shanghai, in one batch."""
    version = table_version("d", "t")
    zone = ZoneInfo("Asia/Shanghai")
    midnight = datetime(2026, 3, 1, tzinfo=zone)
    times = [ts_of(midnight + timedelta(seconds=s)) for s in (-7200, -1, 0, 1)]
    feed = Feed(place.uri())
    ctx = replace(context(1, from_ts=times[0] - 1, to_ts=times[-1]), zone=zone)
    feed.batch(ctx, [(version, 0, (ts, b"%d\r\n" % i)) for i, ts in enumerate(times)])
    found = {name.split("/")[-2]: data for name, data in place.published().items() if "CDC0" in name}
    assert found == {"2026-02-28": b"0\r\n1\r\n", "2026-03-01": b"2\r\n3\r\n"}


@pytest.mark.parametrize(("separator", "date"), [("none", ""), ("year", "/2026"), ("month", "/2026-02"), ("day", "/2026-02-28")])
def test_date_separators(tmp_path: Path, separator: str, date: str) -> None:
    place = Place(f"file://{tmp_path}/o", lambda: local_files(tmp_path / "o"))
    version = table_version("d", "t")
    ts = ts_of(datetime(2026, 2, 28, 23, 59, tzinfo=UTC))
    Feed(place.uri(f"date-separator={separator}")).batch(context(1, from_ts=ts - 1, to_ts=ts), [(version, 0, (ts, b"1\r\n"))])
    assert {name.rpartition("/")[0] for name in place.published() if "CDC0" in name} == {f"d/t/{ts - 1}{date}"}


def ts_of(moment: datetime) -> int:
    return compose(int(moment.timestamp() * 1000))


class Stop(Exception):
    """A kill, as far as the killed can tell: nothing runs after it."""


_READS = ("read", "list")
T = TypeVar("T")


def dying_store(uri: SinkUri, left: int) -> Store:
    """A store that stops the process before its n-th change."""
    remaining = iter(range(left))

    def gate(effect: str, act: Callable[[], T]) -> T:
        if effect.split()[0] not in _READS and next(remaining, None) is None:
            raise Stop
        return act()

    return GatedStore(store_of(uri), gate)


def two_batches(version: TableVersion, other: TableVersion) -> Iterator[tuple[BatchContext, list[tuple[TableVersion, int, Line]]]]:
    yield context(1, from_ts=100, to_ts=200), some_lines(100, 3, version) + some_lines(110, 3, other)
    yield context(2, from_ts=200, to_ts=300), some_lines(200, 2, version)


@pytest.mark.slow
def test_killed_at_any_step_nothing_is_lost_or_doubled(place: Place) -> None:
    """The driver is killed before its n-th change, for every n; another one goes on with the same batch, as Spark's offset log has it."""
    version, other = table_version("d", "t"), table_version("d", "u", table_id=71)
    expected = sorted({ts for _, lines in two_batches(version, other) for _, _, (ts, _) in lines})
    steps, stride = 0, 1 if place.address.startswith("file") else 11  # S3 takes its time
    while True:
        uri = place.uri("date-separator=none")
        uri = replace(uri, path=f"{uri.path}/{steps}" if uri.path else str(steps))
        feed, epoch, killed = Feed(uri, store=dying_store(uri, steps)), 1, False
        for ctx, lines in two_batches(version, other):
            while True:
                try:
                    feed.batch(replace(ctx, epoch=epoch), lines)
                    break
                except Stop:
                    killed = True
                    epoch += 1
                    feed = Feed(uri)
        files = {n.removeprefix(f"{steps}/"): d for n, d in place.files().items() if n.startswith(f"{steps}/")}
        assert content(files) == expected, f"killed before change {steps}"
        assert files["metadata"] == b'{"checkpoint-ts":300}'
        assert not [name for name in files if name.startswith(".tidemill/tries")]
        assert sorted(n for n in files if "/CDC0" in n) == sorted(
            f"d/{t}/100/CDC{i:020d}.csv" for t, n in (("t", 2), ("u", 1)) for i in range(1, n + 1)
        )
        if not killed:
            break
        steps += stride
    assert steps > 12


def test_a_driver_that_another_one_has_replaced_leaves_the_parts_of_that_one(place: Place) -> None:
    store = store_of(place.uri())
    for epoch in (1, 2, 3):
        parts.begin(store, context(5 - epoch, epoch=epoch), 0)
    parts.drop_old(store, 2)
    assert store.folders(parts.TRIES) == ["2-3"]
    assert parts.begun(store, context(2, epoch=3)) == 0
    assert store.folders("nothing/here") == []


def test_a_batch_that_was_published_is_not_written_again(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """The crash came after the batch and before the changefeed's own checkpoint; the batch is cut otherwise the second time."""
    version = table_version("d", "t")
    uri = place.uri("date-separator=none")
    Feed(uri).batch(context(1, from_ts=100, to_ts=200), some_lines(100, 5, version))
    before = place.published()
    feed = Feed(uri)
    feed.batch(context(1, epoch=2, from_ts=100, to_ts=150), some_lines(100, 5, version))
    assert place.published() == before
    assert "already" in caplog.text
    feed.batch(context(2, epoch=3, from_ts=150, to_ts=300), [*some_lines(150, 2, version), *some_lines(250, 2, version)])
    assert content(place.published()) == [*range(101, 106), 251, 252], "of (150, 200] nothing came that is not there"
    assert place.published()["metadata"] == b'{"checkpoint-ts":300}'


def test_a_failed_try_leaves_nothing_and_a_late_task_does_no_harm(place: Place) -> None:
    version = table_version("d", "t")
    uri = place.uri("date-separator=none")
    feed, late = Feed(uri), StorageTaskSink(uri)
    first = context(1, epoch=1, from_ts=100, to_ts=200)
    feed.driver.begin_batch(first)
    feed.rows(first, some_lines(100, 2, version))
    late.begin(replace(first, item=1))
    feed.driver.discard(first)
    assert place.published() == {}
    with pytest.raises(SinkUnavailable, match="is over"):
        StorageTaskSink(uri).begin(first)
    feed.batch(context(1, epoch=2, from_ts=100, to_ts=200), some_lines(100, 2, version))
    try:
        messages = messages_of([(0, None, b"999\r\n")])
        late.deliver(messages, [(feed.driver.place(version), 0)])
        late.flush()
    except SinkError:
        late.abandon()
    feed.batch(context(2, epoch=3, from_ts=200, to_ts=300), some_lines(200, 1, version))
    assert content(place.published()) == [101, 102, 201]


def test_a_batch_is_not_published_while_a_listing_lacks_a_task(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of NFS may be listed as it was some seconds ago."""
    feed, ctx = Feed(place.uri("date-separator=none")), context(1, from_ts=100, to_ts=200)
    version = table_version("d", "t")
    feed.driver.begin_batch(ctx)
    for item in range(2):
        feed.rows(replace(ctx, item=item), some_lines(100 + item, 1, version))
    store = feed.driver._store
    names = store.names
    with monkeypatch.context() as patch:
        patch.setattr(store, "names", lambda folder: [name for name in names(folder) if name != "1.0.json"])
        with pytest.raises(SinkUnavailable, match="has 1 of 2 messages"):
            feed.driver.finish_batch(replace(ctx, acked=2))
    assert "metadata" not in place.published()
    feed.driver.finish_batch(replace(ctx, acked=2))
    assert content(place.published()) == [101, 102]


def test_messages_at_or_below_what_is_published_count_as_listed(place: Place) -> None:
    uri, version = place.uri("date-separator=none"), table_version("d", "t")
    Feed(uri).batch(context(1, from_ts=100, to_ts=200), some_lines(100, 2, version))
    feed, again = Feed(uri), context(1, epoch=2, from_ts=100, to_ts=300)
    feed.driver.begin_batch(again)
    feed.rows(again, some_lines(100, 2, version))
    feed.driver.finish_batch(replace(again, acked=2))
    assert content(place.published()) == [101, 102]


def test_a_part_whose_first_write_fails_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(path: Path, *texts: memoryview | bytes, fresh: bool) -> None:
        path.write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    store = store_of(parse_sink_uri(f"file://{tmp_path}?protocol=csv"))
    ctx = context(1, from_ts=100, to_ts=200)
    parts.begin(store, ctx, 100)
    writer = parts.PartFiles(store, 1 << 20)
    writer.begin(ctx)
    monkeypatch.setattr("tidemill.sinks.storage.parts.append_to", fill)
    with pytest.raises(SinkUnavailable, match="No space left"):
        writer.append(("t", 0), "", b"whole")
    assert list(tmp_path.rglob("*.part"))
    writer.abandon()
    assert not list(tmp_path.rglob("*.part"))


def test_rows_after_a_ddl_that_changes_no_column_go_on_under_its_version(place: Place) -> None:
    """As TiCDC has it, also after a restart: the newest schema file with the same columns counts."""
    version = table_version("d", "t")
    uri = place.uri("date-separator=none")
    feed = Feed(uri)
    feed.batch(context(1, from_ts=100, to_ts=200), some_lines(100, 1, version), [ddl_event(version, 200)])
    feed.batch(context(2, from_ts=200, to_ts=300), some_lines(200, 1, version))
    Feed(uri).batch(context(3, from_ts=300, to_ts=400), some_lines(300, 1, version))
    folders = {name.split("/")[2]: data for name, data in sorted(place.published().items()) if "/CDC0" in name}
    assert list(folders) == ["100", "200"]
    assert content(place.published()) == [101, 201, 301]


def test_rows_after_ddls_that_are_left_out(place: Place) -> None:
    """As TiCDC has it: under the newest schema file with the same columns, or under one of their own where no columns are like theirs."""
    one = table_version("d", "t")
    more = replace(one.info, columns=(*one.info.columns, replace(one.info.columns[-1], id=9, name="more", offset=9)))
    two, three = replace(one, info=more, from_ts=200), replace(one, from_ts=300)
    feed = Feed(place.uri("date-separator=none"))
    for number, version in enumerate((one, two, three), 1):
        feed.batch(context(number, from_ts=100 * number, to_ts=100 * number + 100), some_lines(100 * number, 1, version))
    found = [name for name in sorted(place.published()) if "/CDC0" in name or "schema_" in name]
    assert [re.sub(r"(_[0-9]{10})?\.(json|csv)", "", name) for name in found] == [
        "d/t/100/CDC00000000000000000001",
        "d/t/100/CDC00000000000000000002",
        "d/t/200/CDC00000000000000000001",
        "d/t/meta/schema_100",
        "d/t/meta/schema_200",
    ]
    assert place.published()[found[1]].startswith(some_lines(300, 1, three)[0][2][1])


def test_a_folder_holds_one_protocol(place: Place) -> None:
    version = table_version("d", "t")
    uri = place.uri("date-separator=none")
    other = parse_sink_uri(uri.text.replace("protocol=csv", "protocol=canal-json&enable-tidb-extension=true"))
    assert other.protocol is CANAL_JSON
    Feed(uri).batch(context(1, from_ts=100, to_ts=200), some_lines(100, 1, version))
    before = place.published()
    for fresh in (False, True):
        with pytest.raises(ConfigError, match="holds what was delivered as csv; this is canal-json"):
            Feed(other, fresh=fresh).batch(context(1, from_ts=100, to_ts=200), some_lines(100, 1, version))
    assert place.published() == before


def test_table_ids_as_paths(place: Place) -> None:
    version = table_version("d", "t")
    feed = Feed(place.uri("date-separator=none&use-table-id-as-path=true&output-column-id=true"))
    feed.batch(context(1, from_ts=100, to_ts=200), some_lines(100, 1, version), [ddl_event(version, 200)])
    names = sorted(place.published())
    folder = str(version.table_id)
    assert [re.sub(r"_[0-9]{10}\.json", "", name) for name in names] == [
        f"{folder}/100/CDC00000000000000000001.csv",
        f"{folder}/100/meta/CDC.index",
        f"{folder}/meta/schema_100",
        f"{folder}/meta/schema_200",
        "metadata",
    ]
    assert b'"ColumnId": "1"' in place.published()[names[2]]


def test_a_folder_has_one_owner_and_replay_empties_its_own(place: Place) -> None:
    version = table_version("d", "t")
    uri = place.uri("date-separator=none")
    Feed(uri).batch(context(1, from_ts=100, to_ts=200, feed="one"), some_lines(100, 5, version))
    with pytest.raises(ConfigError, match="belongs to changefeed 'one'"):
        Feed(uri).batch(context(1, from_ts=100, to_ts=200, feed="two"), some_lines(100, 5, version))
    Feed(uri, fresh=True).batch(context(1, from_ts=50, to_ts=120, feed="one"), some_lines(50, 2, version))
    assert content(place.published()) == [51, 52]
    assert place.published()["metadata"] == b'{"checkpoint-ts":120}'


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a\0b"])
def test_names_that_are_no_folders_are_refused(tmp_path: Path, name: str) -> None:
    place = Place(f"file://{tmp_path}/o", dict)
    version = table_version(name, "t")
    with pytest.raises(SinkError, match="cannot be a folder"):
        Feed(place.uri()).driver.place(version)
    with pytest.raises(SinkError, match="cannot be a folder"):
        Feed(place.uri()).driver.ddl(ddl_event(version, 5), "")
    assert Feed(place.uri("use-table-id-as-path=true")).driver.place(version)


@pytest.mark.parametrize("schema", ["metadata", ".tidemill"])
@pytest.mark.parametrize("root", ["file:///o", "s3://b/o"])
def test_names_of_the_sinks_own_files_are_no_schemas(tmp_path: Path, root: str, schema: str) -> None:
    """With rows or with DDLs: before anything is written beside the checkpoint."""
    place = Place(root.replace("file:///", f"file://{tmp_path}/"), dict)
    version = table_version(schema, "t")
    query = "access-key=a&secret-access-key=b&region=x&endpoint=http://127.0.0.1:1&" if root.startswith("s3") else ""
    with pytest.raises(SinkError, match=f"schema called '{re.escape(schema)}' cannot be a folder") as refused:
        StorageDriverSink(place.uri(query), fresh=False).place(version)
    assert not refused.value.retryable
    with pytest.raises(SinkError, match="cannot be a folder"):
        StorageDriverSink(place.uri(query), fresh=False).ddl(ddl_event(version, 5), "")
    assert StorageDriverSink(place.uri(query), fresh=False).place(table_version("d", schema))
    assert StorageDriverSink(place.uri(query + "use-table-id-as-path=true"), fresh=False).place(version)


def test_the_root_holds_reserved_names_alone(place: Place) -> None:
    """All that the sink puts beside the schemas' folders is refused as a schema."""
    Feed(place.uri()).batch(context(1, from_ts=100, to_ts=200), some_lines(100, 1, table_version("d", "t")))
    assert {name.partition("/")[0] for name in place.files()} - {"d"} <= RESERVED


def test_an_index_that_names_no_file_is_told(place: Place) -> None:
    version = table_version("d", "t")
    uri = place.uri("date-separator=none")
    feed = Feed(uri)
    feed.batch(context(1, from_ts=100, to_ts=200), some_lines(100, 1, version))
    feed.driver._store.stage("d/t/100/meta/CDC.index", b"what?\n")
    with pytest.raises(SinkError, match=r"meta/CDC.index does not name a data file: .what") as caught:
        Feed(uri).batch(context(2, from_ts=200, to_ts=300), some_lines(200, 1, version))
    assert not caught.value.retryable


def test_a_role_is_taken_to_write(s3_server: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """By the keys of the environment, which alone may take it; its owner asks for the external id."""
    make_bucket(s3_server, "of-a-role")
    given = {"AWS_ACCESS_KEY_ID": "who", "AWS_SECRET_ACCESS_KEY": "asks", "AWS_ENDPOINT_URL_STS": s3_server}
    for name, value in {**given, "AWS_EC2_METADATA_DISABLED": "true", "OF_THE_ROLE": "zq9"}.items():
        monkeypatch.setenv(name, value)
    taken = sts_backends["123456789012"]["aws"].assumed_roles
    before = len(taken)
    role = "arn:aws:iam::123456789012:role/writer"
    place = Place(
        f"s3://of-a-role/a?endpoint={s3_server}&region=us-east-1&role-arn={role}&external-id-env=OF_THE_ROLE",
        lambda: objects(s3_server, "of-a-role/a"),
    )
    Feed(place.uri()).batch(context(), some_lines(100, 1, table_version("d", "t")))
    assert any(name.startswith("d/t/") for name in place.files())
    assert {(one.role_arn, one.external_id) for one in taken[before:]} == {(role, "zq9")}
    assert "through a role, without conditional requests" in caplog.text


def test_what_s3_refuses(s3_server: str) -> None:
    place = Place(f"s3://nowhere/a?endpoint={s3_server}&access-key=zq7&secret-access-key=zq8secret&region=us-east-1", dict)
    with pytest.raises(SinkError, match="s3://nowhere/a") as caught:
        Feed(place.uri()).batch(context(), some_lines(100, 1, table_version("d", "t")))
    assert "zq" not in str(caught.value)
    assert not caught.value.retryable
    away = Place("s3://b/a?endpoint=http://127.0.0.1:1&access-key=zq7&secret-access-key=zq8secret&region=us-east-1", dict)
    with pytest.raises(SinkUnavailable) as caught:
        StorageDriverSink(away.uri(), fresh=False).ensure_topics({"tidemill"})
    assert "zq" not in str(caught.value)
