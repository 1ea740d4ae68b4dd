"""A store that speaks something like S3: what it answers ends with an answer or with one of our errors, and takes no memory without end."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow.fs
import pytest

from tidemill.changelog.storage import bounded, s3
from tidemill.changelog.storage.bounded import read_whole
from tidemill.changelog.storage.conditional import Outcome
from tidemill.changelog.storage.s3 import S3Objects
from tidemill.errors import LogRefused, LogUnavailable

ENTITIES = b'<?xml version="1.0"?><!DOCTYPE e [<!ENTITY a "aaaaaaaaaa">%s]><Error><Code>&j;</Code></Error>' % b"".join(
    b'<!ENTITY %c "%s">' % (98 + i, b"&%c;" % (97 + i) * 10) for i in range(9)
)
GOOD = {"ETag": '"x"', "Content-Length": "3"}
ANSWERS: dict[str, tuple[int, dict[str, str], bytes]] = {
    "entities that expand": (403, {}, ENTITIES),
    "deep XML": (400, {}, b"<a>" * 50_000),
    "no XML": (500, {}, b"\xff\xfe<"),
    "a length below nothing": (200, GOOD | {"Content-Length": "-5"}, b"abc"),
    "a length of all memory": (200, GOOD | {"Content-Length": str(1 << 62)}, b"abc"),
    "a length of many digits": (200, GOOD | {"Content-Length": "9" * 5000}, b"abc"),
    "a length that is no number": (200, GOOD | {"Content-Length": "x"}, b"abc"),
    "no ETag": (200, {"Content-Length": "3"}, b"abc"),
    "a date that is none": (200, GOOD | {"Last-Modified": "x"}, b"abc"),
    "another region": (301, {"x-amz-bucket-region": "e.example/"}, b"<Error><Code>PermanentRedirect</Code></Error>"),
    "redirects to itself": (307, {"Location": "/again"}, b"<Error><Code>TemporaryRedirect</Code></Error>"),
    "redirects elsewhere": (302, {"Location": "http://127.0.0.1:1/"}, b""),
}


class Store(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = ANSWERS["no ETag"]


class _Handler(BaseHTTPRequestHandler):
    server: Store
    protocol_version = "HTTP/1.1"  # else a client that sends `Expect: 100-continue` waits a second for a word that never comes

    def _any(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, headers, body = self.server.answer
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)
        self.close_connection = True

    do_GET = do_HEAD = do_PUT = _any

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def objects(store: Store) -> S3Objects:
    """… asked once, not several times."""
    place = f"127.0.0.1:{store.server_port}"
    plain = pyarrow.fs.S3FileSystem(access_key="a", secret_key="s", region="us-east-1", scheme="http", endpoint_override=place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s3, "REQUESTS", 1)
        found = s3.objects_of(s3.with_retries(plain), "bucket/log")
    assert found is not None
    return found


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_ends_with_an_error_of_ours(store: Store, objects: S3Objects, name: str) -> None:
    store.answer = ANSWERS[name]
    with pytest.raises((LogUnavailable, LogRefused)):
        objects.get("a.json")
    with suppress(LogUnavailable, LogRefused):
        assert isinstance(objects.put("a.json", b"x", None), Outcome | str)


def test_a_state_has_a_largest_size(store: Store, objects: S3Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "LARGEST", 1000)
    store.answer = 200, {"ETag": '"x"'}, b"a" * 1001
    with pytest.raises(LogRefused, match="no state of ours"):
        objects.get("a.json")
    store.answer = 200, {"ETag": '"x"'}, b"a" * 1000
    assert objects.get("a.json") == (b"a" * 1000, '"x"')
    with pytest.raises(OSError, match="no state of ours") as found:
        read_whole(lambda size: b"abc")
    assert found.value.errno == errno.EINVAL
