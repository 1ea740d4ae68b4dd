"""What has to be done to a table's columns so that they are those of the upstream. Pure.

Neither format's library renames or drops a column of Delta in place, and both leave a new column null in rows that are there. So a new
column without a value in older rows is added in place; for all else the table is written again, in one commit.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

import pyarrow as pa

from tidemill.errors import SinkError
from tidemill.sinks.lake.conversion import convert
from tidemill.sinks.lake.shapes import LakeTable, column_id, fraction_digits
from tidemill.tidb.schema.tracking.lineage import NEW, origin_of


class Step(enum.Enum):
    """How a table gets its new columns."""

    NOTHING = "nothing"
    ADD = "add"  # in place
    REWRITE = "rewrite"


@dataclass(frozen=True, slots=True)
class Evolution:
    """`target`: the columns afterwards. `sources`: for each of them the name that it had, or None for a new one. `renumbered`: whether one
    that stays has another id afterwards: it is a copy, or of another table. `rounded`: whether the values of a copy are rounded, though its
    type is the same."""

    step: Step
    target: pa.Schema
    sources: tuple[str | None, ...]
    renumbered: bool = False
    rounded: bool = False

    @property
    def added(self) -> list[pa.Field]:
        """The new columns."""
        return [one for one, source in zip(self.target, self.sources, strict=True) if source is None]


def type_word(kind: pa.DataType) -> str:
    """Return a type's name. Readers give texts and lists back in other layouts than they were written in."""
    if pa.types.is_large_string(kind) or kind == pa.string_view():
        return "string"
    if pa.types.is_large_binary(kind) or kind == pa.binary_view():
        return "binary"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{type_word(kind.value_type)}>"
    return str(kind)


def evolution(have: pa.Schema, want: LakeTable) -> Evolution:
    """Decide how a table with the columns `have` becomes `want`. A change table keeps columns that are dropped."""
    taken: set[str] = set()
    target, sources = [], []
    for one in want.fields:
        known = _same(one, have, want)
        source = known.name if known is not None and known.name not in taken else None
        if source is not None:
            taken.add(source)
        target.append(one)
        sources.append(source)
    left = [one for one in have if one.name not in taken]
    if want.history:
        names = {one.name.lower() for one in target}
        target += [_kept(one, names) for one in left]
        sources += [one.name for one in left]
    copies = [
        (have.field(source), one)
        for source, one in zip(sources, target, strict=True)
        if source is not None and column_id(have.field(source)) != column_id(one)
    ]
    rounded = not want.by_name and any(_loses_digits(old, new) for old, new in copies)
    found = Evolution(Step.NOTHING, pa.schema(target), tuple(sources), bool(copies), rounded)
    return replace(found, step=_step(have, found, want, dropped=bool(left) and not want.history))


def _same(one: pa.Field, have: pa.Schema, want: LakeTable) -> pa.Field | None:
    """Return the column that is there and is this one. By the name where ids cannot tell: what is there has no ids or is another table's,
    or the column may be a copy of another type, whose beginning is not known."""
    by_id = {number: old for old in have if (number := column_id(old))}
    named = have.field(one.name) if one.name in have.names else None
    number = column_id(one)
    if want.by_name or number is None:
        return named
    known = origin_of(number, dict(want.origins))
    found = next((by_id[number] for number in known if number in by_id), None)
    if found is not None or named is None or known[-1] == NEW:
        return found
    other = column_id(named) in {column_id(wanted) for wanted in want.fields}
    return named if not column_id(named) or (not other and type_word(named.type) != type_word(one.type)) else None


def _loses_digits(old: pa.Field, new: pa.Field) -> bool:
    """Return whether a column's times have fewer digits of a second than before, or may have."""
    digits = fraction_digits(new)
    known = fraction_digits(old)
    return digits is not None and digits < (6 if known is None else known)


def _kept(one: pa.Field, names: set[str]) -> pa.Field:
    """Return a dropped column of a change table, under another name if a column has its name now."""
    return one.with_name(f"{one.name}__{column_id(one) or 0}") if one.name.lower() in names else one


def _step(have: pa.Schema, found: Evolution, want: LakeTable, *, dropped: bool) -> Step:
    kept = [(have.field(source), one) for source, one in zip(found.sources, found.target, strict=True) if source is not None]
    if found.rounded:
        return Step.REWRITE
    if dropped or any(old.name != new.name or type_word(old.type) != type_word(new.type) for old, new in kept):
        return Step.REWRITE
    if any(want.first.column(one.name)[0].is_valid for one in found.added):
        return Step.REWRITE
    return Step.ADD if found.added else Step.NOTHING


def converted(rows: pa.RecordBatch, found: Evolution, want: LakeTable) -> pa.RecordBatch:
    """Return rows with the new columns. Raises SinkError for a value that cannot have its column's new type."""
    columns = []
    for one, source in zip(found.target, found.sources, strict=True):
        if source is None:
            value = want.first.column(one.name)[0] if one.name in want.fields.names else pa.scalar(None, one.type)
            columns.append(pa.repeat(value, len(rows)).cast(one.type))
        else:
            columns.append(_cast(rows.column(source), one, want))
    return pa.RecordBatch.from_arrays(columns, schema=found.target)


def _cast(values: pa.Array, one: pa.Field, want: LakeTable) -> pa.Array:
    try:
        return convert(values, one) if values.type != one.type or fraction_digits(one) is not None else values
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SinkError(
            f"{want}: column {one.name} was {values.type}, and what is there cannot be {one.type}: {error}",
            hint="Give the changefeed an empty place, or leave the column out with a column selector.",
        ) from None
