"""PD's members: who is up, who leads, and what a new leader does not know yet. Pure but for the clock it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

NAME = "playground"


@dataclass(slots=True)
class Member:
    """A PD server."""

    id: int
    name: str
    address: str = ""  # host:port
    up: bool = True


class Members:
    """One to several PD servers. Without a majority there is no leader.

    `cold_s`: for so long after an election the new leader has heard of a part of the regions only, as in a real cluster, whose stores
    report them one after the other.
    """

    def __init__(self, count: int, clock: Callable[[], float], *, election_s: float = 0.5, cold_s: float = 1.0) -> None:
        names = [NAME] if count < 2 else [f"{NAME}-{i}" for i in range(1, count + 1)]
        self.all = {i: Member(i, name) for i, name in enumerate(names, 1)}
        self.leader = 1
        """The leader's id; 0: there is none."""
        self._clock, self.election_s, self._cold_s = clock, election_s, cold_s
        self._cold_until = 0.0

    @property
    def leading(self) -> Member | None:
        """The member that leads."""
        return self.all.get(self.leader)

    @property
    def electable(self) -> bool:
        """Whether a majority is up."""
        return sum(m.up for m in self.all.values()) * 2 > len(self.all)

    def is_cold(self, region_id: int) -> bool:
        """Whether the leader has not heard of a region since it was elected."""
        return region_id % 3 == 0 and self._clock() < self._cold_until

    def resign(self, member_id: int) -> None:
        """The member does not lead any more."""
        if self.leader == member_id:
            self.leader = 0

    def elect(self, member_id: int = 0) -> bool:
        """Make this member (or the next one) the leader if there is none. Returns whether there is one afterwards."""
        if self.leader == 0 and self.electable:
            candidates = [m.id for m in self.all.values() if m.up]
            self.leader = member_id if member_id in candidates else candidates[0]
            self._cold_until = self._clock() + self._cold_s
        return self.leader != 0
