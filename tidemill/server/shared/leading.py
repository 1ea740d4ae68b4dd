"""Metrics of who leads: made around the election, from its states. Pure. Times are seconds of the clock that the election uses."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.metrics.samples import Sample, counter, gauge
from tidemill.server.shared.election import Phase, State


class Leading:
    """Belongs to one server. `moved` is told of each step of its election."""

    def __init__(self) -> None:
        self._takeovers = 0
        self._unheard_s: float | None = None
        self._begin_s: float | None = None
        self._taken_at = 0.0

    def moved(self, before: State, after: State, now: float) -> None:
        """The election went from one state to another."""
        if before.phase is after.phase:
            return
        if after.phase is Phase.TAKES:
            was_held = before.lease is not None and not before.lease.free
            self._unheard_s, self._begin_s = (now - before.seen_at if was_held else 0.0), None
            self._taken_at = now
        elif after.phase is Phase.LEADS:
            self._takeovers, self._begin_s = self._takeovers + 1, now - self._taken_at

    def samples(self, state: State, members: int, now: float, *, away: bool) -> Iterator[Sample]:
        """`members`: the servers that are there. `away`: the lease could not be reached when it was last asked for."""
        yield gauge("tidemill_server_leads", "1 while this server leads", state.leads(now))
        yield gauge("tidemill_server_term", "term of the lease as this server saw it last", state.lease.term if state.lease else 0)
        if state.lease is not None:
            yield gauge("tidemill_server_lease_age_seconds", "since this server last saw the lease renewed", max(0.0, now - state.seen_at))
        yield gauge("tidemill_server_lease_away", "1 while the lease cannot be reached", away)
        yield gauge("tidemill_server_members", "servers of the log that are there", members)
        yield counter("tidemill_server_takeovers", "how often this server began to lead", self._takeovers)
        if self._unheard_s is not None and self._begin_s is not None:
            text = "how long this server's newest takeover took"
            yield gauge("tidemill_server_takeover_seconds", text, self._unheard_s, part="unheard")
            yield gauge("tidemill_server_takeover_seconds", text, self._begin_s, part="begin")
