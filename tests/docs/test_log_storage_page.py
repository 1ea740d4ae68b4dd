"""The page about a log's storage: its table of parameters is what URLs take, and its tables of rights are what requests need."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs

import pyarrow.fs
import pytest

from tests.changelog.conftest import META
from tests.support.changelog.logs import START, batch_of, put
from tests.support.faults.s3_faults import Fault, spoiled
from tests.support.servers.s3 import make_bucket, s3_server  # noqa: F401
from tidemill.changelog import compaction, feeds
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.options import LogOptions
from tidemill.changelog.reader import LogReader
from tidemill.changelog.retention import drop
from tidemill.changelog.storage.open import open_storage
from tidemill.changelog.verify import verify
from tidemill.changelog.writer import LogWriter
from tidemill.delivery.guarded import GuardedFile

PAGE = Path(__file__).parents[2] / "docs" / "log-storage.md"
BUCKET = "rights"
SECOND = 1000 << 18
FEW = 4
"""Segments that are joined: a log has to have that many."""

Actions = set[str]


def section(title: str) -> str:
    return PAGE.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]


def parameters(title: str) -> dict[str, str]:
    """Parameter and a value that it takes, as the table has them."""
    return dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", section(title), re.MULTILINE))


SCHEMES = {"S3": "s3://b/p?", "GCS": "gs://b/p?"}


@pytest.mark.parametrize("title", SCHEMES)
def test_parameters_are_those_that_urls_take(title: str) -> None:
    listed = parameters(title)
    assert len(listed) > 4
    for name, value in listed.items():
        region = "&region=us-east-1" if title == "S3" and name != "region" else ""
        pyarrow.fs.FileSystem.from_uri(f"{SCHEMES[title]}{name}={value}{region}")


@pytest.mark.parametrize("name", ["access_key", "secret_key", "session_token", "anonymous", "role_arn", "background_writes", "endpoint"])
def test_others_are_refused(name: str) -> None:
    assert name not in parameters("S3")
    with pytest.raises(Exception, match="Unexpected query parameter"):
        pyarrow.fs.FileSystem.from_uri(f"s3://b/p?region=us-east-1&{name}=x")


def action_of(method: str, path: str) -> str:
    """The right that a request to S3 needs."""
    place, _, query = path.partition("?")
    asked, key = parse_qs(query, keep_blank_values=True), place.strip("/").partition("/")[2]
    match method:
        case "GET" | "HEAD":
            return "s3:GetObject" if key else "s3:ListBucket"
        case "DELETE":
            return "s3:AbortMultipartUpload" if "uploadId" in asked else "s3:DeleteObject" if key else "s3:DeleteBucket"
        case "POST":
            return "s3:DeleteObject" if "delete" in asked else "s3:PutObject"
        case _:
            return "s3:PutObject" if key else "s3:CreateBucket"


@contextmanager
def rights_used(server: str) -> Iterator[tuple[str, Actions]]:
    """The URL of a log, and which rights are used on it."""
    used: Actions = set()

    def note(method: str, path: str) -> Fault:
        used.add(action_of(method, path))
        return Fault.NONE

    with spoiled(server, note) as endpoint:
        yield f"s3://test:test@{BUCKET}/logs/one?endpoint_override={endpoint.partition('://')[2]}&scheme=http&region=us-east-1", used


def capture(url: str) -> None:
    options = LogOptions(retention_ms=1, low_water_bytes=0, grace_s=0)
    with LogWriter.create(url, LogIdentity("7051", START, 1), snapshot=META, options=options) as writer:
        for n in range(1, FEW + 3):
            ts = START + n * SECOND
            writer.partition(0).publish(ts, [batch_of([put(70, n, ts)])])
            writer.schema.set_head(ts)
        assert writer.maintain(START).joined
        assert writer.maintain(START + 100 * SECOND).removed


def deliver(url: str) -> None:
    storage = open_storage(url)
    feeds.register(storage, "f", LogReader(url).start_ts)
    fence = GuardedFile(storage, "fences/f.json", "driver")
    fence.write({"from_ts": 1, "to_ts": 2}, 1)
    read(url)
    feeds.remove(storage, "f")


def read(url: str) -> None:
    assert verify(url).is_whole
    LogReader(url).heads()


def remove(url: str) -> None:
    drop(open_storage(url))


@pytest.mark.slow
def test_rights_on_s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Each role uses the rights that the table gives it, and no other."""
    monkeypatch.setattr(compaction, "FAN_IN", FEW)
    make_bucket(s3_server, BUCKET)
    rows = re.findall(r"^\| ([a-z]+): [^|]* \| ([^|]*) \|", section("Rights on S3"), re.MULTILINE)
    told = {role: set(re.findall(r"`(s3:\w+)`", rights)) for role, rights in rows}
    roles: dict[str, Callable[[str], None]] = {"capture": capture, "delivery": deliver, "reading": read, "removing": remove}
    with rights_used(s3_server) as (url, used):
        for role, work in roles.items():
            used.clear()
            work(url)
            assert used <= told[role], role
            assert told[role] - used <= {"s3:AbortMultipartUpload"}, role
