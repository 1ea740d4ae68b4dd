"""Which columns of a table are the same before and after a DDL. Pure.

A column keeps its id, also when it is renamed or moved. But where MODIFY COLUMN has to rewrite rows, TiDB copies the column under a new id
and drops the old one, in one step. No statement drops a column and adds another one of its name ("Unsupported operate same column"), so a
name that changes its id within one DDL is such a copy; across several DDLs it may be another column.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.tracking.versions import TableVersion

NEW = 0
"""In place of a column's id: there was no such column before. TiDB's ids begin at 1."""


def origins(before: TableVersion, after: TableVersion, action: int = 0) -> dict[int, int]:
    """Return the ids of columns that `after` has and `before` has not, each with the id that the column had before, or NEW.

    The versions follow each other, by one DDL. `action`: its code, if it is known: of MODIFY COLUMN alone a copy may have another name.
    """
    old = {column.id: column.name.lower() for column in before.info.public_columns}
    new = {column.id: column.name.lower() for column in after.info.public_columns}
    gone = {name: number for number, name in old.items() if number not in new}
    found = {number: gone.pop(name, NEW) for number, name in new.items() if number not in old}
    rest = [number for number, origin in found.items() if origin == NEW]
    if action == Action.MODIFY_COLUMN and len(rest) == len(gone) == 1:
        found[rest[0]] = next(iter(gone.values()))
    return found


def origin_of(column_id: int, known: Mapping[int, int]) -> list[int]:
    """Return a column's id and the ids that it had before, the newest first; NEW at the end of a column whose beginning is known."""
    found = [column_id]
    while found[-1] in known:
        found.append(known[found[-1]])
    return found
