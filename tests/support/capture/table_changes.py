"""Versions of tables, and switches from some to others."""

from __future__ import annotations

from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.versions import PhysicalChange, TableVersion

N = 4


def version(table_id: int, *physical: int, name: str = "") -> TableVersion:
    name = name or f"t{table_id}"
    info = TableInfo.from_json({"id": table_id, "name": {"O": name, "L": name}, "cols": [], "state": 5})
    return TableVersion("d", 1, info, physical or (table_id,), 0)


def change(ts: int, ended: tuple[TableVersion, ...], begun: tuple[TableVersion, ...]) -> PhysicalChange:
    before = {p for v in ended for p in v.physical_ids}
    after = {p for v in begun for p in v.physical_ids}
    return PhysicalChange(ts, tuple(sorted(after - before)), tuple(sorted(before - after)), begun, ended)
