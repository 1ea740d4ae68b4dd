"""State files that hold anything that JSON can: every reader raises one of Tidemill's errors, and leaves the file as it is."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelog.logs import START
from tidemill.canal.conversation.cutting import Place
from tidemill.canal.conversation.subscriber import Key, Record
from tidemill.canal.server.journal import line_of, parse_journal
from tidemill.capture import growth, initial_load, status
from tidemill.changefeed import run_status
from tidemill.changefeed.feed_folder import FeedFolder, FeedIdentity
from tidemill.changefeed.restart_backoff import Patience
from tidemill.changefeed.restart_rule import RestartRule
from tidemill.changefeed.runner import changefeed_of
from tidemill.changefeed.runner_options import Options
from tidemill.changelog import initial_load as loads
from tidemill.changelog.initial_load import PlannedTable
from tidemill.changelog.log_format import LogIdentity, parse_ts_file
from tidemill.changelog.ownership import Owner
from tidemill.changelog.spread import SplitTable
from tidemill.changelog.storage.flock import describe_holder
from tidemill.changelog.storage.open import LocalStorage
from tidemill.cli.changefeeds.changefeed import keeper_of
from tidemill.cli.changefeeds.status import command as status_command
from tidemill.config.file import ChangefeedConfig
from tidemill.consumer.order.progress import PartitionProgress, Progress
from tidemill.delivery.epoch_fence import Fence, FenceCheck
from tidemill.errors import ConfigError, FeedBroken, Fenced, LogCorrupt, TidemillError
from tidemill.process.supervisor import End
from tidemill.sinks import owner, publication
from tidemill.sinks.base import BatchContext
from tidemill.sinks.canal.store import names, retention
from tidemill.sinks.canal.store.position import Position
from tidemill.sinks.storage import parts
from tidemill.sinks.storage.store import LocalStore

HOSTILE = [
    *("null", "[]", "{}", "[7]", "[[1]]", "5", "-1", "1.5", "1e999", "-1e999", "NaN", str(2**70), "9" * 5000, "true", "false", '""'),
    *('"x"', '"\\ud800"', '"\\u0000"', '[null, {"a": [-1]}]', '{"code": 1}', '[{"a": 1}]', '[["a", "b"]]', "[true]", '["x"]'),
    *("[" * 300 + "]" * 300, "[" * 100_000, '{"a":' * 100_000, '{"a":' * 300 + "1" + "}" * 300),
]
"""What a field, or a whole file, may hold."""


@dataclass(frozen=True)
class File:
    """A kind of state files: an example of it, and its readers. `broken`: whether a reader refuses it when all of it is wrong."""

    name: str
    example: Any
    read: Callable[[Path], object]
    may_be_lost: bool = False  # then nothing is raised at all
    removes: bool = False  # it is removed when it cannot be read

    @property
    def shown(self) -> str:
        """What names it in an error."""
        return "progress" if self.name == "progress.json" else self.name


IDENTITY = {
    **json.loads(LogIdentity("1", START, 2).grown(START + 5, 4).spread(START + 9, SplitTable(7, "d.t", (b"a",), (0, 1))).to_json()),
    "capture_rules": [{"from_ts": START, "rules": ["*.*"], "case_sensitive": True}],
    "upstream_versions": [{"from_ts": START, "version": "8.5.0"}],
    "partition_by": "table",
    "split_tables": [3],
}
PLAN = json.loads(loads.Plan(START, (PlannedTable(7, "d.t", ((b"a", b"b"),)),)).to_json())
FEED = {"changefeed": "f", "cluster_id": "1", "log": "/l", "sink": "blackhole://", "config": {"a": 1}, "tz": "UTC", "start_ts": START}
DELIVERY = {
    "changefeed": "f",
    "state": "warning",
    "pid": 3,
    "checkpoint_ts": START,
    "rows": 5,
    "partitions": [START],
    "updated_at": 5.0,
    "error": {"code": "TM:ErrSink", "message": "m"},
    "warning_since": 3.0,
    "retry_at": 4.0,
    "begun": True,
    "moved_at": 1.0,
    "last_batch": {"rows": 1},
    "target_ts": None,
    "processes": [{"name": "capture", "pid": 4_000_000}],
    "run": "running",
}
CAPTURE = {
    "state": "running",
    "pid": 3,
    "log": "L",
    "start_ts": START,
    "resolved_ts": START,
    "updated": 5.0,
    "heads": [START, START + (1 << 40)],
    "regions": {"pulling": 3},
    "holding": {"table": "d.t", "seconds": 50},
    "stuck": [],
    "gc_safe_point": START,
    "gc_ttl_used": 0.1,
    "held_tables": [{"table": "d.t", "partition": 0, "by": "lock", "ranges": 1, "seconds": 3, "resolved_ts": START}],
    "groups": [],
    "storage": None,
    "error": None,
    "split_tables": {"d.t": [1]},
    "cpu_seconds": {"scan": 0.5},
    "violations": {},
}


OPTIONS = Options("f", "", Path(), "", ChangefeedConfig(), None, None, None, None, 1, 1.0, supervised=True, retries=True)


def of_log(path: Path) -> LogIdentity:
    return LogIdentity.from_json(path.read_bytes(), str(path))


def of_fence(path: Path) -> None:
    with contextlib.suppress(FeedBroken, Fenced):
        FenceCheck(str(path), 3)()
    fence = Fence(LocalStorage(path.parent), path.name)
    fence._left(fence._file.read() or {})


def folder_of(path: Path) -> FeedFolder:
    (path.parent / "changefeeds").mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (path.parent / "changefeeds" / "f").symlink_to(path.parent)
    return FeedFolder(path.parent, "f")


def of_checkpoint(path: Path) -> None:
    folder = folder_of(path)
    folder.position()
    folder.last_epoch()


def of_delivery(path: Path) -> None:
    folder = folder_of(path)
    before = path.read_bytes()
    progress = changefeed_of(replace(OPTIONS, data_dir=path.parent), threading.Event()).progress
    progress.forget_refused()
    progress.begin(FeedIdentity(**FEED), START, by_table=False, retries=False)
    path.write_bytes(before)
    keeper = RestartRule(folder, Patience(1800.0))
    keeper.begins()
    keeper.ended(End(1, 3))
    path.write_bytes(before)
    watch = run_status.RunStatus(folder, [])
    watch.snapshot()
    list(watch.samples())
    run_status.old_processes(folder)


CTX = BatchContext("f", 1, 1, START, START + 1)


def of_begin(path: Path) -> None:
    store = LocalStore(path.parent / "sink")
    store.make_folder(parts.folder_of(CTX))
    store.stage(f"{parts.folder_of(CTX)}/begin.json", path.read_bytes())
    parts.begun(store, CTX)


def of_list(path: Path) -> None:
    store = LocalStore(path.parent / "sink")
    parts.begin(store, CTX, START)
    store.stage(f"{parts.folder_of(CTX)}/0.0.json", path.read_bytes())
    parts.listed(store, CTX)


def of_capture(path: Path) -> None:
    """As the next capture, the supervisor, the metrics, and `tidemill status` read it."""
    status.start_of(path.parent, "L")
    folder = folder_of(path)
    folder.capture.mkdir(exist_ok=True)
    copy = folder.capture / "status.json"
    copy.write_bytes(path.read_bytes())
    with contextlib.suppress(ConfigError):
        status_command(data_dir=path.parent)
    status.CaptureStatus(log="L").write_refused(folder.capture)
    copy.write_bytes(path.read_bytes())
    run_status.resolved_of(folder)
    list(run_status.RunStatus(folder, []).samples())


def published(*steps: publication.Step) -> bytes:
    return publication.Note("c", 3, publication.Plan(1, 9, "f", steps, METADATA)).to_json()


METADATA = publication.Raise("metadata", b'{"checkpoint-ts":9}', publication.Position.CHECKPOINT)
PUBLICATION = json.loads(published(publication.Create({"a": b"b"}), publication.Place([("a", "b")])))
PROGRESS = json.loads(Progress(3, {("t", 0): PartitionProgress(1, 2)}, "c", {"t": (("a", "b"),)}).to_json())
FENCE = {"epoch": 3, "driver": "d", "from_ts": 1, "to_ts": 9, "ranges": [[1, 9]]}
CHECKPOINT = {"epoch": 3, "driver": "d", "checkpoint_ts": START, "partitions": [START, START + 1]}
OWNER = {"epoch": 1, "writer": "w", "pledged_to": START, "joining": [1, 2]}
SPLIT = {"split": {"table": "d.t", "over": 2, "layouts": 0}}
REFUSED = {"partitions": 4, "error": "e", "hint": "h"}

STORE = json.loads(names.StoreIdentity("f", START).to_json())
INTERVAL = {"format": 1, "segments": [[f"00000001/{START:020d}-{START + 1:020d}.1-ab.seg", 5, START]]}

FILES = [
    File("log.json", IDENTITY, of_log),
    File("head.json", {"resolved_ts": START}, lambda path: parse_ts_file(path.read_bytes(), "resolved_ts", str(path))),
    File("owner.json", OWNER, lambda path: Owner.from_json(path.read_bytes(), str(path))),
    File("plan.json", PLAN, lambda path: loads.Plan.from_json(path.read_bytes(), str(path))),
    File("growth.json", SPLIT, lambda path: growth.requested(LocalStorage(path.parent)), removes=True),
    File("growth.json", REFUSED, lambda path: growth.refusal(LocalStorage(path.parent)), may_be_lost=True),
    File("fence.json", FENCE, of_fence),
    File("feed.json", FEED, lambda path: folder_of(path).identity()),
    File("checkpoint.json", CHECKPOINT, of_checkpoint),
    File("delivery.json", DELIVERY, of_delivery, may_be_lost=True),
    File("status.json", DELIVERY, of_delivery, may_be_lost=True),
    File("status.json", CAPTURE, of_capture, may_be_lost=True),
    File("publication.json", PUBLICATION, lambda path: publication.Note.from_json(path.read_bytes(), str(path))),
    File("store.json", STORE, lambda path: names.StoreIdentity.from_json(path.read_bytes(), str(path))),
    File("interval.json", INTERVAL, lambda path: names.Interval.from_json(path.read_bytes(), str(path))),
    File("client.json", {"commit_ts": START}, lambda path: retention._position(path.read_bytes(), str(path))),
    File("begin.json", {"after": START}, of_begin),
    File("0.0.json", {"parts": [{"topic": "t", "partition": 0, "date": "", "file": "a/b.part", "bytes": 5}], "messages": 1}, of_list),
    File("tidemill.json", json.loads(owner.note("f", "csv")), lambda path: owner.check(path.read_bytes(), str(path), "f", "csv")),
    File("progress.json", PROGRESS, lambda path: Progress.from_json(path.read_text())),
    File("writer.lock", {"pid": 3, "host": "h"}, lambda path: describe_holder(path.read_bytes()), may_be_lost=True),
]


def spoiled(example: Any) -> Iterator[str]:
    """The file with anything in each place, one at a time; without it; and other files altogether."""
    text = json.dumps(example)
    yield from HOSTILE
    yield from ("", text[:-3], text + "x", "\x00" * 9)
    for path in _places(example):
        marked = json.loads(text)
        inner = marked
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = "MARK"
        for hostile in HOSTILE:
            yield json.dumps(marked).replace('"MARK"', hostile)
        del inner[path[-1]]
        yield json.dumps(marked)


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*at, key)
        yield from _places(inner, (*at, key))


@pytest.mark.slow
@pytest.mark.parametrize("kind", FILES, ids=lambda kind: f"{kind.name}-{len(kind.example)}")
def test_whatever_a_state_file_holds(tmp_path: Path, kind: File) -> None:
    path = tmp_path / kind.name
    path.write_text(json.dumps(kind.example))
    kind.read(path)
    refused = 0
    for text in spoiled(kind.example):
        path.write_text(text, encoding="utf-8")
        said = _error_of(kind, path)
        refused += bool(said)
        assert not said or (not kind.may_be_lost and kind.shown in said)
        if kind.removes and not path.exists():
            refused += 1
        else:
            assert path.read_text(encoding="utf-8") == text
    assert bool(refused) == (not kind.may_be_lost)


def _error_of(kind: File, path: Path) -> str:
    try:
        kind.read(path)
    except TidemillError as error:
        str(error).encode()  # no halves of surrogates: a terminal can show it
        return error.message
    return ""


def test_one_error_names_file_field_and_what_to_do() -> None:
    with pytest.raises(LogCorrupt) as caught:
        LogIdentity.from_json(json.dumps({**IDENTITY, "layouts": [7]}), "s3://k:s@b/log.json")
    assert caught.value.message == "s3://k:xxxxx@b/log.json: layouts[0] is 7, not a JSON object"
    assert "copy" in caught.value.hint
    with pytest.raises(LogCorrupt, match=r"^log.json: partitions is 70000, not a whole number from 1 to 65536"):
        LogIdentity.from_json(json.dumps({**IDENTITY, "partitions": 70_000}))


def test_a_plan_in_the_folder_of_another_ts_is_refused(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.replace(f"{loads.folder_of(START + 1)}/{loads.PLAN}", json.dumps(PLAN).encode())
    with pytest.raises(LogCorrupt, match="the plan of another ts"):
        loads.read_plan(storage, START + 1)


@pytest.mark.parametrize("path", ["/etc/x", "a/../../x", "..", "", "a//b"])
def test_a_list_of_what_to_publish_stays_inside_its_folder(path: str) -> None:
    for step in (
        *(publication.Place([("a", path)]), publication.Place([(path, "a")]), publication.Create({path: b"x"})),
        *(publication.Raise(path, b"CDC1.csv", publication.Position.INDEX), publication.Remove([path])),
    ):
        with pytest.raises(TidemillError, match="outside"):
            publication.Note.from_json(published(step), "publication.json")


@pytest.mark.parametrize("text", [b"\xff\xfe", b"0", b"-3", b"9" * 40, b"1 2"])
def test_a_lock_file_names_no_process_that_cannot_be_one(tmp_path: Path, text: bytes) -> None:
    folder = FeedFolder(tmp_path, "f")
    folder.lock("run.lock")
    (folder.path / "run.lock").write_bytes(text)
    assert keeper_of(FeedFolder(tmp_path, "f")) is None
    with pytest.raises(TidemillError, match="is delivered by process"):
        FeedFolder(tmp_path, "f").lock("run.lock")


@pytest.mark.parametrize("hostile", HOSTILE)
def test_requests_to_read_a_table_again(tmp_path: Path, hostile: str) -> None:
    storage = LocalStorage(tmp_path)
    for text in (hostile, f'{{"table": {hostile}}}'):
        storage.replace(f"{loads.REQUESTS}/a.json", text.encode())
        assert (
            len(initial_load.requests(storage))
            == len(storage.names(loads.REQUESTS))
            == (text == '{"table": "x"}' or text == '{"table": ""}')
        )
        storage.delete(f"{loads.REQUESTS}/a.json")
    for text in (hostile, f'{{"ts": {hostile}}}', f'{{"error": {hostile}}}'):
        storage.replace(f"{loads.REQUESTS}/a.json.done", text.encode())
        with contextlib.suppress(LogCorrupt):
            assert initial_load.answered(storage, "a").keys() <= {"ts", "error"}  # type: ignore[union-attr]


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("name", ["", "destination", "client", "commit_ts", "index", "filter", "format", "forgotten"])
def test_a_line_of_a_servers_journal(name: str, hostile: str) -> None:
    key = Key("example", 1001)
    fields = json.loads(line_of(key, Record(Place(Position(START, 0)))))
    text = json.dumps(fields | {name: "MARK"}).replace('"MARK"', hostile) if name else hostile
    try:
        assert len(list(parse_journal(f"{text}\n".encode(), "J"))) == 1
    except LogCorrupt as error:
        said = error.message
    else:
        said = "J, line 1: "
    assert said.startswith(("J, line 1: ", "J, line 1 is "))
