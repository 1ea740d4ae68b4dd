"""The change log's format in names and JSON: what is where, and which files together hold an interval of time.

Pure: no file is opened here. Rules: docs/change-log-format.md.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from tidemill import plugins, statefile
from tidemill.changelog.spread import MAX_PARTITIONS, Layout, SplitTable, with_split
from tidemill.errors import LogCorrupt, LogError, redact
from tidemill.tso import MAX_TS

FORMAT = 2
"""The format of new logs. In such a log all segments, schema snapshots and parts of initial loads have checksums."""
GROWN = 3
"""The format of a log whose layout has changed: format 2 plus `layouts`, with the layout by ts. A reader that does not know `layouts` would
deliver a table's rows out of order."""
SPLIT = 4
"""The format of a log in which a table is, or was, split over partitions: format 3, and its layouts have `split_tables`."""
FORMATS = (1, FORMAT, GROWN, SPLIT)
"""The formats that are read and written. A log keeps its format until its layout changes. New files in a log of format 1 have checksums
too."""
MAX_BATCH_ROWS = 65_536
MAX_BATCH_BYTES = 64 << 20

IDENTITY = "log.json"
LOCK = "writer.lock"
PROBE = "writer.probe"
GROWTH = "growth.json"
"""A request for another layout, which the capture has not fulfilled yet."""
ROWS = "rows"
SCHEMA = "schema"
SNAPSHOT = "snapshot"
FEEDS = "feeds"
FENCES = "fences"
SERVER = "server"
"""What servers share: who leads, and their changefeeds (`tidemill.server.shared`)."""
HEAD = "head.json"
SYNCED = "synced.json"
OWNER = "owner.json"

_SEGMENT = re.compile(r"(\d{20})-(\d{20})(?:\.([1-9]\d*)of([1-9]\d*))?\.arrow")
_SNAPSHOT = re.compile(r"snapshot-(\d{20})\.arrow")
_TEMPORARY = re.compile(r"\..*\.tmp")
_FEED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

Join = Callable[[str], str]
"""Turns a file's name within its folder into a path or a URL."""


class Source(enum.StrEnum):
    """Where the rows come from. A source of another package is the name of its entry point."""

    TIKV = "tikv"
    BINLOG = "binlog"


def _source(fields: statefile.Fields) -> str:
    """Return the source that a log.json names. Raises the error of a wrong field for one that nobody brings."""
    word = fields.text("source")
    if word not in set(Source) and word in plugins.offered(plugins.SOURCES, frozenset(Source)):
        return word
    return fields.choice("source", Source)


class Affinity(enum.StrEnum):
    """What stays together in one partition."""

    TABLE = "table"  # all rows of a logical table
    KEY = "key"  # all changes of a key


def rows_folder(partition: int) -> str:
    """The folder of a partition's segments, relative to the log."""
    return f"rows/{partition}"


MOST_CAPTURED = 1024
"""Partitions that a capture makes at most."""


def folders(partitions: int) -> list[str]:
    """Return every folder that has segments, a head and an owner."""
    return [SCHEMA, *(rows_folder(p) for p in range(partitions))]


# ---- log.json ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CaptureRules:
    """An entry of `capture_rules` in log.json: which tables are captured, for rows above `from_ts`. It holds until the next entry."""

    from_ts: int
    rules: tuple[str, ...]
    case_sensitive: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {"from_ts": self.from_ts, "rules": list(self.rules)} | ({"case_sensitive": True} if self.case_sensitive else {})


@dataclass(frozen=True, slots=True)
class UpstreamVersion:
    """An entry of `upstream_versions` in log.json: the version of the cluster's oldest TiKV, as PD reports it, from `from_ts` on."""

    from_ts: int
    version: str

    def to_dict(self) -> dict[str, Any]:
        return {"from_ts": self.from_ts, "version": self.version}


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """The content of log.json: the cluster, the log's start, its layouts, and what else holds for all files of the log."""

    cluster_id: str
    start_ts: int
    partitions: int
    affinity: Affinity = Affinity.TABLE
    source: str = Source.TIKV
    partition_by: str | None = None
    split_tables: tuple[int | str, ...] = ()
    capture_rules: tuple[CaptureRules, ...] = ()
    layouts: tuple[Layout, ...] = ()  # all layouts so far, by from_ts; empty if it never changed
    upstream_versions: tuple[UpstreamVersion, ...] = ()  # by from_ts; before the first one the version is unknown
    late_rows: tuple[tuple[int, int], ...] = ()  # (from_ts, to_ts] in which rows were inserted after the interval was published
    format: int = FORMAT
    extra: Mapping[str, Any] = field(default_factory=dict)  # fields of later versions, kept when log.json is written again

    def __post_init__(self) -> None:
        if not 1 <= self.partitions <= MAX_PARTITIONS:
            raise LogError(f"a change log has 1 to {MAX_PARTITIONS} partitions, not {self.partitions}")
        if not 0 < self.start_ts <= MAX_TS:
            raise LogError(f"{self.start_ts} is not a timestamp at which a change log can start")
        grows = all(a.from_ts < b.from_ts and a.partitions <= b.partitions for a, b in pairwise(self.layouts))
        if self.layouts and not (grows and self.layouts[-1].partitions == self.partitions and self.layouts[0].partitions >= 1):
            raise ValueError(f"its layouts do not lead to {self.partitions} partitions")
        if self.format < SPLIT and any(one.split_tables for one in self.layouts):
            raise ValueError(f"format {self.format} has no split tables in its layouts")

    def rules_at(self, ts: int) -> tuple[str, ...] | None:
        """Return the table rules for rows just above `ts`; None: all tables."""
        found = None
        for entry in sorted(self.capture_rules, key=lambda e: e.from_ts):
            if entry.from_ts <= ts:
                found = entry.rules
        return found

    def layout_at(self, ts: int) -> Layout:
        """Return the layout of rows just above `ts`."""
        found = [one for one in self.layouts if one.from_ts <= ts] or list(self.layouts[:1])
        return found[-1] if found else Layout(0, self.partitions)

    @property
    def layout(self) -> Layout:
        """The newest layout."""
        return self.layout_at(MAX_TS)

    def units_at(self, ts: int) -> tuple[int, ...]:
        """Return a number for each partition, for rows just above `ts`. Those with the same number share tables: see `Layout.units`."""
        if self.affinity is Affinity.KEY or self.split_tables:  # any table may be in all of them
            return (0,) * self.partitions
        found = self.layout_at(ts).units()
        return (*found, *range(len(found), self.partitions))

    def switches(self, from_ts: int, to_ts: int) -> list[int]:
        """Return each ts in (from_ts, to_ts] above which another layout holds. The first layout does not count."""
        return [one.from_ts for one in self.layouts[1:] if from_ts < one.from_ts <= to_ts]

    @property
    def settled_ts(self) -> int:
        """The ts at which the newest layout begins. Every folder is complete up to it: else the layout could not have changed there."""
        return max(self.start_ts, self.layouts[-1].from_ts if self.layouts else 0)

    def grown(self, ts: int, partitions: int) -> LogIdentity:
        """Return the identity with more partitions, for rows above `ts`. All folders are complete up to exactly `ts`.

        Raises LogError if the log cannot grow to this number.
        """
        self.check_growth(partitions)
        return self._laid_out(replace(self.layout, from_ts=ts, partitions=partitions))

    def spread(self, ts: int, split: SplitTable) -> LogIdentity:
        """Return the identity with a table split over partitions, for rows above `ts`. All folders are complete up to exactly `ts`.

        Raises LogError if the log cannot split tables.
        """
        self.check_split(len(split.partitions))
        layout = self.layout
        return self._laid_out(replace(layout, from_ts=ts, split_tables=with_split(layout.split_tables, split)))

    def gathered(self, ts: int, table_id: int) -> LogIdentity:
        """Return the identity in which a split table is in one partition again, for rows above `ts`."""
        kept = tuple(split for split in self.layout.split_tables if split.table_id != table_id)
        return self._laid_out(replace(self.layout, from_ts=ts, split_tables=kept))

    def with_names(self, names: Mapping[int, str]) -> LogIdentity:
        """The same log, whose newest layout has the split tables that have names here, by these names."""
        kept = tuple(replace(split, name=names[split.table_id]) for split in self.layout.split_tables if split.table_id in names)
        return self._laid_out(replace(self.layout, split_tables=kept))

    def _laid_out(self, layout: Layout) -> LogIdentity:
        before = self.layouts or (replace(self.layout, from_ts=self.start_ts),)
        kept = tuple(one for one in before if one.from_ts < layout.from_ts)
        splits = any(one.split_tables for one in (*kept, layout))
        return replace(self, format=SPLIT if splits else GROWN, partitions=layout.partitions, layouts=(*kept, layout))

    def check_growth(self, partitions: int) -> None:
        """Raise LogError if the log cannot grow to this number of partitions."""
        self._check_layout_may_change()
        if not self.partitions < partitions <= MOST_CAPTURED:
            raise LogError(
                f"the log has {self.partitions} partitions: it grows to {MOST_CAPTURED} at most and never shrinks; not to {partitions}"
            )

    def check_split(self, over: int) -> None:
        """Raise LogError if no table can be split over so many partitions."""
        self._check_layout_may_change()
        if over > self.partitions:
            raise LogError(
                f"the log has {self.partitions} partitions: a table cannot be split over {over}", hint="`tidemill log grow` adds some."
            )

    def _check_layout_may_change(self) -> None:
        if self.format < FORMAT:
            raise LogError(f"a log of format {self.format} keeps its number of partitions", hint="Start a new log.")
        if self.affinity is not Affinity.TABLE:
            raise LogError(f"a log with affinity {self.affinity} keeps its number of partitions")

    def with_rules(self, entry: CaptureRules) -> LogIdentity:
        """Return the identity with other capture rules from `entry.from_ts` on."""
        return replace(self, capture_rules=(*(e for e in self.capture_rules if e.from_ts < entry.from_ts), entry))

    def with_earlier_rules(self, entry: CaptureRules, from_ts: int) -> LogIdentity:
        """Return the identity with an entry that holds from an earlier ts on. What holds after it stays."""
        before = (e for e in self.capture_rules if e.from_ts < from_ts)
        after = (e for e in self.capture_rules if e.from_ts > entry.from_ts)
        return replace(self, capture_rules=(*before, replace(entry, from_ts=from_ts), *after))

    def rules_above(self, from_ts: int) -> list[CaptureRules | None]:
        """Return the capture rules that apply to rows above `from_ts`, in order; None: all tables."""
        entries = sorted(self.capture_rules, key=lambda entry: entry.from_ts)
        before = [entry for entry in entries if entry.from_ts <= from_ts]
        return [before[-1] if before else None, *(entry for entry in entries if entry.from_ts > from_ts)]

    def with_late_rows(self, from_ts: int, to_ts: int) -> LogIdentity:
        """Return the identity of a log into whose interval (from_ts, to_ts] rows are inserted from now on."""
        return self if (from_ts, to_ts) in self.late_rows else replace(self, late_rows=(*self.late_rows, (from_ts, to_ts)))

    def has_late_rows(self, from_ts: int, to_ts: int) -> bool:
        """Return whether rows may have been inserted into (from_ts, to_ts]."""
        return any(low < to_ts and from_ts < high for low, high in self.late_rows)

    def version_at(self, ts: int) -> str | None:
        """Return the cluster's version for rows just above `ts`; None: unknown."""
        before = [entry for entry in self.upstream_versions if entry.from_ts <= ts]
        return before[-1].version if before else None

    def with_version(self, entry: UpstreamVersion) -> LogIdentity:
        """Return the identity with another version of the cluster from `entry.from_ts` on."""
        kept = (e for e in self.upstream_versions if e.from_ts < entry.from_ts)
        return replace(self, upstream_versions=(*kept, entry))

    def moved_to(self, start_ts: int) -> LogIdentity:
        """Return the identity after retention has moved the start to `start_ts`."""
        return replace(self, start_ts=start_ts, late_rows=tuple(one for one in self.late_rows if one[1] > start_ts))

    def to_json(self) -> str:
        fields: dict[str, Any] = {
            "format": self.format,
            "source": str(self.source),
            "cluster_id": self.cluster_id,
            "start_ts": self.start_ts,
            "partitions": self.partitions,
            "affinity": str(self.affinity),
        }
        if self.partition_by is not None:
            fields["partition_by"] = self.partition_by
        if self.split_tables:
            fields["split_tables"] = list(self.split_tables)
        if self.layouts:
            fields["layouts"] = [one.to_dict() for one in self.layouts]
        if self.capture_rules:
            fields["capture_rules"] = [r.to_dict() for r in self.capture_rules]
        if self.upstream_versions:
            fields["upstream_versions"] = [v.to_dict() for v in self.upstream_versions]
        if self.late_rows:
            fields["late_rows"] = [list(one) for one in self.late_rows]
        return json.dumps({**fields, **self.extra}) + "\n"

    @classmethod
    def from_json(cls, data: bytes | str, name: str = IDENTITY) -> LogIdentity:
        """Raises LogError for another format, LogCorrupt for what is not a log.json; both name the file."""
        fields = statefile.read(data, name)
        version = fields.integer("format")
        if version not in FORMATS:
            raise LogError(f"{redact(name)} has format {version}; this Tidemill reads formats 1 to {SPLIT}")
        try:
            return cls(
                source=_source(fields),
                cluster_id=fields.text("cluster_id"),
                start_ts=fields.integer("start_ts", 1),
                partitions=fields.integer("partitions", 1, MAX_PARTITIONS),
                affinity=fields.choice("affinity", Affinity),
                partition_by=fields.text("partition_by") if "partition_by" in fields else None,
                split_tables=_split_tables(fields),
                capture_rules=tuple(
                    CaptureRules(r.integer("from_ts"), r.texts("rules"), r.flag("case_sensitive", default=False))
                    for r in fields.parts("capture_rules", optional=True)
                ),
                layouts=tuple(Layout.from_fields(one) for one in fields.parts("layouts", optional=True)),
                upstream_versions=tuple(
                    sorted(
                        (
                            UpstreamVersion(v.integer("from_ts"), v.text("version"))
                            for v in fields.parts("upstream_versions", optional=True)
                        ),
                        key=lambda v: v.from_ts,
                    )
                ),
                late_rows=fields.pairs("late_rows", optional=True),
                format=version,
                extra=fields.others(_FIELDS),
            )
        except ValueError as e:
            raise fields.broken(str(e)) from None


_FIELDS = frozenset(one.name for one in dataclasses.fields(LogIdentity)) - {"extra"}


def _split_tables(fields: statefile.Fields) -> tuple[int | str, ...]:
    """Ids or names of tables, in logs that other programs wrote."""
    found = fields.items("split_tables", optional=True)
    if not all(isinstance(one, int | str) and not isinstance(one, bool) for one in found):
        raise fields.broken("split_tables has something other than ids and names of tables")
    return tuple(found)


def format_ts_file(key: str, ts: int) -> bytes:
    """A head or a feed: an object with one timestamp."""
    return (json.dumps({key: ts}) + "\n").encode()


def format_head(ts: int, last: int) -> bytes:
    """A head. `last`: where the folder's last segment ends; 0: it has none."""
    return (json.dumps({"resolved_ts": ts} | ({"last": last} if last else {})) + "\n").encode()


REMOVED_FEED = b'{"removed": true}\n'
"""A feed that is as good as deleted: an object store cannot delete a file on a condition."""


def parse_ts_file(data: bytes, key: str, name: str) -> int:
    """The timestamp of a head or a feed. Raises LogCorrupt naming the file."""
    return statefile.read(data, name).integer(key)


# ---- names of files ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """The name of a segment file: all of (from_ts, to_ts], or part k of n."""

    from_ts: int
    to_ts: int
    part: int = 1
    parts: int = 1

    def __str__(self) -> str:
        suffix = f".{self.part}of{self.parts}" if self.parts > 1 else ""
        return f"{self.from_ts:020d}-{self.to_ts:020d}{suffix}.arrow"


def parse_segment(name: str, folder: str = "") -> SegmentName | None:
    """Parse a file name; None if it is not a segment. Raises LogCorrupt, with the folder, if the interval is impossible."""
    m = _SEGMENT.fullmatch(name)
    if not m:
        return None
    found = SegmentName(int(m[1]), int(m[2]), int(m[3] or 1), int(m[4] or 1))
    if found.from_ts >= found.to_ts or found.to_ts > MAX_TS or found.part > found.parts:
        raise LogCorrupt(f"{folder}{'/' if folder else ''}{name} names no interval of time", hint="Move the file away.")
    return found


def between_names(names: Iterable[str], floor: int, ceiling: int) -> list[str]:
    """Return the names that may be segments with to_ts > floor and from_ts < ceiling. An old log has tens of thousands: none is parsed."""
    low, high = f"{floor:020d}", f"{ceiling:020d}"
    return [name for name in names if name[21:41] > low and name[:20] < high]


def snapshot_name(ts: int) -> str:
    """The schema snapshot of a ts, within the schema folder."""
    return f"snapshot-{ts:020d}.arrow"


def parse_snapshot(name: str) -> int | None:
    """Return the ts in the name of a schema snapshot."""
    m = _SNAPSHOT.fullmatch(name)
    return int(m[1]) if m else None


def is_temporary(name: str) -> bool:
    """Return whether a file was never published."""
    return _TEMPORARY.fullmatch(name) is not None


def feed_name(feed: str) -> str:
    """The file of a changefeed, within the feeds folder. Raises LogError for an id that is not a file name."""
    if not _FEED.fullmatch(feed):
        raise LogError(f"{feed!r} is not a changefeed id: letters, digits, `.`, `_`, `-`, at most 128, the first a letter or a digit")
    return f"{feed}.json"


def fence_name(feed: str) -> str:
    """The file of a changefeed's fence, within the log. Raises as `feed_name`."""
    return f"{FENCES}/{feed_name(feed)}"


# ---- chains --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Interval:
    """The rows with from_ts < commit_ts <= to_ts of one folder: one file, or the parts of a big interval, each sorted.

    `parts` are paths or URLs as `open_segment` takes them.
    """

    from_ts: int
    to_ts: int
    parts: tuple[str, ...]

    def __str__(self) -> str:
        return f"({self.from_ts}, {self.to_ts}]"


@dataclass(frozen=True, slots=True)
class Fault:
    """Why neighbouring intervals do not join: nothing above `at_ts` can be read. A hole ends at `upto_ts`."""

    at_ts: int
    upto_ts: int
    message: str


@dataclass(frozen=True, slots=True)
class Chain:
    """What a folder holds: the intervals that join, up to the first fault; those inside others; incomplete ones."""

    intervals: tuple[Interval, ...]
    inside: tuple[Interval, ...] = ()
    incomplete: tuple[str, ...] = ()  # parts of intervals that lack others
    fault: Fault | None = None

    @property
    def from_ts(self) -> int | None:
        return self.intervals[0].from_ts if self.intervals else None

    @property
    def to_ts(self) -> int | None:
        """The end of the last interval in the chain."""
        return self.intervals[-1].to_ts if self.intervals else None

    def between(self, from_ts: int, to_ts: int) -> list[Interval]:
        """Return the intervals that hold rows of (from_ts, to_ts], oldest first."""
        first = bisect_right(self.intervals, from_ts, key=lambda i: i.to_ts)
        last = first
        while last < len(self.intervals) and self.intervals[last].from_ts < to_ts:
            last += 1
        return list(self.intervals[first:last])


def complete_intervals(names: Iterable[SegmentName], join: Join) -> tuple[list[Interval], list[str]]:
    """Group files into the intervals they hold, in no order. Also return the parts of intervals that lack others.

    An interval that exists twice (whole and in parts) counts once, with the fewest files.
    """
    found: dict[tuple[int, int], dict[int, list[SegmentName]]] = {}
    for name in names:
        found.setdefault((name.from_ts, name.to_ts), {}).setdefault(name.parts, []).append(name)
    intervals, incomplete = [], []
    for (from_ts, to_ts), divisions in found.items():
        whole = sorted(n for n, files in divisions.items() if len(files) == n)
        for n, files in divisions.items():
            if n not in whole:
                incomplete += [join(str(f)) for f in sorted(files)]
        for n in whole[:1]:
            intervals.append(Interval(from_ts, to_ts, tuple(join(str(f)) for f in sorted(divisions[n]))))
        for n in whole[1:]:
            incomplete += [join(str(f)) for f in sorted(divisions[n])]
    return intervals, sorted(incomplete)


def link(intervals: Iterable[Interval], incomplete: Sequence[str] = (), before: Interval | None = None) -> Chain:
    """Link intervals, given in any order, into a chain. Of an interval inside another, only the larger counts.

    `before`: an interval that the first one must follow.
    """
    linked: list[Interval] = []
    inside: list[Interval] = []
    last = before
    for one in sorted(intervals, key=lambda i: (i.from_ts, -i.to_ts)):
        if last is not None and one.to_ts <= last.to_ts:
            inside.append(one)
        elif last is not None and one.from_ts != last.to_ts:
            return Chain(tuple(linked), tuple(inside), tuple(incomplete), _fault(last, one, incomplete))
        else:
            linked.append(one)
            last = one
    return Chain(tuple(linked), tuple(inside), tuple(incomplete))


def _fault(last: Interval, one: Interval, incomplete: Sequence[str]) -> Fault:
    if one.from_ts < last.to_ts:
        text = f"{last.parts[0]} and {one.parts[0]} overlap: both hold ({one.from_ts}, {last.to_ts}], neither lies inside the other"
        return Fault(one.from_ts, one.from_ts, text)
    text = f"nothing holds ({last.to_ts}, {one.from_ts}] between {last.parts[0]} and {one.parts[0]}"
    partial = [p for p in incomplete if f"/{last.to_ts:020d}-" in p]
    if partial:
        text += f"; of {partial[0]} other parts are missing"
    return Fault(last.to_ts, one.from_ts, text)
