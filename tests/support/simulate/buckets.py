"""A bucket in memory each of whose requests is an effect: what pyarrow's S3 and conditional requests show of it.

The product's S3Store works on it. Of a request that is answered 503, or whose answer is lost, it hears what S3 says then. A listing may be
behind, as those of stores are that are consistent later: it shows the names of some requests ago.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar

import pyarrow.fs
import pytest

from tests.support.simulate.actors import Actor, AtOnce
from tidemill.changelog.storage import s3
from tidemill.changelog.storage.base import Token
from tidemill.changelog.storage.conditional import Outcome
from tidemill.errors import LogUnavailable, SinkUnavailable
from tidemill.sinks.storage import store
from tidemill.sinks.storage.store import S3Store

T = TypeVar("T")
MOST_BEHIND = 5
"""Changes at most that a listing which is behind does not show."""


class Bucket:
    """Objects by key. `listings`: the keys before each change."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.listings: list[frozenset[str]] = [frozenset()]

    def put(self, key: str, data: bytes) -> None:
        self.objects[key] = data
        self._changed()

    def delete(self, keys: list[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)
        self._changed()

    def _changed(self) -> None:
        self.listings.append(frozenset(self.objects))

    def below(self, prefix: str, *, behind: bool) -> list[str]:
        past = 1 + len(self.listings) % MOST_BEHIND
        keys = self.listings[-1 - past :][0] if behind else self.objects
        return sorted(key for key in keys if key.startswith(prefix))


class BucketFiles:
    """The part of pyarrow's S3FileSystem that the store uses. `actor`: None for who is no driver."""

    def __init__(self, bucket: Bucket, actor: Actor | None) -> None:
        self._bucket, self._actor = bucket, actor

    def request(self, effect: str, act: Callable[[], T]) -> T:
        if self._actor is None:
            return act()
        return self._actor.gate(effect, act)

    def _asked(self, effect: str, act: Callable[[], T]) -> T:
        try:
            return self.request(effect, act)
        except SinkUnavailable as error:
            raise OSError(f"AWS Error SLOW_DOWN: {error}") from error

    @contextmanager
    def open_output_stream(self, key: str, buffer_size: int = 0) -> Iterator[io.BytesIO]:
        written = io.BytesIO()
        yield written
        self._asked(f"put {key}", lambda: self._bucket.put(key, written.getvalue()))

    def open_input_stream(self, key: str) -> io.BytesIO:
        return io.BytesIO(self._asked(f"read {key}", lambda: self._data(key)))

    def copy_file(self, key: str, new: str) -> None:
        self._asked(f"copy to {new}", lambda: self._bucket.put(new, self._data(key)))

    def delete_file(self, key: str) -> None:
        self._asked(f"delete {key}", lambda: self._bucket.delete([key]))

    def delete_dir(self, folder: str) -> None:
        for key in self._listed(folder):
            self.delete_file(key)

    def _listed(self, folder: str) -> list[str]:
        return self._asked(
            f"list {folder}", lambda: self._bucket.below(f"{folder}/", behind=self._actor is not None and self._actor.behind)
        )

    def get_file_info(self, asked: str | pyarrow.fs.FileSelector) -> Any:
        if isinstance(asked, str):
            known = self._asked(f"read the head of {asked}", lambda: asked in self._bucket.objects)
            return SimpleNamespace(type=pyarrow.fs.FileType.File if known else pyarrow.fs.FileType.NotFound)
        return [*self._infos(asked.base_dir, asked.recursive)]

    def _infos(self, folder: str, recursive: bool) -> Iterator[SimpleNamespace]:
        folders = set()
        for key in self._listed(folder):
            name, slash, _ = key.removeprefix(f"{folder}/").partition("/")
            if recursive or not slash:
                yield SimpleNamespace(path=key, base_name=key.rpartition("/")[2], is_file=True)
            elif name not in folders:
                folders.add(name)
                yield SimpleNamespace(path=f"{folder}/{name}", base_name=name, is_file=False)

    def _data(self, key: str) -> bytes:
        if key not in self._bucket.objects:
            raise FileNotFoundError(key)
        return self._bucket.objects[key]


class BucketObjects:
    """Conditional requests to a bucket below a prefix, see `conditional.Objects`."""

    def __init__(self, files: BucketFiles, root: str) -> None:
        self._files, self._bucket, self._root = files, files._bucket, root

    def get(self, name: str) -> tuple[bytes, Token] | None:
        key = f"{self._root}/{name}"

        def act() -> tuple[bytes, Token] | None:
            data = self._bucket.objects.get(key)
            return None if data is None else (data, _etag(data))

        try:
            return self._files.request(f"read {key}", act)
        except SinkUnavailable as error:
            raise LogUnavailable(str(error)) from error

    def put(self, name: str, data: bytes, expected: Token | None) -> Token | Outcome:
        key = f"{self._root}/{name}"

        def act() -> Token | Outcome:
            known = self._bucket.objects.get(key)
            if (_etag(known) if known is not None else None) != expected:
                return Outcome.REFUSED
            self._bucket.put(key, data)
            return _etag(data)

        try:
            return self._files.request(f"put {key} if it is {'as read' if expected else 'not there'}", act)
        except SinkUnavailable:
            return Outcome.UNKNOWN


def _etag(data: bytes) -> Token:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


class BucketStore(S3Store):
    """The product's store over a bucket of this module."""

    def __init__(self, bucket: Bucket, root: str, actor: Actor | None = None) -> None:
        self._conditional, self._root = True, root
        self._fs = BucketFiles(bucket, actor)  # type: ignore[assignment]

    def _renew(self) -> bool:
        """Return False: there are no keys."""
        return False


def gate_s3(patch: pytest.MonkeyPatch) -> None:
    """Let stores of buckets make conditional requests here, and copies one after the other."""
    real = s3.objects_of
    patch.setattr(s3, "objects_of", lambda files, root: BucketObjects(files, root) if isinstance(files, BucketFiles) else real(files, root))
    patch.setattr(store, "ThreadPoolExecutor", AtOnce)
