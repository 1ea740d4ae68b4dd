"""ROW records → typed columns for tables of the lake, with the kernels of `tidemill.kernels.columns`.

Tables with upserts get one row a change: the row after it, or of a delete the row before it. Change tables get every image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.kernels.columns import Built, ColumnBuilder, ColumnProgram
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RowArray
from tidemill.protocols.common.messages import Messages
from tidemill.protocols.options import EncodingOptions
from tidemill.records import KIND_UPDATE, MESSAGE
from tidemill.sinks.lake.shapes import HEAD_NAMES, OP, ROW_ID
from tidemill.tidb.columns.forms import ALL_IMAGES, IMAGES
from tidemill.tso import LOGICAL_BITS

_DELETE = IMAGES.index("delete")
_PREIMAGE = IMAGES.index("update_preimage")
_HANDLE_AT, _HANDLE_BYTES = 11, 8  # in a record key: t, table id, _r, handle
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True, slots=True)
class TypedBatch:
    """Rows of one table, in order. `target`: where they go. `keys`: the columns that tell rows apart.

    The columns are those of `LakeTable`; rows for upserts have OP besides."""

    target: int
    rows: pa.Table
    keys: tuple[str, ...]


class TypedRows(Messages):
    """Messages without bytes: what counts is in `batches`."""

    __slots__ = ("batches",)

    def __init__(self, rows: int, batches: Sequence[TypedBatch]) -> None:
        super().__init__(np.zeros(rows, MESSAGE), ())
        self.batches = batches
        self.bytes = sum(batch.rows.nbytes for batch in batches)


class _Source:
    """Memory in which bytes are read by their addresses, for numpy."""

    def __init__(self, address: int, size: int) -> None:
        self.__array_interface__ = {"data": (address, True), "shape": (size,), "typestr": "|u1", "version": 3}


def handles(rows: RowArray) -> npt.NDArray[np.int64]:
    """Return the integer handles in the record keys of rows. Every key has one: the tables have no other handle."""
    if not len(rows):
        return np.zeros(0, np.int64)
    at = rows["key"].astype(np.uint64) + np.uint64(_HANDLE_AT)
    base = int(at.min())
    memory = np.asarray(_Source(base, int(at.max()) - base + _HANDLE_BYTES))  # only the keys' own bytes are read of it
    places = (at - np.uint64(base)).astype(np.int64)[:, None] + np.arange(_HANDLE_BYTES)
    found: npt.NDArray[np.int64] = (memory[places].copy().view(">u8").astype(np.uint64).ravel() ^ _SIGN).view(np.int64)
    return found


class _Table:
    """What one table's rows are made with."""

    def __init__(self, program: TableProgram, *, every_image: bool) -> None:
        images = ALL_IMAGES if every_image else ALL_IMAGES & ~(1 << _PREIMAGE)
        columns = ColumnProgram(program)
        self.keyless = not program.info.has_usable_key
        wanted = set(program.info.handle_key_ids)
        self.keys = tuple(column.name for column in columns.plain.columns if column.id in wanted) or (ROW_ID,)
        self.names = [column.name for column in columns.plain.columns]
        self.builder = ColumnBuilder([columns], images)
        self._every_image = every_image

    def build(self, target: int, rows: RowArray) -> list[TypedBatch]:
        """Return the rows' images, in order."""
        ids = handles(rows) if self.keyless else None
        if ids is not None and self._every_image:
            ids = np.repeat(ids, np.where(rows["kind"] == KIND_UPDATE, 2, 1))
        found, at = [], 0
        for built in self.builder.build(rows):
            columns, names = list(built.columns), list(self.names)
            if ids is not None:
                columns.insert(0, pa.array(ids[at : at + len(built)]))
                names.insert(0, ROW_ID)
            at += len(built)
            heads = _heads(built) if self._every_image else {}
            columns, names = [*heads.values(), *columns], [*heads, *names]
            if not self._every_image:
                columns.append(pa.array((built.changes == _DELETE).astype(np.int8)))
                names.append(OP)
            found.append(TypedBatch(target, pa.table(columns, names), self.keys))
        return found


def _heads(built: Built) -> dict[str, pa.Array]:
    moments = (built.commit_ts >> np.uint64(LOGICAL_BITS)).astype(np.int64) * 1000
    values = (
        pa.array(IMAGES, pa.string()).take(pa.array(built.changes)),
        pa.array(built.commit_ts.view(np.int64)),
        pa.array(moments).cast(pa.timestamp("us", "UTC")),
        pa.array(built.start_ts.view(np.int64)),
    )
    return dict(zip(HEAD_NAMES, values, strict=True))


class TypedRowEncoder:
    """Encodes rows as `TypedRows`. Not safe for threads. What it returns stays valid."""

    def __init__(self, programs: Sequence[TableProgram], *, every_image: bool = False) -> None:
        self._programs, self._every_image = list(programs), every_image
        self._tables: dict[int, _Table] = {}

    @property
    def slow_rows(self) -> int:
        """Rows that the reference handled."""
        return sum(table.builder.slow_rows for table in self._tables.values())

    def encode(self, rows: RowArray, groups: npt.NDArray[np.int32]) -> TypedRows:
        """Encode rows that are grouped by target. Raises MalformedRow."""
        batches: list[TypedBatch] = []
        for begin, end in zip(groups[:-1].tolist(), groups[1:].tolist(), strict=True):
            group = rows[begin:end].copy()
            # A target is one table. Its partitions have numbers of their own, and the order of a transaction holds over all of them: a
            # row that moves to another partition is deleted there before it is inserted here.
            number = int(group["table"][0])
            group["table"] = 0  # the only program of its builder
            batches += self._table(number).build(int(group["target"][0]), group)
        return TypedRows(len(rows), batches)

    def _table(self, number: int) -> _Table:
        if number not in self._tables:
            self._tables[number] = _Table(self._programs[number], every_image=self._every_image)
        return self._tables[number]


def typed_rows(programs: Sequence[TableProgram], options: EncodingOptions) -> TypedRowEncoder:
    """Return the encoder for the options of a lake's sink URI."""
    return TypedRowEncoder(programs, every_image=options.every_image)
