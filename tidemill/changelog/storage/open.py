"""Opens the storage of a change log: a local folder, whose segments are mapped, or a file system that pyarrow knows.

A local file is written under a temporary name, synced, renamed, and its folder synced. Elsewhere it is created by one PUT. Errors of the
operating system and of pyarrow are converted to Tidemill's, see `outcomes`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs

from tidemill.changelog.files.arrowfile import ArrowFile, Known
from tidemill.changelog.storage import durable as files
from tidemill.changelog.storage import s3
from tidemill.changelog.storage.base import Draft, Entry, Storage, Token, temporary_name
from tidemill.changelog.storage.bounded import read_whole
from tidemill.changelog.storage.conditional import Objects, swap, tried
from tidemill.changelog.storage.durable import forget, make_folder, sync_folder
from tidemill.changelog.storage.keys import with_keys
from tidemill.changelog.storage.mounts import is_remote
from tidemill.changelog.storage.outcomes import Outcome, broken, gone, outcome_of, storage_errors
from tidemill.errors import LogError, LogUnavailable, redact

__all__ = ["Draft", "Entry", "LocalStorage", "RemoteStorage", "Storage", "Token", "make_folder", "open_segment", "open_storage"]

_PIECE = 1 << 16
"""Bytes of a small file that are read at a time."""
READS = 10
"""How often a small file is read that is replaced during each read."""
_RENAMING = {"hdfs"}  # file systems without PUT, with a rename


def open_storage(location: str | Path | Storage, scratch: Path | None = None) -> Storage:
    """Open the storage of a path or a URL (file://, s3://, gs://, hdfs://, … as pyarrow knows them). Raises LogError.

    `scratch`: a local folder for files that are uploaded as a whole; by default the machine's temporary folder."""
    if isinstance(location, Storage):
        return location
    text = str(location)
    if "\0" in text or ("://" in text and "\0" in unquote(text)):
        raise LogError(f"{redact(text)!r} cannot be opened: it has a zero byte (%00)")
    if "://" not in text:
        return LocalStorage(text)
    if text.startswith("file://"):
        return LocalStorage(urlsplit(text).path)
    filesystem, root = _file_system(text)
    return RemoteStorage(filesystem, root, text, scratch=scratch)


def open_segment(path: str) -> ArrowFile:
    """Open a segment by its path or URL alone, as tasks know it; it is mapped if it is local.

    Raises SegmentGone if there is no such file, LogCorrupt if it is not a whole Arrow file, LogUnavailable, LogRefused.
    """
    if "://" not in path:
        return _open_local(path, remembered=True)
    bare, mark, query = path.partition("?")
    folder, _, name = bare.rpartition("/")
    filesystem, root = _file_system(folder + mark + query)
    return RemoteStorage(filesystem, root, folder + mark + query).open(name)


@lru_cache(maxsize=64)
def _file_system(url: str) -> tuple[Any, str]:
    try:
        filesystem, root = pyarrow.fs.FileSystem.from_uri(with_keys(url))
    except (pa.ArrowInvalid, NotImplementedError) as e:
        raise LogError(redact(f"{url} cannot be opened: {e}")) from None
    except OSError as e:  # pyarrow asks AWS for the region of a bucket, and HDFS for its name node
        if outcome_of(e) is Outcome.AWAY and (e.errno is not None or "AWS Error" in str(e)):
            raise LogUnavailable(redact(f"{url} cannot be opened now: {e}")) from None
        raise LogError(redact(f"{url} cannot be opened: {e}")) from None
    return s3.with_retries(filesystem), root


@lru_cache(maxsize=4096)
def _known(path: str, inode: int, size: int, modified: int) -> Known:
    """Return what this process has learnt of a file: the planner and the tasks open it for each interval that it has a part of."""
    return Known()


def _open_local(path: str, *, remembered: bool = False) -> ArrowFile:
    with storage_errors(path, content=True):
        stat = os.stat(path)  # noqa: PTH116 – of every segment that is opened
        if not stat.st_size:
            raise broken(path, "it is empty")
        known = _known(path, stat.st_ino, stat.st_size, stat.st_mtime_ns) if remembered else None
        return ArrowFile(_ranges_of(path, stat), path, known)


def _ranges_of(path: str, stat: os.stat_result) -> Any:
    # If the server of a mapped file is away, reading the mapping kills the process (SIGBUS). A read of the file raises an error instead.
    return pa.OSFile(path) if is_remote(stat.st_dev) else pa.memory_map(path)


# ---- a local folder ------------------------------------------------------------------------------------------------


class LocalStorage(Storage):
    """A local folder. `sync=False` (tests, benchmarks) leaves syncing to the operating system."""

    def __init__(self, root: str | Path, *, sync: bool = True) -> None:
        self.location = os.path.abspath(root)  # noqa: PTH100 – Path.absolute keeps `..`
        self._sync = sync

    @property
    def local(self) -> bool:
        return True

    def names(self, folder: str) -> list[str]:
        path = self.path(folder)
        try:
            with storage_errors(path):
                return os.listdir(path)  # noqa: PTH208 – thousands of names, each of which pathlib would wrap
        except FileNotFoundError:
            return []

    def below(self, folder: str) -> list[str]:
        start = len(self.path(folder)) + 1

        def fail(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise error

        with storage_errors(self.path(folder)):
            return [f"{where}/{name}"[start:] for where, _, names in os.walk(self.path(folder), onerror=fail) for name in names]

    def entries(self, folder: str) -> list[Entry]:
        found = []
        path = self.path(folder)
        try:
            with storage_errors(path), os.scandir(path) as files:
                for f in files:
                    with contextlib.suppress(FileNotFoundError):
                        stat = f.stat()
                        if f.is_file():
                            found.append(Entry(f.name, stat.st_size, stat.st_mtime))
        except FileNotFoundError:
            return []
        return found

    def subfolders(self, folder: str) -> list[str]:
        path = self.path(folder)
        try:
            with storage_errors(path), os.scandir(path) as files:
                return [f.name for f in files if f.is_dir()]
        except FileNotFoundError:
            return []

    def read(self, name: str) -> bytes | None:
        path = self.path(name)
        try:
            with storage_errors(path):
                return _content(path)
        except FileNotFoundError:
            return None

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        files.replace(self.path(name), data, sync=durable and self._sync)

    def draft(self, folder: str) -> Draft:
        return _LocalDraft(self.path(folder), sync=self._sync)

    def settle(self, folder: str) -> None:
        if self._sync:
            path = self.path(folder) if folder else self.location
            with storage_errors(path, writing=True):
                sync_folder(path)

    def sync(self, name: str) -> None:
        if not self._sync:
            return
        with contextlib.suppress(FileNotFoundError), storage_errors(self.path(name)):
            handle = os.open(self.path(name), os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
            self.settle(name.rpartition("/")[0])

    def delete(self, name: str) -> None:
        with storage_errors(self.path(name)):
            Path(self.path(name)).unlink(missing_ok=True)

    def delete_folder(self, folder: str) -> None:
        with contextlib.suppress(FileNotFoundError), storage_errors(self.path(folder)):
            shutil.rmtree(self.path(folder))

    def open(self, name: str) -> ArrowFile:
        return _open_local(self.path(name))

    def ranges(self, name: str) -> Any:
        with storage_errors(self.path(name), content=True):
            stat = Path(self.path(name)).stat()
            if not stat.st_size:
                raise broken(self.path(name), "it is empty")
            return _ranges_of(self.path(name), stat)

    def size(self, name: str) -> int:
        with storage_errors(self.path(name), content=True):
            return os.stat(self.path(name)).st_size  # noqa: PTH116 – of every segment of a batch

    def free_bytes(self) -> int | None:
        with storage_errors(self.location):
            return shutil.disk_usage(self.location).free


def _content(path: str) -> bytes:
    """Return what a small file holds. Heads and fences are read often: Python's file object would ask the system twice as much."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = [os.read(handle, _PIECE)]
        while pieces[-1]:
            pieces.append(os.read(handle, _PIECE))
        return b"".join(pieces)
    finally:
        os.close(handle)


class _LocalDraft(Draft):
    def __init__(self, folder: str, *, sync: bool) -> None:
        self._folder, self._sync = folder, sync
        self._path = f"{folder}/{temporary_name()}"
        self._handle = -1
        self._published = False
        with storage_errors(folder, writing=True):
            try:
                self.sink = pa.OSFile(self._path, "wb")
            except FileNotFoundError:
                make_folder(folder, sync=sync)
                self.sink = pa.OSFile(self._path, "wb")
            # The file is opened at once: the next owner of the folder removes its name, and then the publication here must fail.
            self._handle = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC) if sync else -1

    def seal(self) -> None:
        with storage_errors(self._folder, writing=True):
            self.sink.close()
            try:
                if self._sync:
                    os.fdatasync(self._handle)
            finally:
                self._close()

    def _close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def publish(self, name: str) -> None:
        with storage_errors(f"{self._folder}/{name}", writing=True):
            os.rename(self._path, f"{self._folder}/{name}")  # noqa: PTH104
            self._published = True

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self._close()
        with contextlib.suppress(OSError):
            self.sink.close()
        if not self._published:
            forget(self._path)


# ---- any file system of pyarrow ------------------------------------------------------------------------------------


class RemoteStorage(Storage):
    """A log on a file system that pyarrow knows. Segments are written to a local scratch file and uploaded by one PUT: a stream that is
    closed half-way would leave half a segment."""

    def __init__(self, filesystem: Any, root: str, location: str = "", objects: Objects | None = None, scratch: Path | None = None) -> None:
        """`objects`: conditional requests to the same place; found automatically for S3. `scratch` as in `open_storage`."""
        self._scratch = scratch or Path(tempfile.gettempdir())
        self._fs, self._root, self._objects = filesystem, root.rstrip("/"), objects
        self._can_swap: bool | None = None
        self._looked = False
        self.location = location or f"{filesystem.type_name}://{root}"
        bare, mark, query = self.location.partition("?")
        self._base, self._query = bare.rstrip("/") + "/", mark + query  # options of the URL stay at its end
        self._renaming = filesystem.type_name in _RENAMING

    @property
    def local(self) -> bool:
        return False

    def path(self, name: str) -> str:
        return self._base + name + self._query

    def name(self, path: str) -> str:
        return path.removeprefix(self._base).removesuffix(self._query)

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _listing(self, folder: str) -> list[Any]:
        with storage_errors(self.path(folder)):
            found: list[Any] = self._fs.get_file_info(pyarrow.fs.FileSelector(self._at(folder), allow_not_found=True))
        return found

    def names(self, folder: str) -> list[str]:
        return [i.base_name for i in self._listing(folder) if i.is_file]

    def below(self, folder: str) -> list[str]:
        selector = pyarrow.fs.FileSelector(self._at(folder), allow_not_found=True, recursive=True)
        start = len(self._at(folder)) + 1
        with storage_errors(self.path(folder)):
            return [i.path[start:] for i in self._fs.get_file_info(selector) if i.is_file]

    def entries(self, folder: str) -> list[Entry]:
        return [Entry(i.base_name, i.size, (i.mtime_ns or 0) / 1e9) for i in self._listing(folder) if i.is_file]

    def subfolders(self, folder: str) -> list[str]:
        return [i.base_name for i in self._listing(folder) if i.type == pyarrow.fs.FileType.Directory]

    def read(self, name: str) -> bytes | None:
        requests = self._requests()
        if requests is not None:
            found = requests.get(name)
            return None if found is None else found[0]
        for _ in range(READS):
            try:
                with storage_errors(self.path(name)), self._fs.open_input_stream(self._at(name)) as f:
                    data = read_whole(f.read)
                    now = self._fs.get_file_info(self._at(name))
                if not now.is_file or now.size == len(data):
                    return data
            except FileNotFoundError:
                return None
        raise LogUnavailable(f"{redact(self.path(name))} was replaced by another size {READS} times while it was read")

    def _requests(self) -> Objects | None:
        """The same place by single requests, if they are supported. A file read this way is whole even if it is replaced meanwhile: pyarrow
        asks for the size first, and then for that many bytes of the new version."""
        if not self._looked:
            self._objects = self._objects or s3.objects_of(self._fs, self._root)
            self._looked = True
        return self._objects

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        self._make_folder(name.rpartition("/")[0])
        self._put(name, data)

    def _make_folder(self, folder: str) -> None:
        # Object stores have no folders; file systems need them.
        if self._fs.type_name not in ("s3", "gcs", "abfs"):
            with storage_errors(self.path(folder), writing=True):
                self._fs.create_dir(self._at(folder), recursive=True)

    def _put(self, name: str, data: Any) -> None:
        with storage_errors(self.path(name), writing=True), self._fs.open_output_stream(self._at(name)) as f:
            f.write(data)

    def put_file(self, name: str, scratch: str) -> None:
        """Upload a local file. If the name exists and `swap` works, the existing file stays. A name determines the content, and a reader of
        a replaced file would see parts of both."""
        if self._can_swap and self._objects is not None and self._objects.create(name, scratch):
            return
        with pa.memory_map(scratch) as source:
            data = source.read_buffer()
            if not self._renaming:
                self._put(name, data)
                return
            folder = name.rpartition("/")[0]
            temporary = f"{folder}/{temporary_name()}"
            self._put(temporary, data)
            try:
                with storage_errors(self.path(name), writing=True):
                    self._fs.move(self._at(temporary), self._at(name))
            except LogUnavailable:
                if self.names(folder).count(name.rpartition("/")[2]) == 0 or self.size(name) != data.size:
                    raise
                self.delete(temporary)  # it has its name already: an answer got lost

    @property
    def can_swap(self) -> bool:
        """Whether the store supports conditional PUTs. Some ignore the condition, so one is tried that has to fail."""
        if self._can_swap is None:
            requests = self._requests()
            self._can_swap = requests is not None and tried(requests)
        return self._can_swap

    def versioned(self, name: str) -> tuple[bytes, Token] | None:
        assert self._objects is not None
        return self._objects.get(name)

    def swap(self, name: str, expected: Token | None, data: bytes) -> Token | None:
        assert self._objects is not None
        return swap(self._objects, name, expected, data)

    def draft(self, folder: str) -> Draft:
        self._make_folder(folder)
        return _RemoteDraft(self, folder, self._scratch)

    def settle(self, folder: str) -> None:
        """Do nothing: a PUT that returned is durable."""

    def sync(self, name: str) -> None:
        """Do nothing: a PUT that returned is durable."""

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError), storage_errors(self.path(name)):
            self._fs.delete_file(self._at(name))

    def delete_folder(self, folder: str) -> None:
        with contextlib.suppress(FileNotFoundError), storage_errors(self.path(folder)):
            self._fs.delete_dir(self._at(folder))

    def open(self, name: str) -> ArrowFile:
        with storage_errors(self.path(name), content=True):
            return ArrowFile(self.ranges(name), self.path(name))

    def ranges(self, name: str) -> Any:
        with storage_errors(self.path(name), content=True):
            source = self._fs.open_input_file(self._at(name))
            if not source.size():
                raise broken(self.path(name), "it is empty")
            return source

    def size(self, name: str) -> int:
        with storage_errors(self.path(name)):
            info = self._fs.get_file_info(self._at(name))
        if not info.is_file:
            raise gone(self.path(name))
        return int(info.size)

    @property
    def place(self) -> str:
        return str(self._scratch)

    def free_bytes(self) -> int | None:
        """Return the free space of the scratch folder: that of the store is unknown."""
        try:
            return shutil.disk_usage(self._scratch).free
        except FileNotFoundError:  # the folder is created with the first draft
            return None


class _RemoteDraft(Draft):
    """A scratch file without a name, so that a killed process leaves none behind."""

    def __init__(self, storage: RemoteStorage, folder: str, scratch: Path) -> None:
        self._storage, self._folder = storage, folder
        self.place = str(scratch)
        with storage_errors(self.place, writing=True):
            scratch.mkdir(parents=True, exist_ok=True)
            # The name is removed at once: however this process ends, nothing is left.
            self._handle, path = tempfile.mkstemp(dir=scratch, prefix=".draft-")
            self.sink = pa.OSFile(path, "wb")
            os.unlink(path)  # noqa: PTH108

    def seal(self) -> None:
        with storage_errors(self.place, writing=True):
            self.sink.close()

    def publish(self, name: str) -> None:
        self._storage.put_file(f"{self._folder}/{name}", f"/proc/self/fd/{self._handle}")
        self.discard()

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self.sink.close()
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
