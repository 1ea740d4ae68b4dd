"""PD's members: which are up, which one leads, and whether a new leader knows all regions yet. Pure, apart from the clock that it is
given."""

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

    `cold_s`: seconds after an election in which the new leader knows only some regions. In a real cluster stores report them one after the
    other.
    """

    def __init__(self, count: int, clock: Callable[[], float], *, election_s: float = 0.5, cold_s: float = 1.0) -> None:
        names = [NAME] if count < 2 else [f"{NAME}-{i}" for i in range(1, count + 1)]
        self.all = {i: Member(i, name) for i, name in enumerate(names, 1)}
        self.leader = 1
        """The id of the leader; 0 without one."""
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
        """Return whether the leader does not know a region yet since it was elected."""
        return region_id % 3 == 0 and self._clock() < self._cold_until

    def resign(self, member_id: int) -> None:
        """Make a member give up its leadership."""
        if self.leader == member_id:
            self.leader = 0

    def elect(self, member_id: int = 0) -> bool:
        """Make this member, or else the next one, the leader if there is none. Return whether there is a leader now."""
        if self.leader == 0 and self.electable:
            candidates = [m.id for m in self.all.values() if m.up]
            self.leader = member_id if member_id in candidates else candidates[0]
            self._cold_until = self._clock() + self._cold_s
        return self.leader != 0
