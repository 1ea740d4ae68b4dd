"""Splitting a hot table: by which keys, and over which partitions of the log."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from tidemill.capture.growth import Change
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.read.tables import region_borders
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.spread import RECORD_PREFIX, SplitTable, even_keys, partition_of
from tidemill.errors import LogError
from tidemill.tidb.codec import decode_bytes
from tidemill.tidb.keys import encode_range, record_range
from tidemill.tidb.schema.tracking.versions import SchemaSnapshot, TableVersion


async def split_of(pd: PdClient, identity: LogIdentity, snapshot: SchemaSnapshot, name: str, over: int) -> Change:
    """How the table by that name comes to be spread over so many partitions, in parts with about as many regions each; over one: to be
    together again. Raises LogError where it cannot be, and what PD raises."""
    version = named(snapshot, name)
    if over == 1:
        if identity.layout.split_of(version.table_id) is None:
            raise LogError(f"{name} is not split")
        return Change(gathered=version.table_id)
    identity.check_split(over)
    ranges = [record_range(id_) for id_ in sorted(version.physical_ids)]
    borders = await region_borders(pd, [encode_range(*one) for one in ranges])
    handles = []
    for start, end in ranges:
        low, high = encode_range(start, end)
        inside = borders[bisect_right(borders, low) : bisect_left(borders, high)]
        handles += [handle for border in inside if (handle := decode_bytes(border)[0][RECORD_PREFIX:])]
    keys = even_keys(sorted(handles), len(handles) + len(ranges), over)
    if keys is None:
        raise LogError(
            f"{name} has {len(set(handles)) + 1} regions by the handles of its rows: they cannot make {over} parts",
            hint=f"SPLIT TABLE {name} … REGIONS n gives it more; or split it over fewer partitions.",
        )
    first = partition_of(version.table_id, identity.partitions)
    partitions = tuple((first + i) % identity.partitions for i in range(over))
    return Change(split=SplitTable(version.table_id, f"{version.schema}.{version.table}", keys, partitions))


def named(snapshot: SchemaSnapshot, name: str) -> TableVersion:
    """The table that is called so now. Raises LogError."""
    for version in snapshot.tables.values():
        if f"{version.schema}.{version.table}".lower() == name.lower():
            return version
    raise LogError(f"there is no table {name}", hint="Write DATABASE.TABLE.")
