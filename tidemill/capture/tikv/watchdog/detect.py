"""Finds subscriptions without progress, and the one that holds each partition's resolved ts. Pure: arrays in, findings out.

TiKV sends the resolved ts of a live region every second, even while a lock holds it. So a region without messages for a while is *silent*.
One whose resolved ts is repeated without moving is *frozen*. TiKV sends one resolved ts for a whole group of regions: the slowest member's.
So the findings list the oldest resolved ts first, and the caller decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tidemill.capture.tikv.watchdog.causes import Cause
from tidemill.kernels.receive.layout import ACTIVE, FREE

Array = np.ndarray[Any, Any]
ASLEEP = 15.0  # seconds between two surveys that show that this process was suspended


@dataclass(frozen=True, slots=True)
class Survey:
    """A copy of all subscriptions (SUB records), and the clock of their `seen` in ms."""

    subs: Array
    clock: int


@dataclass(frozen=True, slots=True)
class Stuck:
    """A subscription without progress for `seconds`. `cause`: SILENT, FROZEN or SCANNING."""

    sub_range: int
    stream: int
    resolved: int
    cause: Cause
    seconds: float


@dataclass(frozen=True, slots=True)
class Holder:
    """The sub-range that holds a partition's resolved ts, and for how long."""

    partition: int
    sub_range: int
    resolved: int
    seconds: float


@dataclass(frozen=True, slots=True)
class StuckThresholds:
    """Seconds after which a subscription counts as silent, frozen, or too slow in its scan."""

    silent: float = 30.0
    frozen: float = 60.0
    scanning: float = 600.0


class Watch:
    """Compares each survey with those before. `partitions`: their number."""

    def __init__(self, partitions: int, thresholds: StuckThresholds | None = None) -> None:
        self.partitions = partitions
        self.thresholds = thresholds or StuckThresholds()
        self._sub_range: Array = np.zeros(0, np.int64)
        self._resolved: Array = np.zeros(0, np.int64)
        self._since: Array = np.zeros(0, np.float64)
        self._held: dict[int, tuple[int, float]] = {}  # partition -> its lowest resolved ts, and since when
        self._last_look = -1.0
        self._blind_until = 0.0
        self._subs: Array = np.zeros(0)

    def look(self, survey: Survey, now: float) -> None:
        """Take in a survey at monotonic time `now` (s)."""
        subs = survey.subs
        known = len(self._sub_range)
        if len(subs) > known:
            more = len(subs) - known
            self._sub_range = np.concatenate([self._sub_range, np.zeros(more, np.int64)])
            self._resolved = np.concatenate([self._resolved, np.zeros(more, np.int64)])
            self._since = np.concatenate([self._since, np.full(more, now)])
        moved = (self._sub_range[: len(subs)] != subs["sub_range"]) | (self._resolved[: len(subs)] != subs["resolved"])
        self._since[: len(subs)][moved] = now
        self._sub_range[: len(subs)], self._resolved[: len(subs)] = subs["sub_range"], subs["resolved"]
        if self._last_look >= 0 and now - self._last_look > ASLEEP:
            self.blind(now)  # this process was suspended, not the stores
        self._last_look = now
        self._subs = subs
        self._unheard = (survey.clock - subs["seen"]) / 1000

    def blind(self, now: float) -> None:
        """Report nothing for a while: messages may be waiting on this side, and must be read first."""
        self._blind_until = now + self.thresholds.silent

    def stuck(self, now: float, most: int = 64) -> list[Stuck]:
        """Return subscriptions without progress, the oldest resolved ts first."""
        subs = self._subs
        if now < self._blind_until or not len(subs):
            return []
        waited = now - self._since[: len(subs)]
        active = subs["state"] == ACTIVE
        live = active & (subs["initialized"] != 0)
        silent = live & (self._unheard > self.thresholds.silent)
        frozen = live & ~silent & (waited > self.thresholds.frozen)
        slow = active & (subs["initialized"] == 0) & (self._unheard > self.thresholds.scanning) & (waited > self.thresholds.scanning)
        found = []
        for cause, which, seconds in (
            (Cause.SILENT, silent, self._unheard),
            (Cause.FROZEN, frozen, waited),
            (Cause.SCANNING, slow, waited),
        ):
            for i in np.flatnonzero(which).tolist():
                found.append(
                    Stuck(int(subs["sub_range"][i]), int(subs["stream"][i]), int(subs["resolved"][i]), cause, round(float(seconds[i]), 1))
                )
        return sorted(found, key=lambda s: s.resolved)[:most]

    def lagging(self, below: int, now: float, seconds: float, most: int = 64) -> list[tuple[int, int]]:
        """Return the live subscriptions (sub-range, resolved) whose resolved ts is below `below` and has not moved for `seconds`."""
        subs = self._subs
        if not len(subs):
            return []
        live = (subs["state"] == ACTIVE) & (subs["initialized"] != 0) & (subs["resolved"] < below)
        slow = np.flatnonzero(live & (now - self._since[: len(subs)] >= seconds))
        slow = slow[np.argsort(subs["resolved"][slow], kind="stable")][:most]
        return [(int(subs["sub_range"][i]), int(subs["resolved"][i])) for i in slow.tolist()]

    def newest(self) -> int:
        """Return the largest resolved ts of a live subscription; 0 without one."""
        subs = self._subs
        if not len(subs):
            return 0
        live = subs["resolved"][(subs["state"] == ACTIVE) & (subs["initialized"] != 0)]
        return int(live.max()) if len(live) else 0

    def behind(self, below: int, now: float, most: int) -> tuple[int, list[tuple[int, int, float]]]:
        """Return how many ranges, subscribed or not, have a resolved ts below `below`, and the `most` slowest of them: sub-range, resolved
        ts, seconds without moving."""
        subs = self._subs
        if not len(subs):
            return 0, []
        low = np.flatnonzero((subs["state"] != FREE) & (subs["resolved"] < below))
        chosen = low
        if len(low) > most:
            chosen = low[np.argpartition(subs["resolved"][low], most)[:most]]
        waited = now - self._since[chosen]
        return len(low), list(zip(subs["sub_range"][chosen].tolist(), subs["resolved"][chosen].tolist(), waited.tolist(), strict=True))

    def on_stream(self, stream: int) -> int:
        """Return how many live subscriptions a stream has."""
        subs = self._subs
        return int(((subs["state"] == ACTIVE) & (subs["initialized"] != 0) & (subs["stream"] == stream)).sum()) if len(subs) else 0

    def holders(self, now: float) -> list[Holder]:
        """Return the slowest sub-range of each partition that has any, the slowest partition first. A new subscription does not reset its
        time."""
        subs = self._subs
        if not len(subs):
            return []
        found = []
        taken = np.flatnonzero(subs["state"] != FREE)
        partition, resolved_ts = subs["partition"][taken], subs["resolved"][taken]
        least = np.full(self.partitions, np.iinfo(np.int64).max)
        np.minimum.at(least, partition, resolved_ts)
        slowest = taken[resolved_ts == least[partition]]
        for p, first in zip(*np.unique(subs["partition"][slowest], return_index=True), strict=True):
            i, resolved = int(slowest[first]), int(least[p])
            held = self._held.get(int(p))
            if held is None or held[0] != resolved:
                held = self._held[int(p)] = resolved, min(now, float(self._since[i]))
            found.append(Holder(int(p), int(subs["sub_range"][i]), resolved, now - held[1]))
        return sorted(found, key=lambda h: h.resolved)
