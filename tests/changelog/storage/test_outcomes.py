"""What failures of storage mean: away, full, refused, gone or broken; on a folder and on S3."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.fs
import pytest
from botocore import exceptions

from tests.changelog.conftest import META
from tests.support.changelog.logs import START, batch_of, put
from tests.support.faults.away import Mount
from tests.support.faults.s3_faults import Fault, spoiled
from tests.support.servers.s3 import make_bucket, s3_server
from tidemill.changelog.files.segment import read_batch
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.ownership import Ownership
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage import mounts, s3
from tidemill.changelog.storage.open import LocalStorage, Storage, open_segment, open_storage
from tidemill.changelog.storage.outcomes import Outcome, error_of, of_aws, outcome_of, storage_errors
from tidemill.changelog.verify import verify
from tidemill.changelog.writer import LogWriter
from tidemill.errors import DiskLow, LogCorrupt, LogRefused, LogUnavailable, SegmentGone, TidemillError

__all__ = ["s3_server"]

AWAY = ("EIO", "ESTALE", "ETIMEDOUT", "ECONNRESET", "ECONNREFUSED", "ENETUNREACH", "EHOSTUNREACH", "EAGAIN", "ENOLCK", "ENOTCONN")
LIKE_500 = pytest.mark.thorough("another status that means `away`, as one is in `make test`, and the pure tests above have them all")
_buckets = itertools.count()


# ---- pure


@pytest.mark.parametrize(
    ("names", "outcome"),
    [
        (AWAY, Outcome.AWAY),
        (("ENOSPC", "EDQUOT", "EFBIG"), Outcome.FULL),
        (("EACCES", "EPERM", "EROFS", "ENOTDIR", "EISDIR"), Outcome.REFUSED),
        (("ENOENT",), Outcome.GONE),
    ],
)
def test_the_operating_system_tells_by_numbers(names: tuple[str, ...], outcome: Outcome) -> None:
    for name in names:
        number = getattr(errno, name)
        assert outcome_of(OSError(number, os.strerror(number))) is outcome, name
        assert outcome_of(OSError(number, os.strerror(number)), content=True) is outcome, name


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7, Could not connect to server", Outcome.AWAY),
        ("AWS Error NETWORK_CONNECTION during ListObjectsV2 operation: curlCode: 28, Timeout was reached", Outcome.AWAY),
        ("AWS Error SLOW_DOWN during PutObject operation: Reduce your request rate", Outcome.AWAY),
        ("AWS Error UNKNOWN (HTTP status 503) during HeadObject operation: No response body.", Outcome.AWAY),
        ("AWS Error UNKNOWN (HTTP status 429) during HeadObject operation: No response body.", Outcome.AWAY),
        ("AWS Error INTERNAL_FAILURE during UploadPart operation: We encountered an internal error", Outcome.AWAY),
        ("AWS Error REQUEST_TIMEOUT during ListObjectsV2 operation: ", Outcome.AWAY),
        (
            "AWS Error UNKNOWN (HTTP status 403) during ListObjectsV2 operation: Unable to parse ExceptionName: ExpiredToken Message: x",
            Outcome.AWAY,
        ),
        ("AWS Error ACCESS_DENIED during HeadObject operation: No response body.", Outcome.REFUSED),
        ("AWS Error INVALID_ACCESS_KEY_ID during ListObjectsV2 operation: no such key", Outcome.REFUSED),
        ("AWS Error SIGNATURE_DOES_NOT_MATCH during PutObject operation: no", Outcome.REFUSED),
        ("AWS Error NO_SUCH_BUCKET during CreateMultipartUpload operation: no", Outcome.REFUSED),
        ("AWS Error UNKNOWN (HTTP status 301) during HeadObject operation: No response body.", Outcome.REFUSED),
        ("AWS Error NO_SUCH_KEY during GetObject operation: no", Outcome.GONE),
    ],
)
def test_pyarrow_tells_of_s3_in_words_alone(text: str, outcome: Outcome) -> None:
    for content in (False, True):
        assert outcome_of(OSError(f"When reading information for key 'a' in bucket 'b': {text}"), content=content) is outcome


def test_what_arrow_says_of_a_file_is_damage_only_where_a_file_is_read() -> None:
    said = OSError("Expected to be able to read 512 bytes for message body, got 100")
    assert outcome_of(said, content=True) is Outcome.BROKEN
    assert outcome_of(said) is Outcome.AWAY
    assert outcome_of(OSError("google::cloud::Status(UNAVAILABLE: Retry policy exhausted)"), content=True) is Outcome.AWAY


@pytest.mark.parametrize(("status", "outcome"), [(500, "AWAY"), (502, "AWAY"), (408, "AWAY"), (409, "AWAY"), (400, "REFUSED"), (0, "AWAY")])
def test_a_store_with_names_of_its_own_is_understood_by_its_status(status: int, outcome: str) -> None:
    assert of_aws("WhoKnows", status) is Outcome[outcome]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (exceptions.EndpointConnectionError(endpoint_url="http://x"), Outcome.AWAY),
        (exceptions.ConnectTimeoutError(endpoint_url="http://x"), Outcome.AWAY),
        (exceptions.ReadTimeoutError(endpoint_url="http://x"), Outcome.AWAY),
        (exceptions.ConnectionClosedError(endpoint_url="http://x"), Outcome.AWAY),
        (exceptions.CredentialRetrievalError(provider="iam-role", error_msg="timed out"), Outcome.AWAY),
        (exceptions.MetadataRetrievalError(error_msg="timed out"), Outcome.AWAY),
        (exceptions.ResponseStreamingError(error="closed"), Outcome.AWAY),
        (exceptions.NoCredentialsError(), Outcome.REFUSED),
        (exceptions.ProfileNotFound(profile="x"), Outcome.REFUSED),
        (exceptions.ClientError({"Error": {"Code": "SlowDown"}, "ResponseMetadata": {"HTTPStatusCode": 503}}, "PutObject"), Outcome.AWAY),
        (
            exceptions.ClientError({"Error": {"Code": "AccessDenied"}, "ResponseMetadata": {"HTTPStatusCode": 403}}, "PutObject"),
            Outcome.REFUSED,
        ),
    ],
)
def test_botocore_tells_by_classes(error: Exception, outcome: Outcome) -> None:
    assert s3._outcome(error) is outcome


def test_errors_name_what_and_what_to_do_and_no_secret() -> None:
    for outcome, kind in (
        (Outcome.AWAY, LogUnavailable),
        (Outcome.FULL, DiskLow),
        (Outcome.REFUSED, LogRefused),
        (Outcome.GONE, SegmentGone),
        (Outcome.BROKEN, LogCorrupt),
    ):
        error = error_of(outcome, "s3://KEY:secret@bucket/log/a.arrow?region=x", "s3://KEY:secret@bucket says\n no")
        assert type(error) is kind
        assert "bucket/log/a.arrow" in error.message
        assert error.hint
        assert "secret" not in str(error)
    assert error_of(Outcome.AWAY, "a", "b").retryable
    assert not error_of(Outcome.REFUSED, "a", "b").retryable


def test_a_file_that_may_be_missing_is_for_the_caller_to_judge() -> None:
    with pytest.raises(FileNotFoundError), storage_errors("a"):
        raise FileNotFoundError(errno.ENOENT, "no")
    with pytest.raises(SegmentGone), storage_errors("a", content=True):
        raise FileNotFoundError(errno.ENOENT, "no")
    with pytest.raises(LogUnavailable), storage_errors("a", writing=True):  # it was there a moment ago
        raise FileNotFoundError(errno.ENOENT, "no")


def test_which_mounts_are_served_from_elsewhere(tmp_path: Path) -> None:
    lines = [
        "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue",
        "40 35 0:52 / /net rw,relatime shared:29 - nfs4 server:/export rw,vers=4.2",
        "41 35 0:53 / /fuse rw - fuse.sshfs host:/ rw",
    ]
    assert [mounts.kind_of(lines, device) for device in ("98:0", "0:52", "0:53", "0:99")] == ["ext3", "nfs4", "fuse.sshfs", ""]
    assert not mounts.is_remote(tmp_path.stat().st_dev)


def test_a_file_that_is_served_is_read_not_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of a mapping that cannot be read is a SIGBUS, which cannot become an error."""
    writer = LogWriter.create(LocalStorage(tmp_path / "log", sync=False), LogIdentity("1", START, 1), snapshot=META)
    path = writer.partition(0).publish(START + 9, [batch_of([put(7, 1, START + 1)])])
    writer.close()
    monkeypatch.setattr("tidemill.changelog.storage.open.is_remote", lambda device: True)
    monkeypatch.setattr(pa, "memory_map", lambda path: pytest.fail("it is mapped"))
    segment = open_segment(path)
    assert read_batch(segment, 0, path).num_rows == 1


# ---- every operation of a storage


def operations(storage: Storage, segment: str) -> dict[str, Callable[[], object]]:
    """Every request to a log's storage."""

    def draft() -> None:
        one = storage.draft("rows/0")
        try:
            one.sink.write(b"x")
            one.seal()
            one.publish("x.arrow")
        finally:
            one.discard()

    return {
        "names": lambda: storage.names("rows/0"),
        "entries": lambda: storage.entries("rows/0"),
        "subfolders": lambda: storage.subfolders("rows"),
        "below": lambda: storage.below("rows"),
        "read": lambda: storage.read("log.json"),
        "replace": lambda: storage.replace("feeds/a.json", b"1"),
        "draft": draft,
        "delete": lambda: storage.delete("feeds/b.json"),
        "size": lambda: storage.size(storage.name(segment)),
        "open": lambda: storage.open(storage.name(segment)),
        "open by path": lambda: open_segment(segment),
    }


def made_log(location: str | Path) -> tuple[Storage, str]:
    writer = LogWriter.create(location, LogIdentity("1", START, 1), snapshot=META)
    path = writer.partition(0).publish(START + 9, [batch_of([put(7, 1, START + 1)])])
    writer.close()
    return writer.storage, path


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.EIO, LogUnavailable), (errno.ESTALE, LogUnavailable), (errno.EACCES, LogRefused), (errno.EDQUOT, DiskLow)],
)
def test_a_folder_that_fails_is_told_and_then_there_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[TidemillError]
) -> None:
    storage, segment = made_log(tmp_path / "log")
    mount = Mount(tmp_path / "log", monkeypatch)
    for name, ask in operations(storage, segment).items():
        mount.number = number
        with pytest.raises(kind, match="log"):
            ask()
        mount.number = None
        ask()
        assert not [n for n in storage.names("rows/0") if n.endswith(".tmp")], name
    mount.number = number
    for more in (
        storage.free_bytes,
        lambda: storage.settle("rows/0"),
        lambda: Ownership(storage, ["rows/0"]),
        lambda: LogWriter.open(storage),
    ):
        with pytest.raises(kind):
            more()
    mount.number = None
    LogWriter.open(storage).close()


def test_a_lock_that_cannot_be_given_back_does_not_hang_the_next_publication(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(tmp_path / "log")
    writer = LogWriter.create(storage, LogIdentity("1", START, 1), snapshot=META)
    mount = Mount(tmp_path / "log", monkeypatch)
    for at in range(3):
        mount.number = errno.ESTALE
        with pytest.raises(LogUnavailable):
            writer.partition(0).publish(START + 10 * at + 9, [batch_of([put(7, 1, START + 10 * at + 1)])])
        mount.number = None
        writer.partition(0).publish(START + 10 * at + 9, [batch_of([put(7, 1, START + 10 * at + 1)])])
    writer.close()
    assert [i.to_ts for i in LogReader(storage).listing("rows/0").intervals] == [START + 9, START + 19, START + 29]


def test_a_batch_whose_bytes_do_not_come_is_not_called_broken(tmp_path: Path) -> None:
    class Reader:
        def get_batch(self, number: int) -> pa.RecordBatch:
            raise OSError("When reading: AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 28, Timeout was reached")

    with pytest.raises(LogUnavailable, match=r"a\.arrow"):
        read_batch(Reader(), 0, "a.arrow")


def test_verify_calls_nothing_damage_that_it_could_not_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, segment = made_log(tmp_path / "log")
    before = verify(storage)
    mount = Mount(Path(segment), monkeypatch)
    mount.number = errno.EIO
    with pytest.raises(LogUnavailable):
        verify(storage)
    mount.number = None
    assert verify(storage) == before


# ---- S3


@contextmanager
def answering(status: int, code: str) -> Iterator[str]:
    """An endpoint that gives every request the same answer; 0: none, the connection ends."""
    body = f"<Error><Code>{code}</Code><Message>because</Message></Error>".encode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else a body waits until the client has acknowledged the head, up to 40 ms

        def log_message(self, format: str, *args: object) -> None:
            pass

        def handle_any(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if not status:
                self.close_connection = True
                return
            self.send_response_only(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def s3_url(host: str, bucket: str = "bucket") -> str:
    return f"s3://test:test@{bucket}/log?endpoint_override={host}&scheme=http&region=us-east-1"


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are not repeated below us, and no answer is cached."""
    monkeypatch.setattr(s3, "REQUESTS", 1)
    s3._client.cache_clear()


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        pytest.param(503, "SlowDown", LogUnavailable, marks=LIKE_500),  # the client waits by itself
        (500, "InternalError", LogUnavailable),
        pytest.param(502, "", LogUnavailable, marks=LIKE_500),
        pytest.param(429, "TooManyRequests", LogUnavailable, marks=LIKE_500),
        (0, "", LogUnavailable),
        (403, "AccessDenied", LogRefused),
        (403, "InvalidAccessKeyId", LogRefused),
    ],
)
def test_what_s3_answers(once: None, status: int, code: str, kind: type[TidemillError]) -> None:
    with answering(status, code) as host:
        storage = open_storage(s3_url(host))
        for name, ask in operations(storage, storage.path("rows/0/a.arrow")).items():
            with pytest.raises(kind) as told:
                ask()
            assert "test:test" not in str(told.value), name
        with pytest.raises(kind):
            assert storage.can_swap
    s3._client.cache_clear()


def test_an_endpoint_that_nobody_listens_at_may_be_there_later(once: None) -> None:
    storage = open_storage(s3_url("127.0.0.1:9"))
    with pytest.raises(LogUnavailable, match=r"bucket/log.*connect"):
        storage.read("log.json")
    with pytest.raises(LogUnavailable):
        assert storage.can_swap
    s3._client.cache_clear()


@pytest.mark.slow
def test_an_answer_that_gets_lost_in_the_middle_of_a_publication(s3_server: str) -> None:
    """Whichever request fails, the publication can be repeated, and every row is there once."""
    bucket = f"lost-{next(_buckets)}"
    make_bucket(s3_server, bucket)
    host = s3_server.partition("://")[2]
    LogWriter.create(s3_url(host, bucket), LogIdentity("1", START, 1), snapshot=META).close()
    left = [0]

    def spoil(method: str, path: str) -> Fault:
        if not left[0] or (method != "PUT" and left[0] <= 20):
            return Fault.NONE
        left[0] -= 1  # a read that fails counts too: a publication may have to read before it writes anything
        return Fault.LOST_ANSWER if method == "PUT" else Fault.LOST_REQUEST

    with spoiled(s3_server, spoil) as endpoint:
        writer = LogWriter.open(s3_url(endpoint.partition("://")[2], bucket))
        for at, losses in enumerate((1, 3, 6, 40)):
            left[0] = losses
            end, rows = START + 10 * at + 9, [put(7, 1, START + 10 * at + 1)]
            while True:
                try:
                    writer.partition(0).publish(end, [batch_of(rows)])
                    break
                except LogUnavailable:
                    if writer.partition(0).last_to == end:
                        writer.partition(0).set_head(end)
                        break
        identity = writer.identity
        left[0] = 40
        with pytest.raises(LogUnavailable):
            writer.set_identity(identity.moved_to(START + 1))
        left[0] = 0
        writer.set_identity(identity.moved_to(START + 2))  # what was lost is this writer's own
        writer.close()
    reader = LogReader(s3_url(host, bucket))
    assert reader.start_ts == START + 2
    assert reader.head(0) == START + 39
    assert [i.to_ts for i in reader.listing("rows/0").intervals] == [START + 9, START + 19, START + 29, START + 39]


def test_time_outs_and_repetitions_of_requests_fit_a_storage_that_is_asked_again() -> None:
    given = pyarrow.fs.S3FileSystem(
        access_key="a", secret_key="b", region="us-east-1", connect_timeout=7, proxy_options="http://u:p@proxy:1"
    )
    options = s3.with_retries(given).__reduce__()[1][0]
    assert (options["connect_timeout"], options["request_timeout"]) == (7.0, s3.READ_TIMEOUT_S)
    assert options["proxy_options"]["host"] == "proxy"
    assert (options["access_key"], options["region"]) == ("a", "us-east-1")
    local = pyarrow.fs.LocalFileSystem()
    assert s3.with_retries(local) is local
