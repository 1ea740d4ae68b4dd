"""The parts of a table's description besides columns, indexes and partitions. Only printing its CREATE TABLE needs them.

Most tables have none of them, and share `NOTHING`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.tidb.schema.codes import SchemaState

Json = Mapping[str, Any]

_REFERENCE_OPTIONS = ("", "RESTRICT", "CASCADE", "SET NULL", "NO ACTION", "SET DEFAULT")
"""ON DELETE and ON UPDATE, as TiDB numbers them."""
_TIME_UNITS = ("", "MICROSECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
"""Units of TTL, as TiDB numbers them."""


def name_of(value: Any) -> str:
    """Return the original spelling of a name, `{"O": original, "L": lower}`."""
    if isinstance(value, str):
        return value
    return str(value.get("O") or "") if value else ""


def _numbered(names: tuple[str, ...], number: int) -> str:
    return names[number] if 0 <= number < len(names) else ""


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key. `on_delete` and `on_update` are empty where the statement has no such clause."""

    name: str
    columns: tuple[str, ...]
    schema: str
    table: str
    references: tuple[str, ...]
    on_delete: str
    on_update: str

    @classmethod
    def from_json(cls, data: Json) -> ForeignKey:
        """Return a member of TableInfo's `fk_info`."""
        get = data.get
        return cls(
            name=name_of(get("fk_name")),
            columns=tuple(name_of(c) for c in get("cols") or ()),
            schema=name_of(get("ref_schema")),
            table=name_of(get("ref_table")),
            references=tuple(name_of(c) for c in get("ref_cols") or ()),
            on_delete=_numbered(_REFERENCE_OPTIONS, get("on_delete") or 0),
            on_update=_numbered(_REFERENCE_OPTIONS, get("on_update") or 0),
        )


@dataclass(frozen=True, slots=True)
class Check:
    """A CHECK constraint."""

    name: str
    expr: str
    enforced: bool

    @classmethod
    def from_json(cls, data: Json) -> Check:
        """Return a member of TableInfo's `constraint_info`."""
        return cls(name_of(data.get("constraint_name")), data.get("expr_string", ""), data.get("enforced", False))


@dataclass(frozen=True, slots=True)
class Ttl:
    """The time after which rows are deleted."""

    column: str
    interval: str  # a literal, as it was written
    unit: str
    enabled: bool
    job_interval: str

    @classmethod
    def from_json(cls, data: Json) -> Ttl:
        """Read a TableInfo's `ttl_info`."""
        get = data.get
        unit = _numbered(_TIME_UNITS, get("interval_time_unit") or 0)
        return cls(name_of(get("column")), str(get("interval_expr", "")), unit, get("enable", False), get("job_interval") or "")


@dataclass(frozen=True, slots=True)
class TableDetails:
    """See the module. Numbers are 0 and texts are empty where the table lacks the feature."""

    auto_random_bits: int = 0
    auto_random_range_bits: int = 0
    auto_id_cache: int = 0
    shard_row_id_bits: int = 0
    pre_split_regions: int = 0
    compression: str = ""
    placement_policy: str = ""
    foreign_keys: tuple[ForeignKey, ...] = ()
    checks: tuple[Check, ...] = ()
    ttl: Ttl | None = None

    @classmethod
    def from_json(cls, data: Json) -> TableDetails:
        """Read the details of a TableInfo."""
        get = data.get
        ttl, public = get("ttl_info"), SchemaState.PUBLIC
        found = cls(
            auto_random_bits=get("auto_random_bits") or 0,
            auto_random_range_bits=get("auto_random_range_bits") or 0,
            auto_id_cache=get("auto_id_cache") or 0,
            shard_row_id_bits=get("ShardRowIDBits") or 0,
            pre_split_regions=get("pre_split_regions") or 0,
            compression=get("compression") or "",
            placement_policy=policy_of(data),
            foreign_keys=tuple(ForeignKey.from_json(k) for k in get("fk_info") or () if k.get("state", public) == public),
            checks=tuple(Check.from_json(c) for c in get("constraint_info") or () if c.get("state", public) == public),
            ttl=Ttl.from_json(ttl) if ttl else None,
        )
        return found if found != NOTHING else NOTHING


def policy_of(data: Json) -> str:
    """Return the placement policy that a table, a partition or a database names."""
    return name_of((data.get("policy_ref_info") or {}).get("name"))


NOTHING = TableDetails()
