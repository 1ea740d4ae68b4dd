"""Logs in every kind of storage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.fs
import pytest

from tests.support.changelog.logs import START
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.options import LogOptions
from tidemill.changelog.storage.open import LocalStorage, RemoteStorage, Storage
from tidemill.changelog.writer import LogWriter
from tidemill.tidb.keys import SCHEMA_VERSION_KEY

IDENTITY = LogIdentity("7051", START, 2)
META = {SCHEMA_VERSION_KEY: b"12"}


@pytest.fixture(params=["local", "file system", "objects"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """The location of a log: a mapped folder, a file system behind pyarrow, and one whose folders exist only in names."""
    if request.param == "local":
        return LocalStorage(tmp_path / "log", sync=False)
    if request.param == "file system":
        return RemoteStorage(pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem()), "log")
    return RemoteStorage(pyarrow.fs._MockFileSystem(), "bucket/log")


@pytest.fixture
def log(storage: Storage) -> LogWriter:
    """A new log of two partitions."""
    return LogWriter.create(storage, IDENTITY, snapshot=META)


Reopen = Callable[..., LogWriter]


@pytest.fixture
def reopened(log: LogWriter) -> Reopen:
    """Close the log's writer and open another one."""

    def reopen(options: LogOptions | None = None) -> LogWriter:
        log.close()
        return LogWriter.open(log.storage, **({"options": options} if options else {}))

    return reopen
