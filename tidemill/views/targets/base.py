"""Where the rows of a view go: `Target`. One class for each kind."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.views.shape import WEIGHT, Shape


class Target(Protocol):
    """Takes the changes of a view. All methods raise SinkError and SinkUnavailable; after the latter, the same may be called again.

    `delivered` is asked before the first changes after a start. Changes up to a ts are delivered once, or again where it was not clear
    whether they were: `deliver` with a ts that is delivered already does nothing.
    """

    def create(self) -> None:
        """Take the place for a new view. Raises SinkError if something of others is there."""

    def delivered(self) -> int:
        """Return the resolved ts of what is there; 0 if nothing was delivered."""

    def deliver(self, changes: pa.Table, to_ts: int) -> None:
        """Deliver rows with WEIGHT, and with them the resolved ts. A reader sees all of it or nothing."""

    def resolved(self, ts: int) -> None:
        """Say that nothing changed up to a ts. It need not be durable."""

    def drop(self) -> None:
        """Remove what is there."""

    def close(self) -> None:
        """Let go of it."""


def split(changes: pa.Table, shape: Shape) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return the rows that come, the rows that stay under their key as they were before, and those that go for good. Without WEIGHT.

    The second is in the order of the first where it has a row: updated rows come first in both.
    """
    comes = changes.filter(pc.greater(changes[WEIGHT], 0)).drop_columns([WEIGHT])
    goes = changes.filter(pc.less(changes[WEIGHT], 0)).drop_columns([WEIGHT])
    marks = _numbered(comes, shape, "at")
    both = _numbered(goes, shape, "was").join(marks, list(shape.keys), join_type="left outer")
    stays = both.filter(pc.is_valid(both["at"]))
    gone = both.filter(pc.is_null(both["at"]))["was"]
    new = comes.filter(pc.invert(pc.is_in(marks["at"], stays["at"])))
    return pa.concat_tables([comes.take(stays["at"]), new]), goes.take(stays["was"]), goes.take(gone)


def _numbered(rows: pa.Table, shape: Shape, name: str) -> pa.Table:
    return rows.select(list(shape.keys)).append_column(name, pa.array(range(len(rows)), pa.int64()))
