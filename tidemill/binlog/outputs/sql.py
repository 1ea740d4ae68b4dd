"""A write of a row → its statements. An update or delete should meet one row, unless it may have been run before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemill.binlog.outputs.writes import RowWrite
from tidemill.protocols.sql.missed import Meets, Statement


def statements(row: RowWrite, *, safe: bool) -> Iterator[Statement]:
    """Yield the statements. `safe`: they may be run again after some of them were run."""
    target = row.target
    if row.old is not None and row.new is not None and not safe:
        assigned = ", ".join(f"{name} = {text}" for name, text in zip(target.names, row.new, strict=True))
        yield _meeting(row, row.old, f"UPDATE {target.name} SET {assigned}", safe=safe)
        return
    if row.old is not None:
        yield _meeting(row, row.old, f"DELETE FROM {target.name}", safe=safe)
    if row.new is not None:
        text = f"{'REPLACE' if safe else 'INSERT'} INTO {target.name}({','.join(target.names)}) VALUES ({','.join(row.new)})"
        yield Statement(_encoded(text))


def _meeting(row: RowWrite, image: Sequence[str], text: str, *, safe: bool) -> Statement:
    where = _encoded(row.target.where(image))
    whole = _encoded(text) + b" WHERE " + where + b" LIMIT 1"
    return Statement(whole) if safe else Statement(whole, Meets.AFFECTED, 1, f"{row.target.schema}.{row.target.table}", (where,))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
