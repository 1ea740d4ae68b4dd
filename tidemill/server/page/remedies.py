"""What to do about each cause that holds the log's resolved ts: the short form of the tables in docs/operations.md. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.capture.tikv.watchdog.causes import Cause

_SOON = "It is over within seconds. If it lasts for minutes, look into TiKV's log."
_AGAIN = "The watchdog subscribes again after --region-stuck-after. If it stays so, look into the store's log, disk and CPU."

REMEDIES: Mapping[Cause, str] = {
    Cause.LOCK: "Let the transaction end, or end its session: KILL TIDB. A dead client's lock is resolved when its TTL has been "
    "over for --lock-grace.",
    Cause.LOCK_BESIDE: "It waits for another region's lock: look at the line with the cause `lock` at the same ts.",
    Cause.UNSUBSCRIBED: "It is over within seconds where a region split, merged or moved. If it lasts: does the store run, and do network "
    "and firewall let this machine reach TiKV? It is subscribed by itself then.",
    Cause.GAP: _SOON,
    Cause.LOADING: _SOON,
    Cause.QUEUED: _SOON,
    Cause.SCANNING: "Nothing to do: TiKV scans the range first. Large tables take their time.",
    Cause.ENDING: "The store ends the range's subscription each time, or sends what this version cannot take: see last_error and TiKV's "
    "log, and report it with TiKV's version. The pauses between its subscriptions grow; other ranges go on.",
    Cause.SILENT: _AGAIN,
    Cause.FROZEN: f"{_AGAIN} Or move the region's leader.",
    Cause.STORAGE: "Look at the log's storage: address, credentials, network. The capture goes on by itself.",
    Cause.PAUSED: "Free disk space. The capture goes on by itself.",
    Cause.LAYOUT: "Nothing to do: it takes seconds.",
    Cause.SEALING: "Rows come faster than they are sorted and written: a faster disk, more CPU, or --workers.",
    Cause.UNKNOWN: "Look again: the range was given up just now.",
}


def remedy(cause: object) -> str:
    """Return what to do about a cause as status files have it; empty for one of another version."""
    try:
        return REMEDIES[Cause(str(cause))]
    except ValueError:
        return ""
