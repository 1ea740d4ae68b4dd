"""The entry store's names and JSON: what is where, and which intervals together are the store. Pure.

    STORE/store.json                                         {"format": 1, "changefeed": …, "begins": …}
    STORE/entries/owner.json, head.json                      as in a folder of the change log
    STORE/entries/<hour>/<from>-<to>.<epoch>-<word>.seg      a segment, made by a task of that epoch
    STORE/entries/<hour>/<from>-<to>.<epoch>.json            an interval: its segments, in order

A segment counts when an interval names it, an interval when the head has reached its end. Of intervals with the same begin the one with the
highest epoch counts: the others are those of a driver that lost the store while it published.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tidemill import statefile
from tidemill.errors import LogCorrupt, LogError, redact
from tidemill.tso import LOGICAL_BITS, MAX_TS

FORMAT = 1
STORE = "store.json"
ENTRIES = "entries"
CLIENTS = "clients"
HOUR_MS = 3_600_000

_SEGMENT = re.compile(r"(\d{20})-(\d{20})\.([1-9]\d*)-([0-9a-f]+)\.seg")
_INTERVAL = re.compile(r"(\d{20})-(\d{20})\.([1-9]\d*)\.json")
_HOUR = re.compile(r"\d{8}")


def hour_of(ts: int) -> str:
    """The folder of what ends at `ts`."""
    return f"{(ts >> LOGICAL_BITS) // HOUR_MS:08d}"


def is_hour(name: str) -> bool:
    """Whether a folder is that of an hour."""
    return _HOUR.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """store.json. Entries with a commit_ts above `begins` are in the store."""

    changefeed: str
    begins: int

    def to_json(self) -> bytes:
        return (json.dumps({"format": FORMAT, "changefeed": self.changefeed, "begins": self.begins}) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes, name: str) -> StoreIdentity:
        """Raises LogError for another format, LogCorrupt for what is not a store.json; both name the file."""
        fields = statefile.read(data, name)
        if (form := fields.integer("format")) != FORMAT:
            raise LogError(f"{redact(name)} has format {form}; this Tidemill reads format {FORMAT}")
        return cls(fields.text("changefeed"), fields.integer("begins"))


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """The entries of (from_ts, to_ts], as a task of this epoch wrote them. `word` is unique."""

    from_ts: int
    to_ts: int
    epoch: int
    word: str

    def __str__(self) -> str:
        """The name within `entries`."""
        return f"{hour_of(self.to_ts)}/{self.from_ts:020d}-{self.to_ts:020d}.{self.epoch}-{self.word}.seg"


@dataclass(frozen=True, slots=True, order=True)
class IntervalName:
    """All entries of (from_ts, to_ts]. `epoch`: of the owner that published it."""

    from_ts: int
    to_ts: int
    epoch: int

    def __str__(self) -> str:
        """The name within `entries`."""
        return f"{hour_of(self.to_ts)}/{self.from_ts:020d}-{self.to_ts:020d}.{self.epoch}.json"


def parse_segment(name: str) -> SegmentName | None:
    """Parse a file name without its folder; None if it is not a segment."""
    m = _SEGMENT.fullmatch(name)
    return SegmentName(int(m[1]), int(m[2]), int(m[3]), m[4]) if m and int(m[1]) < int(m[2]) <= MAX_TS else None


def parse_interval(name: str) -> IntervalName | None:
    """Parse a file name without its folder; None if it is not an interval."""
    m = _INTERVAL.fullmatch(name)
    return IntervalName(int(m[1]), int(m[2]), int(m[3])) if m and int(m[1]) < int(m[2]) <= MAX_TS else None


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """A segment of an interval: its name within `entries`, its bytes, its last entry's commit_ts."""

    name: str
    size: int
    last_ts: int


@dataclass(frozen=True, slots=True)
class Interval:
    """The content of an interval's file. `after`: where the interval before it ends; 0: not said."""

    segments: Sequence[SegmentRef]
    after: int = 0

    def to_json(self) -> bytes:
        rows = [[one.name, one.size, one.last_ts] for one in self.segments]
        return (json.dumps({"format": FORMAT, "segments": rows} | ({"after": self.after} if self.after else {})) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes, name: str) -> Interval:
        """Raises LogCorrupt naming the file."""
        fields = statefile.read(data, name)
        if fields.integer("format") != FORMAT:
            raise LogCorrupt(f"{redact(name)} lists no segments of format {FORMAT}")
        found: list[SegmentRef] = []
        for i, row in enumerate(fields.items("segments")):
            match row:
                case [str(path), int(size), int(last_ts)] if 0 <= size <= MAX_TS and 0 <= last_ts <= MAX_TS:
                    folder, _, file = path.partition("/")
                    if is_hour(folder) and parse_segment(file) is not None:
                        found.append(SegmentRef(path, size, last_ts))
                        continue
            raise fields.broken(f"segments[{i}] is not the name of a segment, its size, and its last ts")
        if any(a.last_ts > b.last_ts for a, b in pairwise(found)):
            raise LogCorrupt(f"{redact(name)}: its segments are not in order")
        return cls(found, fields.integer("after", default=0))


def valid_intervals(names: Iterable[IntervalName], after: int, head: int) -> list[IntervalName]:
    """Of these intervals those that count, oldest first, with entries above `after` and up to the head.

    Where two overlap the one with the higher epoch counts. Raises LogCorrupt where two of the same epoch do.
    """
    chain: list[IntervalName] = []
    for one in sorted((n for n in names if after < n.to_ts <= head), key=lambda n: (n.from_ts, -n.epoch)):
        while chain and one.from_ts < chain[-1].to_ts and chain[-1].epoch < one.epoch:
            chain.pop()
        if not chain or one.from_ts >= chain[-1].to_ts:
            chain.append(one)
        elif one.epoch == chain[-1].epoch:
            raise LogCorrupt(f"the entry store's intervals {chain[-1]} and {one} overlap")
    return chain
