"""Small files of state: one of two who change it at once is first, and what is written is there after the power was lost, whole."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.changelog.memory_storage import Bucket, MemoryStorage
from tests.support.faults.power import Machine, PowerLost
from tidemill import statefile
from tidemill.canal.server.seat import Seat
from tidemill.changefeed.feed_folder import FeedFolder
from tidemill.changelog.log_format import SERVER
from tidemill.changelog.storage import durable
from tidemill.changelog.storage.open import LocalStorage, Storage
from tidemill.changelog.storage.state_file import StateFile
from tidemill.changelog.storage.status_file import StatusFile
from tidemill.errors import FeedBroken, Fenced, LogCorrupt
from tidemill.server.shared.file import SharedFile
from tidemill.server.shared.lease import Leases
from tidemill.server.shared.records import Record, Records
from tidemill.views.definition import Progress, Views

TORN = (b"", b"\0" * 60, b'{"term": 3, "hol')


@pytest.fixture(params=("file system", "object store"))
def storages(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Storage]:
    bucket = Bucket()
    return (lambda: LocalStorage(tmp_path / "log")) if request.param == "file system" else (lambda: MemoryStorage(bucket))


def counted(data: bytes | None, who: str) -> bytes:
    found = json.loads(data) if data is not None else {"n": 0}
    return json.dumps({"n": found["n"] + 1, "who": who, "times": found.get("times", 0) + 1}).encode()


def test_no_change_is_lost_where_several_change_it(storages: Callable[[], Storage]) -> None:
    def work(who: str) -> None:
        file = StateFile(storages(), "a/b.json")
        for _ in range(25):
            file.change(lambda data: counted(data, who))

    threads = [threading.Thread(target=work, args=(str(n),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert json.loads(StateFile(storages(), "a/b.json").read() or b"")["n"] == 100


def test_what_one_decides_is_decided_on_what_is_there_now(storages: Callable[[], Storage]) -> None:
    """A writer remembers what it wrote: a refusal by that, when another one has written since, is no refusal."""
    one, other = StateFile(storages(), "f.json"), StateFile(storages(), "f.json")
    one.change(lambda data: b'{"by": "one"}')
    other.change(lambda data: b'{"by": "other"}')

    def only_over_others(data: bytes | None) -> bytes:
        if data == b'{"by": "one"}':
            raise Fenced("it is mine already")
        return b'{"by": "one again"}'

    assert one.change(only_over_others) == b'{"by": "one again"}'
    other.change(lambda data: b'{"by": "other again"}')
    assert one.change(lambda data: None if data == b'{"by": "one again"}' else b'{"by": "third"}') == b'{"by": "third"}'
    with pytest.raises(Fenced):
        one.change(lambda data: (_ for _ in ()).throw(Fenced("no")))  # type: ignore[arg-type,return-value]
    assert one.change(lambda data: None) is None


def test_threads_of_a_process_do_not_share_a_temporary_name(tmp_path: Path) -> None:
    file, broken, failed, over = tmp_path / "delivery.json", list[str](), list[BaseException](), threading.Event()

    def write(n: int) -> None:
        try:
            for i in range(300):
                durable.write_json(file, {"n": n, "i": i, "pad": "x" * (2000 if n else 10)}, sync=False)
        except BaseException as error:
            failed.append(error)

    def read() -> None:
        while not over.is_set():
            data = durable.read(file)
            if data is not None and not data.endswith(b"}\n"):
                broken.append(repr(data[-20:]))

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=(n,)) for n in (0, 1, 2)]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    over.set()
    reader.join()
    assert (failed, broken) == ([], [])
    assert [one.name for one in tmp_path.iterdir()] == ["delivery.json"]


@pytest.mark.parametrize("torn", TORN)
def test_a_file_that_may_be_lost_counts_as_missing_when_it_is_cut(tmp_path: Path, torn: bytes) -> None:
    storage = LocalStorage(tmp_path / "log")
    leases = Leases(SharedFile(storage, "lease.json", durable=False), "a", "h:1", 1.0)
    assert leases.take(None) is not None
    (tmp_path / "log" / SERVER / "lease.json").write_bytes(torn)
    assert leases.look() is None
    taken = leases.take(None)
    assert taken is not None
    assert leases.renew(taken) is not None
    views = Views(tmp_path / "views")
    views.path("v").mkdir(parents=True)
    views.write_progress("v", Progress(7, 3))
    (views.path("v") / "progress.json").write_bytes(torn)
    assert views.progress("v") is None
    status = StatusFile(tmp_path / "status.json", "a test")
    status.path.write_bytes(torn)
    assert status.read() == {}


@pytest.mark.parametrize("torn", TORN)
def test_a_file_that_must_not_be_lost_is_named_with_what_to_do(tmp_path: Path, torn: bytes) -> None:
    storage = LocalStorage(tmp_path / "log")
    records = Records(storage)
    records.take(1, "s")
    (tmp_path / "log" / SERVER / "state.json").write_bytes(torn)
    with pytest.raises(LogCorrupt, match=r"state\.json") as caught:
        records.read()
    assert "start the servers again" in caught.value.hint
    Seat(storage).take()
    (tmp_path / "log" / "clients" / "owner.json").write_bytes(torn)
    with pytest.raises(LogCorrupt, match=r"clients/owner\.json") as caught:
        Seat(storage).take()
    assert "end all servers" in caught.value.hint
    folder = FeedFolder(tmp_path / "data", "f")
    folder.save_checkpoint(5)
    (folder.path / "checkpoint.json").write_bytes(torn)
    with pytest.raises(FeedBroken, match=r"checkpoint\.json"):
        folder.checkpoint()


def test_two_servers_that_take_a_seat_at_once_have_epochs_of_their_own(storages: Callable[[], Storage]) -> None:
    """Also where a conditional PUT is refused: the other one's file does not look like one's own."""
    one, other = Seat(storages()), Seat(storages())
    storage = one._file._storage
    if isinstance(storage, MemoryStorage):
        gate = storage.objects.gate
        came = []

        def between(what: str, name: str) -> None:
            if what == "swap" and not came:
                came.append(other.take())
            gate(what, name)

        storage.objects.gate = between
    else:
        other.take()
    assert one.take() != other.epoch


def checkpoints(root: Path) -> None:
    folder = FeedFolder(root / "data", "f")
    folder.lock()
    for ts in (5, 6):
        folder.save_checkpoint(ts)
    folder.unlock()


def records_of(root: Path) -> None:
    records = Records(LocalStorage(root / "log"))
    records.take(1, "s")
    records.put("f", Record({"a": 1}, "normal"))
    records.put("g", Record({"a": 1}, "normal"))


def seats(root: Path) -> None:
    for _ in range(2):
        Seat(LocalStorage(root / "log")).take()


def reads(root: Path) -> tuple[int, int, int]:
    """How far each kind of file is. Raises what a start would."""
    records = Records(LocalStorage(root / "log")).read() or {}
    data = LocalStorage(root / "log").read("clients/owner.json")
    epoch = statefile.read(data, "owner.json").integer("epoch") if data is not None else 0
    return FeedFolder(root / "data", "f").checkpoint() or 0, len(records), epoch


@pytest.mark.parametrize("work", [checkpoints, records_of, seats])
def test_whatever_call_was_the_last_before_the_power_was_lost(tmp_path: Path, work: Callable[[Path], None]) -> None:
    """What a call that returned has written is there, and the next start reads every file."""
    root = tmp_path / "whole"
    root.mkdir()
    whole = Machine(root)
    with whole.running():
        work(root)
    whole.starts_again()
    done = reads(root)
    assert max(done) == 2 or done[0] == 6, "all of it is synced"
    assert whole.calls > 10
    least = (0, 0, 0)
    for number in range(whole.calls):
        place = tmp_path / str(number)
        place.mkdir()
        machine = Machine(place, number)
        with machine.running(), pytest.raises(PowerLost):
            work(place)
        machine.starts_again()
        found = reads(place)
        assert all(a >= b for a, b in zip(found, least, strict=True)), f"call {number}: what was there is gone"
        least = found
        work(place)
        assert reads(place) >= done
