"""Paths of data and index files, and the routing names of table versions. Pure.

    <schema>/<table>/<version>[/<partition>][/<date>]/CDC<number>.<extension>         the data files of a folder, numbered from 1
    …/meta/CDC.index                                                                  the name of the newest one of that folder

With use-table-id-as-path the physical table id replaces <schema>/<table>, and no partition follows. <partition> is a physical table id
too. <date> is that of the rows' commit ts in the changefeed's time zone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from tidemill.config.parameters import DateSeparator
from tidemill.errors import SinkError
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.tso import physical_ms

_DATES = {DateSeparator.NONE: "", DateSeparator.YEAR: "%Y", DateSeparator.MONTH: "%Y-%m", DateSeparator.DAY: "%Y-%m-%d"}
_NUMBERED = re.compile(r"CDC([0-9]+)\.[a-z]+")
_SCHEMA = re.compile(r"schema_([0-9]+)_([0-9]{10})\.json")


@dataclass(frozen=True, slots=True)
class Layout:
    """The settings of a sink that shape its paths."""

    extension: str
    partitions: bool = True
    date: DateSeparator = DateSeparator.DAY
    digits: int = 20
    table_ids: bool = False

    def rows_apart(self, version: TableVersion) -> tuple[int, ...]:
        """Return the physical ids whose rows have a folder each, or none if the table has one folder."""
        partitioned = version.info.partition is not None
        return version.physical_ids if partitioned and (self.partitions or self.table_ids) else ()

    def base(self, version: TableVersion, physical_id: int | None) -> str:
        """Return the path before the version. `physical_id` is set for a folder of its own."""
        if self.table_ids:
            return str(version.table_id if physical_id is None else physical_id)
        return f"{version.schema}/{version.table}"

    def folder(self, base: str, number: int, physical_id: int | None, date: str) -> str:
        """Return the folder of data files. `number` is that of the table version."""
        parts = [base, str(number)]
        if physical_id is not None and not self.table_ids:
            parts.append(str(physical_id))
        if date:
            parts.append(date)
        return "/".join(parts)

    def file(self, number: int) -> str:
        """Return a data file's name in its folder."""
        return f"CDC{number:0{self.digits}d}{self.extension}"

    def date_of(self, ts: int, zone: tzinfo) -> str:
        """Return the date folder of a commit ts; empty without a separator."""
        pattern = _DATES[self.date]
        return datetime.fromtimestamp(physical_ms(ts) / 1000, UTC).astimezone(zone).strftime(pattern) if pattern else ""


def check_names(schema: str, table: str, hint: str = "Filter it out, or set use-table-id-as-path=true.") -> None:
    """Check names of schemas and tables, which are used in paths unescaped. Raises SinkError for one that cannot be. `table` may be empty.

    A schema's folder is at the root, beside the sink's own files, so it must not have their names, not even in a bucket.
    """
    if schema in RESERVED:
        raise SinkError(
            f"a schema called {schema!r} cannot be a folder: the sink keeps a file or folder of its own under this name",
            hint=hint,
        )
    for name in (schema, table):
        if "/" in name or "\0" in name or name in (".", ".."):
            raise SinkError(f"a schema or table called {name!r} cannot be a folder", hint=hint)


def topic_of(version: TableVersion) -> str:
    """Return the routing name of a table version. It is unique."""
    return f"{version.schema}.{version.table}@{version.from_ts}#{version.table_id}"


def index_file(folder: str) -> str:
    """Return the index file of a folder of data files."""
    return f"{folder}/meta/CDC.index"


def number_in(text: str, where: str) -> int:
    """Return the number of the data file that an index file names. Raises SinkError naming the index file."""
    match = _NUMBERED.fullmatch(text.strip())
    if match is None:
        raise SinkError(f"{where} does not name a data file: {text[:80]!r}", hint="Write the name of the folder's newest CDC file into it.")
    return int(match[1])


def data_number(name: str) -> int:
    """Return the number in the name of a data file; 0 for any other file."""
    match = _NUMBERED.fullmatch(name)
    return int(match[1]) if match is not None else 0


def version_in(name: str, checksum: int) -> int | None:
    """Return the version of a schema file, if it has that checksum."""
    match = _SCHEMA.fullmatch(name)
    return int(match[1]) if match and int(match[2]) == checksum else None


def inside(path: str, where: str) -> str:
    """Return a path that the sink's own file `where` names. Raises SinkError for one that leads out of the sink's folder."""
    if path.startswith("/") or not {"", ".", ".."}.isdisjoint(path.split("/")):
        raise SinkError(f"{where} names a path outside of the folder: {path[:80]!r}", hint="Restore the file from a copy.")
    return path


def is_ours(name: str, extension: str) -> bool:
    """Return whether this layout makes such a path below the sink's root."""
    last = name.rpartition("/")[2]
    return (
        name == METADATA
        or name.endswith("/meta/CDC.index")
        or (last.endswith(extension) and _NUMBERED.fullmatch(last) is not None)
        or ("/meta/" in name and _SCHEMA.fullmatch(last) is not None)
    )


METADATA = "metadata"
"""The checkpoint file at the root."""

FOLDER = ".tidemill"
"""The folder at the root with files that are not for readers."""

RESERVED = frozenset({METADATA, FOLDER})
"""The sink's own names at the root."""
