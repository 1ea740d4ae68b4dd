"""Storage sinks under test: a local folder and a bucket of moto's S3."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.servers.s3 import make_bucket, objects, s3_server
from tidemill.config.uri import SinkUri, parse_sink_uri
from tidemill.protocols.options import MessageFormat

__all__ = ["s3_server"]
_numbers = itertools.count()


@dataclass(frozen=True)
class Place:
    """Where a sink writes. `uri`: with these parameters."""

    address: str
    files: Callable[[], dict[str, bytes]]

    def uri(self, parameters: str = "", protocol: MessageFormat = MessageFormat.CSV) -> SinkUri:
        mark = "&" if "?" in self.address else "?"
        return parse_sink_uri(f"{self.address}{mark}protocol={protocol.value}" + (f"&{parameters}" if parameters else ""))

    def published(self) -> dict[str, bytes]:
        """All but the sink's own notes."""
        return {name: data for name, data in self.files().items() if not name.startswith(".tidemill/")}


def local_files(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()} if root.is_dir() else {}


@pytest.fixture(params=["file", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "file":
        return Place(f"file://{tmp_path}/out", lambda: local_files(tmp_path / "out"))
    endpoint: str = request.getfixturevalue("s3_server")
    bucket = f"bucket-{next(_numbers)}"
    make_bucket(endpoint, bucket)
    address = f"s3://{bucket}/a/b?endpoint={endpoint}&access-key=test&secret-access-key=test&region=us-east-1"
    return Place(address, lambda: objects(endpoint, f"{bucket}/a/b"))
