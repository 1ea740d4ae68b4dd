"""The cluster: PD, its stores, versions, its clock beside ours, and how much history there is. Does IO."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from tidemill import tso
from tidemill.capture.tikv.client.pd import PdClient, Store
from tidemill.capture.tikv.client.tls import Security
from tidemill.doctor.findings import Finding, bad, doubtful, good, of_error
from tidemill.errors import TidemillError, UpstreamUnavailable

CONNECT_S = 8.0
SKEW_S = 0.5
"""Seconds that the two clocks may differ: lag is counted by both."""


async def upstream(pd: Sequence[str], security: Security | None, start_ts: str | None) -> list[Finding]:
    """Look at a cluster. `start_ts`: where a changefeed is to begin."""
    try:
        client = await PdClient.connect(pd, retry_s=CONNECT_S, security=security)
    except TidemillError as error:
        return [of_error("pd", error, "Is --pd the address of PD (port 2379), and can it be reached from here?")]
    try:
        return await _look(client, start_ts)
    except TidemillError as error:
        return [of_error("pd", error)]
    finally:
        await client.close()


async def _look(client: PdClient, start_ts: str | None) -> list[Finding]:
    members = "1 member" if len(client.addresses) == 1 else f"{len(client.addresses)} members"
    found = [good("pd", f"cluster {client.cluster_id}, leader {client.leader}, {members}")]
    try:
        await client.check_versions()
    except TidemillError as error:
        found.append(of_error("versions", error))
    stores = [store for store in await client.stores() if not store.tombstone and not store.tiflash]
    if not stores:
        found.append(bad("tikv", "PD knows no TiKV", "Is this the right cluster? tiup cluster display"))
    found += await asyncio.gather(*(_store(client, store) for store in stores))
    found.append(await _clock(client))
    found.append(await _history(client, start_ts))
    return found


async def _store(client: PdClient, store: Store) -> Finding:
    """A store has to be reached from here too: captures speak to each."""
    subject = f"tikv {store.address}"
    try:
        channel = client.channels.own(store.address)
    except UpstreamUnavailable as error:
        return bad(subject, error.message, "That is what TiKV told PD as its advertise-addr.")
    try:
        await asyncio.wait_for(channel.channel_ready(), CONNECT_S)
    except TimeoutError:
        return bad(
            subject,
            f"no connection within {CONNECT_S:.0f} s",
            "Captures connect to every TiKV at the address that it told PD (advertise-addr): open the way to it.",
        )
    finally:
        await channel.close()
    return good(subject, f"version {store.version or 'unknown'}")


async def _clock(client: PdClient) -> Finding:
    begin = time.time()
    ts = await client.tso()
    middle = (begin + time.time()) / 2
    skew = middle - tso.physical_ms(ts) / 1000
    text = f"PD's clock is {abs(skew):.3f} s {'behind' if skew > 0 else 'ahead of'} this machine's"
    if abs(skew) <= SKEW_S:
        return good("clock", text)
    return doubtful("clock", text, "Let NTP (chrony, systemd-timesyncd) set both clocks: lags that are shown are wrong by this.")


async def _history(client: PdClient, start_ts: str | None) -> Finding:
    now, safe_point = await client.tso(), await client.gc_safe_point()
    text = f"history since {tso.describe(safe_point)}" if safe_point else "nothing was collected yet"
    if start_ts is None:
        return good("gc", text)
    wanted = tso.parse(start_ts, now)
    if wanted < safe_point:
        return bad("gc", f"{text}; --start-ts is {tso.describe(wanted)}", "Begin later, or raise tidb_gc_life_time before it is needed.")
    return good("gc", f"{text}, before --start-ts")
