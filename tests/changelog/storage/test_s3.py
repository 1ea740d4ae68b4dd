"""A log on S3 (moto's server): conditional PUTs with all kinds of credentials, and what they prevent."""

from __future__ import annotations

import io
import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import quote

import pyarrow.fs
import pytest

from tests.changelog.conftest import META
from tests.support.changelog.logs import START, batch_of, changes_of, put
from tests.support.faults.s3_faults import Fault, spoiled
from tests.support.servers.s3 import make_bucket, objects, s3_server  # noqa: F401
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.options import LogOptions
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage import conditional, s3
from tidemill.changelog.storage.open import RemoteStorage, open_storage
from tidemill.changelog.verify import verify
from tidemill.changelog.writer import LogWriter, Share
from tidemill.errors import DiskLow, LogError, LogFenced, LogRefused, LogUnavailable

COORDINATOR = Share(schema=True, partitions=frozenset())
GROUP = Share(schema=False, partitions=frozenset({0, 1}))
_buckets = itertools.count()


def url_of(endpoint: str, bucket: str, who: str = "test:test@") -> str:
    return f"s3://{who}{bucket}/logs/one?endpoint_override={endpoint.partition('://')[2]}&scheme=http&region=us-east-1"


@pytest.fixture
def bucket(s3_server: str) -> str:  # noqa: F811
    name = f"log-{next(_buckets)}"
    make_bucket(s3_server, name)
    return name


@pytest.fixture
def url(s3_server: str, bucket: str) -> str:  # noqa: F811
    """A log of two partitions."""
    url = url_of(s3_server, bucket)
    LogWriter.create(url, LogIdentity("7051", START, 2), snapshot=META).close()
    return url


def test_swapping(url: str) -> None:
    place = open_storage(url)
    assert place.can_swap
    assert place.versioned("a.json") is None
    first = place.swap("a.json", None, b"1")
    assert first is not None
    assert place.versioned("a.json") == (b"1", first)
    assert place.swap("a.json", None, b"2") is None
    second = place.swap("a.json", first, b"2")
    assert second is not None
    assert place.swap("a.json", first, b"3") is None
    assert place.read("a.json") == b"2"
    place.delete("a.json")
    assert place.swap("a.json", second, b"3") is None


def test_a_small_file_that_is_replaced_while_it_is_read_is_whole(s3_server: str, bucket: str) -> None:  # noqa: F811
    """The reader must not get the first bytes of the new file, as many as the old one had."""
    short, long = b"1" * 10, b"2" * 5000
    direct = open_storage(url_of(s3_server, bucket))
    direct.replace("log.json", short)
    asked: list[str] = []

    def spoil(method: str, path: str) -> Fault:
        if path.partition("?")[0].endswith("log.json") and method in ("GET", "HEAD"):
            if len(asked) == 1:  # behind the first question
                direct.replace("log.json", long)
            asked.append(method)
        return Fault.NONE

    with spoiled(s3_server, spoil) as endpoint:
        place = open_storage(url_of(endpoint, bucket))
        assert place.read("log.json") in (short, long)
        assert place.read("log.json") == long
    assert len(asked) >= 2


def test_a_small_file_that_is_replaced_while_it_is_read_from_another_file_system_is_whole(tmp_path: Path) -> None:
    """Such a file system asks for the size first, and then reads so many bytes."""

    local = pyarrow.fs.LocalFileSystem()
    place = RemoteStorage(pyarrow.fs.SubTreeFileSystem(str(tmp_path), local), "log")
    place.replace("log.json", b"2" * 5000)
    whole, reads = place._fs, [b"2" * 10]

    class CutOnce:
        """The file system with a stream that ends early, once."""

        type_name = whole.type_name

        def open_input_stream(self, path: str) -> Any:
            return io.BytesIO(reads.pop()) if reads else whole.open_input_stream(path)

        def get_file_info(self, path: str) -> Any:
            return whole.get_file_info(path)

    place._fs = CutOnce()
    assert place.read("log.json") == b"2" * 5000


@pytest.mark.parametrize("secret", ["test", "a/b+c=d&e"])
def test_who_one_is_may_stand_in_the_address(s3_server: str, bucket: str, secret: str) -> None:  # noqa: F811
    place = open_storage(url_of(s3_server, bucket, f"someone:{quote(secret, safe='')}@"))
    assert place.can_swap


def test_who_one_is_may_be_referred_to(
    s3_server: str,  # noqa: F811
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "key").write_text("t/e+s t\n")
    monkeypatch.setenv("TIDEMILL_SECRET_NAME", "test")
    references = f"&secret-access-key-file={quote(str(tmp_path / 'key'))}&access-key-env=TIDEMILL_SECRET_NAME"
    url = url_of(s3_server, bucket, "") + references
    place = open_storage(url)
    assert isinstance(place, RemoteStorage)
    options = place._fs.__reduce__()[1][0]
    assert (options["access_key"], options["secret_key"]) == ("test", "t/e+s t")
    LogWriter.create(url, LogIdentity("7051", START, 2), snapshot=META).close()
    assert LogReader(url).location == url, "what other processes are told"


@pytest.mark.parametrize(
    ("parameters", "fault"),
    [
        ("&access-key-env=TIDEMILL_SECRET_NAME", "belong together"),
        ("&access-key-env=TIDEMILL_SECRET_NAME&secret-access-key-file=/no/such", "secret-access-key-file /no/such: No such file"),
        ("&access-key-env=A&access-key-file=b&secret-access-key=c", "access-key-file and access-key-env say where"),
    ],
)
def test_references_that_lead_nowhere(parameters: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_SECRET_NAME", "test")
    with pytest.raises(LogError, match=fault):
        open_storage(url_of("http://127.0.0.1:1", "bucket", "") + parameters)
    if "such" in fault:
        with pytest.raises(LogError, match="without keys before the bucket"):
            open_storage(url_of("http://127.0.0.1:1", "bucket") + parameters)


def test_who_one_is_may_stand_in_the_environment(s3_server: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    assert open_storage(url_of(s3_server, bucket, "")).can_swap


def test_who_one_is_may_stand_in_a_profile(
    s3_server: str,  # noqa: F811
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "credentials").write_text("[mine]\naws_access_key_id = test\naws_secret_access_key = test\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    assert open_storage(url_of(s3_server, bucket, "")).can_swap


def test_the_endpoint_may_carry_its_scheme_and_that_of_the_environment_is_not_followed(
    s3_server: str,  # noqa: F811
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    place = open_storage(f"s3://test:test@{bucket}/log?endpoint_override={quote(s3_server, safe='')}&region=us-east-1")
    assert place.can_swap
    place.replace("x", b"1")
    assert place.versioned("x") is not None


def test_a_bucket_that_is_not_there_is_an_error_not_a_store_without_conditions(s3_server: str) -> None:  # noqa: F811
    with pytest.raises(LogRefused, match="NoSuchBucket"):
        assert open_storage(url_of(s3_server, "nowhere-at-all")).can_swap


# ---- writers


def test_writers_share_a_log(s3_server: str, bucket: str, url: str) -> None:  # noqa: F811
    coordinator, group = LogWriter.open(url, share=COORDINATOR), LogWriter.open(url, share=GROUP)
    group.partition(0).publish(START + 10, [batch_of([put(70, 1, START + 1)])])
    group.partition(1).set_head(START + 12)
    coordinator.schema.set_head(START + 11)
    reader = LogReader(url)
    assert reader.resolved_ts() == START + 10
    (interval,) = reader.chain(0, START, START + 10)
    assert changes_of(reader.open_segment(interval.parts[0]).read_all()) == [put(70, 1, START + 1)]
    owner = json.loads(objects(s3_server, f"{bucket}/logs/one")["rows/0/owner.json"])
    assert owner["epoch"] == 2
    assert owner["pledged_to"] == START + 10
    assert [p.text for p in verify(url).problems if "does not know" not in p.text] == []


def test_the_whole_logs_writer_is_fenced_too(url: str) -> None:
    old = LogWriter.open(url)
    old.partition(0).publish(START + 5, [batch_of([put(7, 1, START + 1)])])
    new = LogWriter.open(url)
    for attempt in (
        lambda: old.partition(0).publish(START + 20, [batch_of([put(7, 1, START + 11)])]),
        lambda: old.partition(0).set_head(START + 20),
        lambda: old.schema.publish(START + 20, []),
        lambda: old.schema.snapshot(START, {}),
        lambda: old.declare(split_tables=[1]),
    ):
        with pytest.raises(LogFenced, match=r"epoch 3|epoch 2"):
            attempt()
    new.partition(0).publish(START + 30, [batch_of([put(7, 1, START + 11)])])
    assert new.identity.split_tables == ()


def test_a_second_log_is_not_made_in_the_place_of_the_first(url: str) -> None:
    with pytest.raises(LogError, match="already"):
        LogWriter.create(url, LogIdentity("1", START, 1), snapshot={})


def test_other_object_stores_and_file_systems_are_refused_for_shares(tmp_path: Path) -> None:
    place = RemoteStorage(pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem()), "log")
    LogWriter.create(place, LogIdentity("7051", START, 2), snapshot=META).close()
    with pytest.raises(LogError, match="no conditional PUT") as e:
        LogWriter.open(place, share=GROUP)
    assert "one process without groups" in e.value.hint
    LogWriter.open(place).close()


# ---- what happens to requests


OFTEN = pytest.mark.thorough("one fault at every other PUT; all of them, in turns, are in `make test`")
LOST = (Fault.LOST_ANSWER, Fault.ERROR_AFTER_ALL, Fault.LOST_REQUEST)


@pytest.mark.slow
@pytest.mark.parametrize("faults", [LOST, *(pytest.param((one,), marks=OFTEN) for one in LOST)], ids=["all", *(one.name for one in LOST)])
def test_lost_requests_and_answers_fence_nobody(s3_server: str, bucket: str, url: str, faults: tuple[Fault, ...]) -> None:  # noqa: F811
    """Every other PUT goes wrong."""
    turns = itertools.count()
    spoiled_paths: set[str] = set()

    def spoil(method: str, path: str) -> Fault:
        if method != "PUT" or (turn := next(turns)) % 2:
            return Fault.NONE
        spoiled_paths.add(path.rpartition("/")[2].partition("?")[0])
        return faults[turn // 2 % len(faults)]

    with spoiled(s3_server, spoil) as endpoint:
        writer = LogWriter.open(url_of(endpoint, bucket), share=GROUP)
        for end in (10, 20, 30, 40):
            writer.partition(0).publish(START + end, [batch_of([put(70, 1, START + end - 1)])])
        writer.partition(0).set_head(START + 50)
    assert {"owner.json", "head.json"} <= spoiled_paths
    assert any(name.endswith(".arrow") for name in spoiled_paths)
    reader = LogReader(url)
    assert reader.head(0) == START + 50
    found = [c for i in reader.chain(0, START, START + 50) for c in changes_of(reader.open_segment(i.parts[0]).read_all())]
    assert [c.commit_ts for c in found] == [START + end - 1 for end in (10, 20, 30, 40)]


@pytest.mark.parametrize("fault", [Fault.UNCONDITIONAL, Fault.NOT_IMPLEMENTED])
def test_a_store_that_does_not_do_conditional_puts_is_found_when_the_log_is_opened(
    s3_server: str,  # noqa: F811
    bucket: str,
    url: str,
    fault: Fault,
) -> None:
    with spoiled(s3_server, lambda method, path: fault if method == "PUT" else Fault.NONE) as endpoint:
        place = url_of(endpoint, bucket)
        assert not open_storage(place).can_swap
        for share in (GROUP, COORDINATOR):
            with pytest.raises(LogError, match="no conditional PUT") as e:
                LogWriter.open(place, share=share)
            assert "test:test@" not in str(e.value)
        whole = LogWriter.open(place)
        whole.partition(0).publish(START + 10, [batch_of([put(70, 1, START + 1)])])
        assert LogReader(place).head(0) == START + 10


def test_a_file_that_is_there_stays_and_one_too_large_for_a_put_goes_another_way(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = LogWriter.open(url, share=GROUP)
    monkeypatch.setattr(s3, "LARGEST_PUT", 10)
    path = writer.partition(0).publish(START + 10, [batch_of([put(70, 1, START + 1)])])
    monkeypatch.undo()
    place = writer.storage
    assert isinstance(place, RemoteStorage)
    before = place.read(place.name(path))
    (tmp_path / "other").write_bytes(b"other")
    place.put_file(place.name(path), str(tmp_path / "other"))
    assert place.read(place.name(path)) == before


def test_a_store_that_does_not_answer_is_an_error_not_one_without_conditions(
    s3_server: str,  # noqa: F811
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conditional, "TRIES", 1)
    with spoiled(s3_server, lambda method, path: Fault.LOST_REQUEST if method == "PUT" else Fault.NONE) as endpoint:
        place = open_storage(url_of(endpoint, bucket))
        with pytest.raises(LogUnavailable, match="does not answer"):
            assert place.can_swap


@pytest.mark.slow
def test_a_put_that_is_late_on_its_way_changes_nothing(s3_server: str, bucket: str, url: str) -> None:  # noqa: F811
    """The request of a segment is held until two other writers have written the folder."""
    on_its_way, let_go = Event(), Event()

    def spoil(method: str, path: str) -> Fault:
        if method == "PUT" and f"-{START + 20:020d}.arrow" in path:
            on_its_way.set()
            assert let_go.wait(60)
        return Fault.NONE

    rows = [put(70, h, START + h, b"v" * h) for h in range(1, 41)]
    with spoiled(s3_server, spoil) as endpoint, ThreadPoolExecutor(1) as pool:
        old = LogWriter.open(url_of(endpoint, bucket), share=GROUP)
        old.partition(0).publish(START + 10, [batch_of(rows[:10])])
        late = pool.submit(old.partition(0).publish, START + 20, [batch_of(rows[10:20])])
        try:
            assert on_its_way.wait(60)
            second = LogWriter.open(url, share=GROUP)
            third = LogWriter.open(url, share=GROUP)
            assert (third.partition(0).last_to, third.partition(0).pledged_to) == (START + 10, START + 20)
            third.partition(0).publish(START + 20, [batch_of([r]) for r in rows[10:20]])
            third.partition(0).publish(START + 40, [batch_of(rows[20:])])
        finally:
            let_go.set()
        with pytest.raises(LogFenced):
            late.result()
    with pytest.raises(LogFenced):
        second.partition(0).publish(START + 20, [batch_of(rows[10:20])])
    reader = LogReader(url)
    chain = reader.chain(0, START, START + 40)
    assert [c for i in chain for c in changes_of(reader.open_segment(i.parts[0]).read_all())] == rows
    assert reader.open_segment(chain[1].parts[0]).num_record_batches == 10, "the successor's, though the rows are the same"
    assert [p.text for p in verify(url).problems if "does not know" not in p.text] == []


def test_drafts_are_made_up_in_the_scratch_folder_and_leave_nothing(url: str, tmp_path: Path) -> None:
    scratch = tmp_path / "data" / "scratch"
    place = open_storage(url, scratch)
    assert place.place == str(scratch)
    with LogWriter.open(place, options=LogOptions(low_water_bytes=0)) as log:
        draft = place.draft("rows/0")
        assert list(scratch.iterdir()) == [], "a process that is killed leaves none"
        draft.discard()
        log.partition(0).publish(START + 10, [batch_of([put(70, 1, START + 1)])])
        log.options = LogOptions(low_water_bytes=1 << 60)
        with pytest.raises(DiskLow, match=rf"{scratch} has \d+ MiB left"):
            log.partition(0).publish(START + 20, [batch_of([put(70, 1, START + 11)])])
    assert LogReader(url).chain(0, START, START + 10)


def test_synced_heads_need_no_file_of_their_own(url: str) -> None:
    with LogWriter.open(url) as log:
        for writer in (log.schema, log.partition(0), log.partition(1)):
            writer.set_head(START + 10)
        assert log.sync_heads() == START + 10
    assert not [name for name in open_storage(url).names("rows/0") if name == "synced.json"]
