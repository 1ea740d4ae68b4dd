"""Control commands for what goes wrong in a cluster: connections, stores, PD members, regions' subscriptions, slow answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tidemill import tso
from tidemill.errors import SqlError
from tidemill.playground.served import Served
from tidemill.playground.services.gate import Fault, Gate
from tidemill.playground.store.feed import epoch_not_match, not_leader, region_not_found
from tidemill.playground.store.regions import Region
from tidemill.wire import cdcpb_pb2 as cdcpb

Json = dict[str, Any]


def _busy(region: Region) -> cdcpb.Error:
    error = cdcpb.Error()
    error.server_is_busy.reason = "too many pending incremental scans"
    return error


REGION_ERRORS: dict[str, Callable[[Region], cdcpb.Error]] = {
    "not_leader": not_leader,
    "no_leader": lambda region: cdcpb.Error(not_leader=_without_leader(region)),
    "epoch_not_match": lambda region: epoch_not_match([]),
    "region_not_found": lambda region: region_not_found(region.id),
    "server_is_busy": _busy,
    "congested": lambda region: cdcpb.Error(congested=cdcpb.Congested(region_id=region.id)),
}
"""Errors of a subscription by name. `no_leader` is a not_leader that names no new leader."""


def _without_leader(region: Region) -> Any:
    error = not_leader(region).not_leader
    error.ClearField("leader")
    return error


class FaultCommands:
    """Commands of a running playground. What lasts for `seconds` ends by itself."""

    def __init__(self, playground: Served) -> None:
        self._playground = playground
        self.commands: dict[str, Callable[[Json], Json]] = {
            "wire": self._wire,
            "restart-store": self._restart_store,
            "restart-pd": self._restart_pd,
            "pd-leader": self._pd_leader,
            "fail-region": self._fail_region,
            "mute": self._mute,
            "busy": self._busy,
            "pace": self._pace,
            "slow": self._slow,
            "break-streams": self._break_streams,
            "resolve-orphans": self._resolve_orphans,
            "clock": self._clock,
        }

    def _clock(self, request: Json) -> Json:
        """Let PD's time jump ahead. The machine's clock follows, and PD never goes back: it stands still until then."""
        oracle = self._playground.cluster.oracle
        oracle.advance(tso.compose(tso.physical_ms(oracle.last) + int(request["ms"])))
        return {"ts": oracle.last}

    # connections and servers

    def _wire(self, request: Json) -> Json:
        """Strike the connections of a store or a PD member."""
        seconds = float(request.get("seconds", 1.0))
        return {"connections": self._gate(request).strike(Fault(request["fault"]), seconds)}

    def _gate(self, request: Json) -> Gate:
        ports = self._playground.pd_ports if request.get("member") else self._playground.store_ports
        number = int(request.get("member") or request.get("store") or 1)
        if number not in ports:
            raise SqlError(f"there is no {'PD member' if request.get('member') else 'store'} {number}")
        gate = ports[number].gate
        if gate is None:
            raise SqlError("the playground has no gates, or what this one stands before is down", hint="Start it with --gates.")
        return gate

    def _restart_store(self, request: Json) -> Json:
        """Kill a store; it comes back after a while."""
        playground, store = self._playground, int(request.get("store", 1))
        if store not in playground.store_ports:
            raise SqlError(f"there is no store {store}")
        if store == 1 and not playground.pd_ports:
            raise SqlError("store 1 shares its port with PD", hint="Start the playground with --pds 1 or more.")

        async def restart() -> None:
            await playground.stop_store(store)
            await asyncio.sleep(float(request.get("seconds", 1.0)))
            await playground.restart_store(store)

        playground.later(playground.alone(f"store {store}", restart))
        return {"store": store}

    def _restart_pd(self, request: Json) -> Json:
        """Kill PD members; they come back after a while. Without a member the leader, with `all` all of them."""
        playground = self._playground
        if not playground.pd_ports:
            raise SqlError("PD shares its port with store 1", hint="Start the playground with --pds 1 or more.")
        chosen = int(request.get("member") or playground.members.leader or 1)
        if chosen not in playground.pd_ports:
            raise SqlError(f"there is no PD member {chosen}")
        members = sorted(playground.pd_ports) if request.get("all") else [chosen]

        async def restart() -> None:
            for member in members:
                await playground.stop_pd(member)
            await asyncio.sleep(float(request.get("seconds", 1.0)))
            for member in members:
                await playground.start_pd(member)

        playground.later(playground.alone("pd", restart))
        return {"members": members}

    def _pd_leader(self, request: Json) -> Json:
        """Make another PD member the leader."""
        playground = self._playground
        others = [m.id for m in playground.members.all.values() if m.up and m.id != playground.members.leader]
        member = int(request.get("member") or (others[0] if others else 0))
        if member not in others:
            raise SqlError(f"PD member {member or 'of any other number'} is not there, down, or leads already")
        playground.later(playground.alone("pd", lambda: playground.change_pd_leader(member)))
        return {"member": member}

    # subscriptions

    def _region(self, request: Json) -> Region:
        region = self._playground.cluster.regions.get(int(request["region"]))
        if region is None:
            raise SqlError(f"there is no region {request['region']}")
        return region

    def _fail_region(self, request: Json) -> Json:
        """End the subscriptions of a region with an error."""
        region = self._region(request)
        make = REGION_ERRORS.get(str(request.get("error", "region_not_found")))
        if make is None:
            raise SqlError(f"there is no error {request['error']!r}", hint="Errors: " + ", ".join(REGION_ERRORS))
        self._playground.cluster.feeds.fail_region(region.id, make(region))
        return {"region": region.id}

    def _mute(self, request: Json) -> Json:
        """Drop the subscriptions of a region without telling the clients."""
        region = self._region(request)
        self._playground.cluster.feeds.mute(region.id)
        return {"region": region.id}

    def _busy(self, request: Json) -> Json:
        """Make stores refuse new subscriptions for a while, if this many scans are pending (0: always)."""
        limits = self._playground.cluster.feeds.limits
        before = type(limits)().pending_scans
        limits.pending_scans = int(request.get("scans", 0))

        async def relent() -> None:
            await asyncio.sleep(float(request.get("seconds", 1.0)))
            limits.pending_scans = before

        self._playground.later(relent())
        return {}

    def _pace(self, request: Json) -> Json:
        """Change the interval of resolved timestamps."""
        self._playground.resolved_interval = float(request["seconds"])
        return {}

    def _slow(self, request: Json) -> Json:
        """Let a store work for some seconds on each call of a kind (KvCheckTxnStatus) before it does it; 0: no longer."""
        store, call, seconds = int(request.get("store", 1)), str(request["call"]), float(request["seconds"])
        if store not in self._playground.kvs:
            raise SqlError(f"there is no store {store}")
        slow = self._playground.kvs[store].slow
        if seconds:
            slow[call] = seconds
        else:
            slow.pop(call, None)
        return {"store": store, "slow": dict(slow)}

    def _resolve_orphans(self, request: Json) -> Json:
        """Resolve the locks of dead clients, as a reader does when it meets one."""
        return {"ended": self._playground.cluster.resolve_orphans()}

    def _break_streams(self, request: Json) -> Json:
        """End all change feed streams of a store, with gRPC's status."""
        store = int(request.get("store", 1))
        if store not in self._playground.feeds:
            raise SqlError(f"there is no store {store}")
        return {"broken": self._playground.feeds[store].break_streams()}
