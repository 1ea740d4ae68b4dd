"""A group as a process: `python -m tidemill.capture.groups.child`, with a `GroupOrder`. The coordinator starts it.

It ends when its coordinator does, which holds the other end of its stdin and of its connection.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import sys

import uvloop

from tidemill import logs
from tidemill.capture.groups.group import Group, Outcome
from tidemill.capture.groups.orders import GroupOrder
from tidemill.errors import EXIT_RETRY, TidemillError, exit_code, redact
from tidemill.process import lifeline, orders
from tidemill.traces import process as traces

_log = logging.getLogger("tidemill.capture.groups.child")


async def _run(order: GroupOrder) -> Outcome:
    group = Group(order.credentials, order.group, order.attempt, order.scratch)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, group.stop)
    return await group.run()


def main() -> None:
    """Entry point."""
    order = orders.take(GroupOrder)
    lifeline.hold()
    logs.setup(order.log_level, order.log_file, part=f"group {order.group}")
    traces.begin(f"group {order.group}")
    try:
        outcome = uvloop.run(_run(order))
    except TidemillError as error:
        _log.error("group %d ended with %s: %s", order.group, error.code, redact(str(error)))
        sys.exit(exit_code(error, supervised=True))
    finally:
        shutil.rmtree(order.scratch, ignore_errors=True)
    sys.exit(0 if outcome is Outcome.ORDERED else EXIT_RETRY)


if __name__ == "__main__":
    main()
