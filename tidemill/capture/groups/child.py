"""A group as a process: `python -m tidemill.capture.groups.child --group G --attempt A --scratch DIR`. The coordinator starts it.

It ends when its coordinator does, which holds the other end of its stdin and of its connection.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import signal
import sys
from pathlib import Path

import uvloop

from tidemill import logs
from tidemill.capture.groups.credentials import Credentials
from tidemill.capture.groups.group import Group, Outcome
from tidemill.errors import EXIT_RETRY, TidemillError, exit_code, redact
from tidemill.process import lifeline
from tidemill.traces import process as traces

_log = logging.getLogger("tidemill.capture.groups.child")


async def _run(credentials: Credentials, options: argparse.Namespace) -> Outcome:
    group = Group(credentials, options.group, options.attempt, options.scratch)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, group.stop)
    return await group.run()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tidemill.capture.groups.child", description=__doc__)
    parser.add_argument("--group", type=int, required=True)
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-file", type=Path)
    options = parser.parse_args()
    lifeline.hold()
    logs.setup(options.log_level, options.log_file, part=f"group {options.group}")
    traces.begin(f"group {options.group}")
    try:
        outcome = uvloop.run(_run(Credentials.from_environment(), options))
    except TidemillError as error:
        _log.error("group %d ended with %s: %s", options.group, error.code, redact(str(error)))
        sys.exit(exit_code(error, supervised=True))
    finally:
        shutil.rmtree(options.scratch, ignore_errors=True)
    sys.exit(0 if outcome is Outcome.ORDERED else EXIT_RETRY)


if __name__ == "__main__":
    main()
