"""Files below a root in a local folder or an S3 bucket. A file appears as a whole: it is renamed into place, or made by one PUT.

Names are relative to the root, with `/`. Failures raise SinkError, or SinkUnavailable if they may be temporary. No error holds a key.

Several drivers may use a store at the same time, see `sinks/publication.py`. So a file that they share changes by compare-and-swap only
(`shared_file`, `change`), appears once (`create`, `move`), or belongs to one attempt (`stage`).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import secrets
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.fs

from tidemill import credentials
from tidemill.changelog.storage import s3
from tidemill.changelog.storage.base import Token
from tidemill.changelog.storage.bounded import read_whole
from tidemill.changelog.storage.conditional import Unconditional, swap
from tidemill.changelog.storage.flock import FolderLock
from tidemill.changelog.storage.open import LocalStorage, make_folder
from tidemill.changelog.storage.state_file import Change, StateFile
from tidemill.config.storage import S3Options
from tidemill.errors import SinkError, SinkUnavailable
from tidemill.sinks.parts import file_errors, log_errors, sync_folder

log = logging.getLogger(__name__)

LOCK = ".tidemill/publish"
"""A local store's compare-and-swaps take turns under this lock (`.lock` is appended)."""

_LASTING = ("ACCESS_DENIED", "NO_SUCH_BUCKET", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "NoSuchBucket", "InvalidAccessKeyId")
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}
"""What a file system without hard links answers."""
_TIMEOUT_S = 30.0
_MOVES_AT_ONCE = 16


def _digest(data: bytes) -> Token:
    return hashlib.sha256(data).hexdigest()


class Store(ABC):
    """See the module."""

    @abstractmethod
    def local_path(self, name: str) -> Path | None:
        """Return the local path for writing a file before it is moved. None: write it elsewhere and `upload` it."""

    @abstractmethod
    def upload(self, path: Path, name: str) -> None:
        """Make a whole local file a file of the store."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return a small file's content, or None if it does not exist."""

    @abstractmethod
    def shared_file(self, name: str) -> StateFile:
        """Return a small file that several drivers change, durably. Its calls belong into `log_errors`."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a small file durably, unless it exists: an existing one stays. Returns whether it was written. On an object store a file
        whose content is `data` counts as written: an answer may have been lost."""
        with log_errors():
            return self.shared_file(name).create(data)

    def change(self, name: str, change: Change) -> bytes | None:
        """Replace a small file durably by what `change` makes of its content (None: it does not exist); None from `change`: leave it.
        Returns what was written. Repeats `change` if somebody else was faster. Raises what `change` raises."""
        with log_errors():
            return self.shared_file(name).change(change)

    @abstractmethod
    def stage(self, name: str, data: bytes) -> None:
        """Write or replace a small file of one attempt. It need not survive a crash of the machine, unless `settle` names it."""

    @abstractmethod
    def settle(self, names: Iterable[str]) -> None:
        """Let the names of staged files, whose content is durable, survive a crash of the machine. Files that another driver has removed
        are left out."""

    @abstractmethod
    def move(self, moves: Iterable[tuple[str, str]]) -> None:
        """Give staged files their names, in any order, durably. A file without its old name but with its new one counts as moved, so a
        call may be repeated, also by another driver. A local store replaces no file that is there."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Return the names of a folder's files, without the folder. A missing folder has none."""

    @abstractmethod
    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders directly in a folder. A missing folder has none."""

    @abstractmethod
    def walk(self) -> Iterator[str]:
        """Yield all files."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a file if it exists."""

    @abstractmethod
    def make_folder(self, folder: str) -> None:
        """Make a folder for files that need not survive a crash of the machine. Object stores need no folders."""

    @abstractmethod
    def clear(self, folder: str) -> None:
        """Remove a folder and its content if it exists."""


class LocalStore(Store):
    """A folder of this machine, or of a file system that all machines share."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._storage = LocalStorage(root)
        self._lock = FolderLock(str(root / LOCK))

    def __str__(self) -> str:
        return str(self._root)

    def local_path(self, name: str) -> Path | None:
        return self._root / name

    def upload(self, path: Path, name: str) -> None:
        with file_errors("writing a file", self._root):
            target = self._root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)

    def read(self, name: str) -> bytes | None:
        with file_errors("reading a file", self._root):
            try:
                return (self._root / name).read_bytes()
            except FileNotFoundError:
                return None

    def shared_file(self, name: str) -> StateFile:
        """The lock is held for a look and a rename: a driver that is stopped while it holds the lock keeps the next one out."""
        return StateFile(self._storage, name, lock=self._lock, brief=True)

    def stage(self, name: str, data: bytes) -> None:
        target = self._root / name
        with file_errors("writing a file", target):
            # Two tasks may write the same name in an attempt's folder.
            ready = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
            ready.write_bytes(data)
            ready.replace(target)

    def settle(self, names: Iterable[str]) -> None:
        with file_errors("publishing files", self._root):
            for folder in {parent for name in names for parent in Path(name).parents}:
                with contextlib.suppress(FileNotFoundError):
                    sync_folder(self._root / folder)

    def move(self, moves: Iterable[tuple[str, str]]) -> None:
        folders = set()
        for old, new in moves:
            target = self._root / new
            with file_errors("publishing a file", target):
                make_folder(str(target.parent), sync=True)
                self._move(self._root / old, target)
                folders.add(target.parent)
        for folder in folders:
            with file_errors("publishing files", folder):
                sync_folder(folder)

    def _move(self, source: Path, target: Path) -> None:
        try:
            os.link(source, target)
        except FileNotFoundError:
            if not target.exists():
                raise
            return
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):
                if not source.samefile(target):  # else a crash came between link and unlink
                    raise SinkError(
                        f"{target} is there already, and this changefeed did not write it",
                        hint="Move the file elsewhere, or give the changefeed an empty folder.",
                    ) from None
        except OSError as error:
            if error.errno not in _NO_LINKS or target.exists():
                raise
            source.rename(target)
            return
        source.unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        return [path.name for path in self._listed(folder) if path.is_file()]

    def folders(self, folder: str) -> list[str]:
        return [path.name for path in self._listed(folder) if path.is_dir()]

    def _listed(self, folder: str) -> list[Path]:
        with file_errors("reading a folder", self._root):
            try:
                return [*(self._root / folder).iterdir()]
            except FileNotFoundError:
                return []

    def walk(self) -> Iterator[str]:
        with file_errors("reading a folder", self._root):
            for path in self._root.rglob("*"):
                if path.is_file():
                    yield path.relative_to(self._root).as_posix()

    def delete(self, name: str) -> None:
        with file_errors("removing a file", self._root):
            (self._root / name).unlink(missing_ok=True)

    def make_folder(self, folder: str) -> None:
        with file_errors("making a folder", self._root):
            (self._root / folder).mkdir(parents=True, exist_ok=True)

    def clear(self, folder: str) -> None:
        shutil.rmtree(self._root / folder, ignore_errors=True)


def _secrets(options: S3Options) -> dict[str, str]:
    """Return the secrets as they are now, by pyarrow's names. Raises as `credentials.read`."""
    return {
        "access_key": credentials.read(options.access_key),
        "secret_key": credentials.read(options.secret_access_key),
        "session_token": credentials.read(options.session_token),
        "external_id": credentials.read(options.external_id),
    }


class S3Store(Store):
    """A prefix of a bucket. A move is a copy in the store; the original is removed with its folder."""

    def __init__(self, options: S3Options, prefix: str) -> None:
        self._conditional = True  # until the store says that it knows no conditional requests
        self._root = f"{options.bucket}/{prefix.strip('/')}".rstrip("/")
        self._options = options
        self._secrets = _secrets(options)
        if options.role_arn:
            log.warning("%s is written through a role, without conditional requests: only one driver at a time may write there", self)
        self._open()

    def _open(self) -> None:
        options = self._options
        given = {**self._secrets, "region": options.region, "role_arn": options.role_arn}
        with self._errors("opening"):
            self._fs = s3.filesystem(options.endpoint, given, by_path=options.force_path_style, timeout_s=_TIMEOUT_S)

    def _renew(self) -> bool:
        """Return whether keys that are referred to are others by now. Then the next request is made with those."""
        found = _secrets(self._options)
        if found == self._secrets:
            return False
        self._secrets = found
        self._open()
        return True

    def __str__(self) -> str:
        return f"s3://{self._root}"

    @contextlib.contextmanager
    def _errors(self, what: str, name: str = "") -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            text = str(error)
            lasting = isinstance(error, pa.ArrowInvalid) or any(sign in text for sign in _LASTING)
            kind = SinkUnavailable if self._renew() or not lasting else SinkError
            raise kind(f"{what} {self}{'/' + name if name else ''}: {text.splitlines()[0][:500]}") from error

    @contextlib.contextmanager
    def _log_errors(self) -> Iterator[None]:
        try:
            with log_errors():
                yield
        except SinkError as error:
            if self._renew() and not error.retryable:
                raise SinkUnavailable(error.message, hint=error.hint) from None
            raise

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def local_path(self, name: str) -> Path | None:
        return None

    def upload(self, path: Path, name: str) -> None:
        if not path.stat().st_size:
            self.stage(name, b"")
            return
        with self._errors("writing", name), pa.memory_map(str(path)) as source:
            self._put(name, source.read_buffer())

    def stage(self, name: str, data: bytes) -> None:
        with self._errors("writing", name):
            self._put(name, data)

    def shared_file(self, name: str) -> StateFile:
        return StateFile(self, name)

    def path(self, name: str) -> str:
        return f"{self}/{name}"

    def versioned(self, name: str) -> tuple[bytes, Token] | None:
        objects = s3.objects_of(self._fs, self._root) if self._conditional else None
        if objects is not None:
            with self._log_errors():
                return objects.get(name)
        data = self.read(name)
        return None if data is None else (data, _digest(data))

    def swap(self, name: str, expected: Token | None, data: bytes) -> Token | None:
        """By a conditional PUT. Whose answer got lost is found out by what is there then. A store that knows no such requests is asked
        before it is written to: there a driver that was stopped between the two writes once more."""
        objects = s3.objects_of(self._fs, self._root) if self._conditional else None
        if objects is not None:
            try:
                with self._log_errors():
                    return swap(objects, name, expected, data)
            except Unconditional:
                log.warning("%s does not know conditional requests: only one driver at a time may write there", self)
                self._conditional = False
                known = self.read(name)
                if expected is not None and known is not None:
                    return None  # `expected` is of a conditional request: read it again
        known = self.read(name)
        if (_digest(known) if known is not None else None) != expected:
            return None
        self.stage(name, data)
        return _digest(data)

    def _put(self, name: str, data: bytes | pa.Buffer) -> None:
        with self._fs.open_output_stream(self._at(name), buffer_size=0) as stream:
            stream.write(data)

    def read(self, name: str) -> bytes | None:
        with self._errors("reading", name):
            try:
                with self._fs.open_input_stream(self._at(name)) as stream:
                    return read_whole(stream.read)
            except FileNotFoundError:
                return None

    def settle(self, names: Iterable[str]) -> None:
        """Do nothing: a PUT that returned is durable."""

    def move(self, moves: Iterable[tuple[str, str]]) -> None:
        with ThreadPoolExecutor(_MOVES_AT_ONCE) as pool:
            for done in [pool.submit(self._move, old, new) for old, new in moves]:
                done.result()

    def _move(self, old: str, new: str) -> None:
        with self._errors("publishing", new):
            try:
                self._fs.copy_file(self._at(old), self._at(new))
            except FileNotFoundError:
                if not self._exists(new):
                    raise
            except OSError as error:
                if self._exists(old) or not self._exists(new):
                    raise error from None

    def _exists(self, name: str) -> bool:
        found: bool = self._fs.get_file_info(self._at(name)).type == pyarrow.fs.FileType.File
        return found

    def names(self, folder: str) -> list[str]:
        return [info.base_name for info in self._listed(folder) if info.is_file]

    def folders(self, folder: str) -> list[str]:
        return [info.base_name for info in self._listed(folder) if not info.is_file]

    def _listed(self, folder: str) -> list[pyarrow.fs.FileInfo]:
        with self._errors("listing", folder):
            found: list[pyarrow.fs.FileInfo] = self._fs.get_file_info(pyarrow.fs.FileSelector(self._at(folder), allow_not_found=True))
            return found

    def walk(self) -> Iterator[str]:
        with self._errors("listing"):
            listed = self._fs.get_file_info(pyarrow.fs.FileSelector(self._root, allow_not_found=True, recursive=True))
        for info in listed:
            if info.is_file:
                yield info.path.removeprefix(self._root + "/")

    def delete(self, name: str) -> None:
        with self._errors("removing", name), contextlib.suppress(FileNotFoundError):
            self._fs.delete_file(self._at(name))

    def make_folder(self, folder: str) -> None:
        """Do nothing: object stores have no folders."""

    def clear(self, folder: str) -> None:
        with self._errors("removing", folder), contextlib.suppress(FileNotFoundError):
            self._fs.delete_dir(self._at(folder))
