"""Causes: what holds a range, a table or the whole log back, in the words of status, log and metrics. Pure."""

from __future__ import annotations

import enum


class Cause(enum.StrEnum):
    """What holds a resolved ts back. docs/operations.md says what to do about each."""

    # a transaction
    LOCK = "lock"
    LOCK_BESIDE = "a lock beside it"  # the lock of another region, whose resolved ts the store sends together with this one's
    # no subscription yet: the phases of a sub-range
    UNSUBSCRIBED = "not subscribed"  # no store takes the range: `last_error` says why
    GAP = "gap"
    LOADING = "loading"
    QUEUED = "queued"
    SCANNING = "scanning"
    ENDING = "ends again and again"  # its subscription, each time for the same reason: `last_error`
    # a subscription that makes no progress
    SILENT = "silent"  # nothing is received for it
    FROZEN = "frozen"  # its resolved ts does not move
    # the log itself: all regions are further than the log
    STORAGE = "storage away"
    PAUSED = "paused"  # a disk is low
    LAYOUT = "layout change"
    SEALING = "sealing"  # rows are sorted and written more slowly than they come
    UNKNOWN = "unknown"  # the range was given up just now
