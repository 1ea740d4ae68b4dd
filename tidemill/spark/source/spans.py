"""Cuts an interval of the log into spans: in each, every table has one version, and is in the same log partitions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from tidemill.changelog.log_format import Affinity, LogIdentity
from tidemill.changelog.spread import PARTITION_BY, partition_of
from tidemill.tidb.schema.tracking.history import SchemaHistory
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.tidb.types.jsonstyle import JsonStyle, style_of

Wants = Callable[[TableVersion], bool]


@dataclass(frozen=True, slots=True)
class Span:
    """Rows with from_ts < commit_ts <= to_ts, and the versions of the tables that are read. `style`: how their documents are printed."""

    from_ts: int
    to_ts: int
    tables: tuple[TableVersion, ...]
    style: JsonStyle


def spans(history: SchemaHistory, identity: LogIdentity, from_ts: int, to_ts: int, wants: Wants) -> Iterator[Span]:
    """Yield the spans of (from_ts, to_ts] in which some table is wanted. The log begins at from_ts or before, the history reaches to_ts.
    Raises SchemaError."""
    if from_ts >= to_ts:
        return
    cuts = {*history.barriers(from_ts, to_ts), *identity.switches(from_ts, to_ts)}
    cuts |= {one.from_ts for one in identity.upstream_versions if from_ts < one.from_ts <= to_ts}
    last: Span | None = None
    last_layout = identity.layout_at(from_ts)
    for begin, end in pairwise(sorted({from_ts, *(cut for cut in cuts if cut < to_ts), to_ts})):
        tables = history.snapshot(begin).tables.values()
        found = tuple(version for version in tables if version.physical_ids and wants(version))
        style, layout = style_of(identity.version_at(begin) or ""), identity.layout_at(begin)
        if last is not None and (_stamps(last.tables), last.style, last_layout) == (_stamps(found), style, layout):
            last = Span(last.from_ts, end, last.tables, style)
            continue
        if last is not None and last.tables:
            yield last
        last, last_layout = Span(begin, end, found, style), layout
    if last is not None and last.tables:
        yield last


def _stamps(tables: tuple[TableVersion, ...]) -> list[tuple[int, int]]:
    return [(version.table_id, version.from_ts) for version in tables]


def partitions_of(identity: LogIdentity, span: Span) -> dict[int, tuple[TableVersion, ...]]:
    """Return the log partitions that may hold rows of a span's tables, with these tables."""
    layout = identity.layout_at(span.from_ts)
    if identity.affinity is not Affinity.TABLE or identity.partition_by != PARTITION_BY or identity.split_tables:
        return dict.fromkeys(range(layout.partitions), span.tables)
    found: dict[int, list[TableVersion]] = {}
    for version in span.tables:
        split = layout.split_of(version.table_id)
        for p in split.partitions if split is not None else (partition_of(version.table_id, layout.partitions),):
            found.setdefault(p, []).append(version)
    return {p: tuple(tables) for p, tables in sorted(found.items())}
