"""A write of a row → its statements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemill.binlog.outputs.writes import RowWrite


def statements(row: RowWrite, *, safe: bool) -> Iterator[str]:
    """Yield the statements. `safe`: they may be run again after some of them were run."""
    target = row.target
    if row.old is not None and row.new is not None and not safe:
        assigned = ", ".join(f"{name} = {text}" for name, text in zip(target.names, row.new, strict=True))
        yield f"UPDATE {target.name} SET {assigned} WHERE {_where(row, row.old)} LIMIT 1"
        return
    if row.old is not None:
        yield f"DELETE FROM {target.name} WHERE {_where(row, row.old)} LIMIT 1"
    if row.new is not None:
        yield f"{'REPLACE' if safe else 'INSERT'} INTO {target.name}({','.join(target.names)}) VALUES ({','.join(row.new)})"


def _where(row: RowWrite, image: Sequence[str]) -> str:
    """NULL is equal to NULL here."""
    return " AND ".join(f"{row.target.names[place]} <=> {image[place]}" for place in row.target.finding)
