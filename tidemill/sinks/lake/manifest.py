"""The manifests: which version of each table holds at a resolved ts.

    ROOT/_tidemill/head.json                {"format":1,"resolved_ts":…,"manifest":…,"epoch":…}: the tables are so far
    ROOT/_tidemill/manifests/<ts>.json      {"format":1,"resolved_ts":…,"epoch":…,"changefeed":…,"tables":[…]}

<ts> has 20 digits. A manifest is written after the commits that it names, and never replaced. Each of its tables has `schema`, `table`,
`table_id`, `place` (of Delta a folder below the root, of Iceberg the name in the catalog), `version` (of Delta a number, of Iceberg a
snapshot id or -1) and for Iceberg `metadata`, the file that describes the table as of then, and `uuid`, which it keeps. At a ts, the
tables are those of the newest manifest at or below it.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from tidemill import statefile
from tidemill.errors import SinkError
from tidemill.sinks.owner import NOTE
from tidemill.sinks.storage.store import Store
from tidemill.tso import describe

FOLDER = "_tidemill"
HEAD = f"{FOLDER}/head.json"
MANIFESTS = f"{FOLDER}/manifests"

Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class TableAt:
    """A version of a table."""

    schema: str
    table: str
    table_id: int
    place: str
    version: int
    metadata: str = ""
    uuid: str = ""

    @classmethod
    def of(cls, found: statefile.Fields) -> TableAt:
        """Return what a file says of a table. Raises SinkError naming the file."""
        return cls(
            found.text("schema"),
            found.text("table"),
            found.integer("table_id"),
            found.text("place"),
            found.integer("version", -1, 1 << 63),
            found.text("metadata", default=""),
            found.text("uuid", default=""),
        )

    @property
    def name(self) -> Name:
        """Schema and table."""
        return self.schema, self.table


@dataclass(frozen=True, slots=True)
class Manifest:
    """All tables at a resolved ts, by name."""

    resolved_ts: int
    epoch: int = 0
    changefeed: str = ""
    tables: Mapping[Name, TableAt] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Return the file's content."""
        tables = [asdict(self.tables[name]) for name in sorted(self.tables)]
        head = {"format": 1, "resolved_ts": self.resolved_ts, "epoch": self.epoch, "changefeed": self.changefeed}
        return json.dumps({**head, "tables": tables}, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, data: bytes, where: str) -> Manifest:
        """Raises SinkError naming the file."""
        found = statefile.read(data, where, NOTE)
        tables = [TableAt.of(one) for one in found.parts("tables")]
        return cls(
            found.integer("resolved_ts"),
            found.integer("epoch", 0, 1 << 62),
            found.text("changefeed"),
            {table.name: table for table in tables},
        )


@dataclass(frozen=True, slots=True)
class Head:
    """How far the tables are. `manifest`: the ts of the newest manifest; 0: there is none yet."""

    resolved_ts: int = 0
    manifest: int = 0
    epoch: int = 0


def file_of(ts: int) -> str:
    """Return the name of a manifest."""
    return f"{MANIFESTS}/{ts:020d}.json"


def read_head(store: Store) -> Head:
    """Return how far the tables are; zeros if nothing was delivered. Raises SinkError, SinkUnavailable."""
    return _head_of(store, store.read(HEAD))


def _head_of(store: Store, text: bytes | None) -> Head:
    if text is None:
        return Head()
    found = statefile.read(text, f"{store}/{HEAD}", NOTE)
    return Head(found.integer("resolved_ts"), found.integer("manifest"), found.integer("epoch", 0, 1 << 62))


def write_head(store: Store, head: Head) -> None:
    """Move the head. One that is further stays."""
    data = json.dumps({"format": 1, **asdict(head)}).encode()
    store.change(HEAD, lambda known: data if _head_of(store, known).resolved_ts <= head.resolved_ts else None)


def read_manifest(store: Store, ts: int) -> Manifest:
    """Return the manifest of exactly this ts; one without tables for 0. Raises SinkError if it is missing."""
    if not ts:
        return Manifest(0)
    text = store.read(file_of(ts))
    if text is None:
        raise SinkError(f"{store}/{file_of(ts)} is missing", hint=NOTE.hint)
    return Manifest.from_json(text, f"{store}/{file_of(ts)}")


def write_manifest(store: Store, manifest: Manifest) -> bool:
    """Write a manifest, unless there is one of this ts. Returns whether it was written."""
    return store.create(file_of(manifest.resolved_ts), manifest.to_json())


def times(store: Store) -> list[int]:
    """Return the ts of all manifests, in order."""
    names = (name.removesuffix(".json") for name in store.names(MANIFESTS) if name.endswith(".json"))
    return sorted(int(name) for name in names if name.isdecimal())


def manifest_at(store: Store, ts: int | None) -> Manifest:
    """Return the tables at a ts, as a manifest whose resolved_ts is this ts; None: the newest.

    Raises SinkError if the tables are not that far, or nothing is known of that time any more.
    """
    head = read_head(store)
    if not head.resolved_ts:
        raise SinkError(f"{store} has no tables of Tidemill", hint="Nothing was delivered there yet, or the place is another.")
    if ts is None:
        newest = read_manifest(store, head.manifest)
        return Manifest(head.resolved_ts, newest.epoch, newest.changefeed, newest.tables)
    if ts > head.resolved_ts:
        raise SinkError(
            f"{store}: the tables are those of {describe(head.resolved_ts)}, not yet of {describe(ts)}",
            hint='Wait, or take "latest".',
        )
    known = [one for one in times(store) if one <= head.manifest]
    at = bisect_right(known, ts)
    if not at:
        since = describe(known[0]) if known else "never"
        raise SinkError(f"{store}: nothing is known of {describe(ts)}: the manifests begin at {since}", hint="Take a later time.")
    found = read_manifest(store, known[at - 1])
    return Manifest(ts, found.epoch, found.changefeed, found.tables)
