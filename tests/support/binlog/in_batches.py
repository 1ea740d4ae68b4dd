"""Binlogs as a Drainer with a database downstream reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.binlog.blocks import block
from tidemill.binlog.drainer.destination import Forms
from tidemill.binlog.drainer.rows.reading import Delivered
from tidemill.binlog.drainer.schemas import Schemas
from tidemill.binlog.drainer.settings import DrainerSettings
from tidemill.binlog.messages import Binlog, BinlogType, MutationType, Prewritten, TableMutation
from tidemill.binlog.outputs.transactions import Transaction
from tidemill.tidb.codec import encode_varint
from tidemill.tidb.datums import DatumFlag, encode_datum
from tidemill.tidb.rows.raw import EMPTY_FORMAT_1


async def delivered(schemas: Schemas, binlogs: Sequence[Binlog], **settings: Any) -> list[Delivered]:
    """What a Drainer with these settings delivers, in order."""
    reading = Forms(DrainerSettings(db_type="mysql", **settings)).reading(schemas)
    found: list[Delivered] = []
    rest = block(*binlogs)
    while len(rest):
        read = await reading.read(rest)
        found += read.entries
        rest = rest.part(read.count)
    return found


def as_binlog(transaction: Transaction) -> Binlog:
    """A transaction of tables whose column 1 is the handle and stands in updates and deletes, as TiDB writes it."""
    return Binlog(
        BinlogType.COMMIT, transaction.start_ts, transaction.commit_ts, b"k",
        Prewritten(1, tuple(map(_mutation, transaction.tables))).encode(),
    )  # fmt: skip


def _mutation(changes: Any) -> TableMutation:
    made: dict[MutationType, list[bytes]] = {kind: [] for kind in MutationType}
    for row in changes.rows:
        if row.kind is MutationType.INSERT:
            rest = {number: datum for number, datum in row.new.items() if number != 1}
            made[row.kind].append(encode_datum(row.new[1]) + (_pairs(rest) or EMPTY_FORMAT_1))
        else:
            made[row.kind].append(_pairs(row.old) + (_pairs(row.new) if row.new is not None else b""))
    kinds = (MutationType.INSERT, MutationType.UPDATE, MutationType.DELETE_ROW)
    return TableMutation(changes.version.info.id, *(tuple(made[kind]) for kind in kinds), tuple(row.kind for row in changes.rows))


def _pairs(image: Any) -> bytes:
    return b"".join(bytes([DatumFlag.VARINT]) + encode_varint(number) + encode_datum(datum) for number, datum in image.items())
