"""The limit of open files and sockets of a capture: raised as far as the system allows."""

from __future__ import annotations

import logging
import resource

ENOUGH = 1 << 20

_log = logging.getLogger(__name__)


def raise_limit() -> int:
    """Raise this process's soft limit of open files to the hard limit, and log it. Return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    _log.info("up to %d files and sockets may be open, not %d (ulimit -n)", wanted, soft)
    return wanted
