"""Replays of small logs against the plain references: every dispatcher, affinity, layout; order, DDLs, errors; the log stays as it was."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.changelog.logs import START, golden_log, golden_span
from tests.support.delivery.deliveries import settings
from tests.support.delivery.feeds import PLAIN, UNIQUE, Delivered, World, expected
from tidemill.changefeed.replay import Delivered as Summary
from tidemill.changefeed.replay import replay
from tidemill.changelog.log_format import IDENTITY, LogIdentity, UpstreamVersion
from tidemill.changelog.reader import LogReader
from tidemill.delivery import plan
from tidemill.delivery.task import chunker
from tidemill.demo.delivered import from_jsonl
from tidemill.errors import LogCorrupt, LogError, MessageTooLarge, SchemaError, StartTsOutOfLog
from tidemill.protocols.open import RowEvent, decode
from tidemill.protocols.open.codes import ColumnType
from tidemill.protocols.open.encode import framed
from tidemill.protocols.options import EncodingOptions
from tidemill.sinks.claim_check import ClaimCheckStorage


def run(log: str, path: Path, **options: object) -> tuple[Summary, Delivered]:
    wanted = {k: options.pop(k) for k in ("start_ts", "target_ts", "parallelism") if k in options}
    summary = replay(log, settings(path, **options), **wanted)  # type: ignore[arg-type]
    return summary, Delivered.read(path)


@pytest.fixture
def tiny_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunker.Chunker.__init__, "__defaults__", (16, 32 << 20))


@pytest.fixture
def no_small_batches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Divide even the smallest batch, and run its items here."""
    monkeypatch.setattr(plan, "SMALL_BYTES", -1)
    from tidemill.changefeed import replay as module
    from tidemill.spark.local import LocalRunner

    def local(*_: object) -> LocalRunner:
        runner = LocalRunner()
        runner.parallelism = 3
        return runner

    monkeypatch.setattr(module, "EitherRunner", local)
    return iter(())


def json_texts(path: Path) -> dict[int, list[str]]:
    """Documents by the commit ts of their row."""
    found: dict[int, list[str]] = {}
    for event in (e for m in from_jsonl(path) for e in decode(m.key or b"", m.value) if isinstance(e, RowEvent)):
        texts = [c.value for c in (*event.after, *event.before) if c.type == ColumnType.JSON and isinstance(c.value, str)]
        found.setdefault(event.ts, []).extend(texts)
    return found


@pytest.mark.slow
def test_documents_are_printed_as_the_clusters_version_prints_them(tmp_path: Path) -> None:
    """Old ones where the log tells no version; from an upgrade on as newer versions do, in batches of their own."""
    log = golden_log(tmp_path / "log")
    start, end = golden_span("types_json")
    run(str(log), tmp_path / "old", start_ts=start, target_ts=end)
    old = json_texts(tmp_path / "old")
    telling = sorted(ts for ts, texts in old.items() if any(re.search(r"[0-9]e\+|-0[,}\]]", text) for text in texts))
    upgraded = telling[0]  # the first is printed in the old way, the others in the new one
    identity = LogIdentity.from_json((log / IDENTITY).read_text())
    identity = identity.with_version(UpstreamVersion(identity.start_ts, "8.5.7")).with_version(UpstreamVersion(upgraded, "9.0.0"))
    (log / IDENTITY).write_text(identity.to_json())
    run(str(log), tmp_path / "new", start_ts=start, target_ts=end)
    new = json_texts(tmp_path / "new")
    assert new.keys() == old.keys()
    assert all(new[ts] == old[ts] for ts in old if ts <= upgraded)
    assert all(new[ts] != old[ts] for ts in telling if ts > upgraded)
    assert len([ts for ts in telling if ts > upgraded]) > 1
    for ts, texts in new.items():
        assert [json.loads(text) for text in texts] == [json.loads(text) for text in old[ts]]


@pytest.mark.parametrize("mode", ["default", "table", "ts", "index-value"])
@pytest.mark.parametrize(("partitions", "affinity"), [(1, "table"), (3, "table"), (4, "key")])
@pytest.mark.usefixtures("tiny_chunks", "no_small_batches")
def test_every_event_comes_once_in_order(tmp_path: Path, mode: str, partitions: int, affinity: str) -> None:
    world = World.make(seed=partitions, huge=90)
    log = world.log(tmp_path / "log", partitions=partitions, segments=3, affinity=affinity)
    summary, got = run(log, tmp_path / "out", partitions=partitions, mode=mode)
    want = expected(world, mode, partitions)
    assert got.events == want
    assert summary.rows == sum(len(events) for tables in want.values() for events in tables.values())
    assert got.resolved == {p: [world.end + 1] for p in range(partitions)}
    assert got.late == 0


def test_messages_hold_what_was_asked_for(tmp_path: Path) -> None:
    world = World.make()
    _, got = run(world.log(tmp_path / "log"), tmp_path / "out", more="&max-batch-size=3")
    assert max(got.batch_sizes) == 3
    assert got.events == expected(world, "default", 1)


@pytest.mark.parametrize(
    ("more", "toml", "options"),
    [
        ("&output-raw-change-event=true", "", EncodingOptions(output_raw_change_event=True)),
        ("&only-output-updated-columns=true", "", EncodingOptions(only_output_updated_columns=True)),
        (
            "",
            "sink.open.output-old-value = false\nsink.delete-only-output-handle-key-columns = true\n",
            EncodingOptions(output_old_value=False, delete_only_handle_key_columns=True),
        ),
    ],
    ids=["raw", "updated", "old-value-off"],
)
def test_options_reach_the_events(tmp_path: Path, more: str, toml: str, options: EncodingOptions) -> None:
    world = World.make(seed=5)
    _, got = run(world.log(tmp_path / "log"), tmp_path / "out", partitions=2, more=more, toml=toml)
    assert got.events == expected(world, "default", 2, options=options)
    assert got.events != expected(world, "default", 2)


@pytest.fixture
def checks() -> Iterator[str]:
    """A folder whose name is short, wherever temporary files are: it stands in messages."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield folder


@pytest.mark.parametrize("compression", ["none", "lz4", "snappy"])
def test_large_rows_are_kept_as_claim_checks(tmp_path: Path, checks: str, compression: str) -> None:
    """Compressed, in batches, over partitions: a consumer with the storage sees every row whole."""
    world = World.make(seed=6, huge=90)
    toml = (
        "[sink.kafka-config.large-message-handle]\n"
        f'large-message-handle-option = "claim-check"\nlarge-message-handle-compression = "{compression}"\n'
        f'claim-check-storage-uri = "file://{checks}"\n'
    )
    run(world.log(tmp_path / "log"), tmp_path / "out", partitions=2, more="&max-message-bytes=350", toml=toml)
    lines = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    messages = [(line["partition"], base64.b64decode(line["key"]), base64.b64decode(line["value"])) for line in lines]
    assert max(len(key) + len(value) + 36 for _, key, value in messages) <= 350
    fetch = ClaimCheckStorage(f"file://{checks}").fetch
    got: dict[int, list[object]] = {0: [], 1: []}
    kept = 0
    for partition, key, value in messages:
        for event in decode(key, value, fetch=fetch):
            if isinstance(event, RowEvent):
                kept += event.claim_check is not None
                got[partition].append(dataclasses.replace(event, claim_check=None))
    want = expected(world, "default", 2)
    for partition, tables in want.items():
        events = [decode(*framed(*event))[0] for events in tables.values() for event in events]
        assert sorted(got[partition], key=repr) == sorted(events, key=repr)
    assert (kept > 0) == (compression == "none")  # compressed, all of them fit


def test_an_interval_inside_the_log(tmp_path: Path) -> None:
    world = World.make(seed=4)
    log = world.log(tmp_path / "log", segments=4)
    commits = sorted({c.commit_ts for c in world.rows})
    low, high = commits[len(commits) // 4], commits[len(commits) // 2]
    summary, got = run(log, tmp_path / "out", start_ts=low, target_ts=high)
    assert got.events == expected(world, "default", 1, from_ts=low, to_ts=high)
    assert (summary.from_ts, summary.to_ts) == (low, high)
    assert got.resolved == {0: [high]}


def test_nothing_between_start_and_target_gives_a_resolved_event(tmp_path: Path) -> None:
    world = World.make()
    _, got = run(world.log(tmp_path / "log"), tmp_path / "out", start_ts=START, target_ts=START)
    assert got.events == {}
    assert got.resolved == {0: [START]}


def test_a_new_version_ends_a_batch(tmp_path: Path) -> None:
    """Rows up to the switch have the old columns, rows past it the new one as well; resolved events stand between."""
    world = World.make(seed=6)
    switch = sorted({c.commit_ts for c in world.rows})[30]
    world.add_column(PLAIN, switch)
    _, got = run(world.log(tmp_path / "log", partitions=2), tmp_path / "out")
    assert got.resolved == {0: [switch, world.end + 1]}
    for key, value in got.events[0][PLAIN]:
        ts = int(key.split(b":")[1].split(b",")[0])
        assert (b'"more"' in value) == (ts > switch)


def test_filters_and_tables_without_a_usable_key(tmp_path: Path) -> None:
    world = World.make()
    log = world.log(tmp_path / "log")
    _, some = run(log, tmp_path / "some", toml='filter.rules = ["app.*", "!app.t2"]')
    whole = expected(world, "default", 1)[0]
    assert some.events == {0: {t: e for t, e in whole.items() if t != UNIQUE}}
    _, forced = run(log, tmp_path / "forced", toml="force-replicate = true")
    assert len(forced.events[0]) == 4


def snapshot_of(folder: str) -> dict[str, str]:
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in Path(folder).rglob("*") if p.is_file()}


def test_the_log_stays_as_it_was(tmp_path: Path) -> None:
    world = World.make()
    log = world.log(tmp_path / "log", partitions=2, segments=2)
    before = snapshot_of(log)
    run(log, tmp_path / "out")
    assert snapshot_of(log) == before


@pytest.mark.parametrize("name", ["start_ts", "target_ts"])
@pytest.mark.parametrize("distance", [-1, 1])
def test_a_ts_outside_the_log_is_refused_with_both_ends(tmp_path: Path, name: str, distance: int) -> None:
    world = World.make(transactions=5)
    log = world.log(tmp_path / "log")
    resolved = LogReader(log).resolved_ts()
    ts = START - 1 if distance < 0 else resolved + 1
    with pytest.raises(StartTsOutOfLog) as caught:
        run(log, tmp_path / "out", **{name: ts})
    assert str(START) in str(caught.value)
    assert str(resolved) in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_no_log(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="not a change log"):
        run(str(tmp_path), tmp_path / "out")


def test_a_broken_log_is_named(tmp_path: Path) -> None:
    world = World.make()
    log = world.log(tmp_path / "log", segments=3)
    victim = sorted((Path(log) / "rows/0").glob("*.arrow"))[1]
    data = victim.read_bytes()
    victim.write_bytes(data[:100])
    with pytest.raises(LogCorrupt, match=victim.name):
        run(log, tmp_path / "out")
    victim.unlink()
    with pytest.raises(LogCorrupt):
        run(log, tmp_path / "out")


def test_rows_that_no_schema_describes_are_refused(tmp_path: Path) -> None:
    world = World.make(transactions=10)
    del world.infos[PLAIN]
    with pytest.raises(SchemaError, match=str(PLAIN)):
        run(world.log(tmp_path / "log"), tmp_path / "out")


def test_a_row_too_large_for_a_message_is_named(tmp_path: Path) -> None:
    world = World.make(transactions=10)
    with pytest.raises(MessageTooLarge, match="commit_ts"):
        run(world.log(tmp_path / "log"), tmp_path / "out", more="&max-message-bytes=120")
