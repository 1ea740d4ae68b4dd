"""`memory`: the rows stay in the state of the view, where `View.read` has them."""

from __future__ import annotations

import pyarrow as pa


class MemoryTarget:
    """See `Target`. Nothing is to be done: the state has the rows in the same transaction."""

    def create(self) -> None:
        return

    def delivered(self) -> int:
        return 0

    def deliver(self, changes: pa.Table, to_ts: int) -> None:
        return

    def resolved(self, ts: int) -> None:
        return

    def drop(self) -> None:
        return

    def close(self) -> None:
        return
