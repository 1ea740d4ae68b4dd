"""A bucket each of whose requests is an effect of the actor that opens it. A listing may be behind: it lacks the newest objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tests.support.changelog.memory_storage import Bucket, MemoryStorage
from tests.support.simulate.actors import current_actor
from tidemill.changelog.storage.base import Draft, Token
from tidemill.errors import LogUnavailable, SinkUnavailable

T = TypeVar("T")
MOST_BEHIND = 5
"""Objects at most that a listing which is behind does not show."""


class GatedStorage(MemoryStorage):
    """See the module."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket)
        self._actor = current_actor()

    def _gated(self, request: str, act: Callable[[], T]) -> T:
        try:
            return self._actor.gate(request, act)
        except SinkUnavailable as error:
            raise LogUnavailable(str(error)) from error

    def _listed(self) -> MemoryStorage:
        """The storage that a listing shows."""
        shown = Bucket()
        written = sorted(self.bucket.content, key=lambda name: self.bucket.modified[name])
        for name in written[: -1 - len(written) % MOST_BEHIND] if self._actor.behind else written:
            shown.put(name, b"")
        return MemoryStorage(shown)

    def names(self, folder: str) -> list[str]:
        return self._gated(f"list {folder}", lambda: self._listed().names(folder))

    def subfolders(self, folder: str) -> list[str]:
        return self._gated(f"list {folder}", lambda: self._listed().subfolders(folder))

    def read(self, name: str) -> bytes | None:
        return self._gated(f"read {name}", lambda: MemoryStorage.read(self, name))

    def versioned(self, name: str) -> tuple[bytes, Token] | None:
        return self._gated(f"read {name}", lambda: MemoryStorage.versioned(self, name))

    def swap(self, name: str, expected: Token | None, data: bytes) -> Token | None:
        return self._gated(f"swap {name}", lambda: MemoryStorage.swap(self, name, expected, data))

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        self._gated(f"put {name}", lambda: MemoryStorage.replace(self, name, data, durable=durable))

    def delete(self, name: str) -> None:
        self._gated(f"delete {name}", lambda: MemoryStorage.delete(self, name))

    def draft(self, folder: str) -> Draft:
        made = super().draft(folder)
        publish = made.publish
        made.publish = lambda name: self._gated(f"create {folder}/{name}", lambda: publish(name))  # type: ignore[method-assign]
        return made
