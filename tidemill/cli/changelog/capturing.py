"""A capture's process: `python -m tidemill.cli.changelog.capturing`, with a `CaptureConfig` as its order. `tidemill run`, a server and
Spark queries start it; `tidemill capture` is the same with the settings of a command line."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import uvloop

from tidemill import logs, plugins
from tidemill.capture.capture import Capture
from tidemill.capture.config import CaptureConfig
from tidemill.capture.groups.plan import groups_of
from tidemill.capture.rule_changes import rules_in
from tidemill.changelog.log_format import Source
from tidemill.cli.shared.folders import made_folder
from tidemill.errors import ConfigError, LogUnavailable, MalformedMessage
from tidemill.process import lifeline, orders
from tidemill.process.ending import reported
from tidemill.process.places import check_master_reachable
from tidemill.traces import process as traces

log = logging.getLogger("tidemill.cli.changelog.capturing")  # as a program its __name__ is another


def capture(config: CaptureConfig, run: Callable[[Any], Coroutine[Any, Any, None]] = lambda source: source.run()) -> None:
    """Capture until a signal comes. Raises what ended it. `run`: of the source."""
    logs.setup(config.log_level, config.log_file, part="capture")
    traces.begin("capture")
    check_master_reachable(config.master)
    if config.data_dir is not None:
        made_folder("--data-dir", config.data_dir)
    if config.master is not None:
        with suppress(LogUnavailable):  # the capture waits for the log, or tells
            if groups_of(config):
                from tidemill.spark.session import find_java

                find_java()
    uvloop.run(run(_source(config)(config)))


def _source(config: CaptureConfig) -> Callable[[CaptureConfig], Any]:
    """Return what captures. Raises ConfigError."""
    if not config.source:
        return lambda config: Capture(config, say=_say if config.term else _silent)
    if config.source == Source.BINLOG:
        from tidemill.binlog.source.capture import BinlogCapture

        return lambda config: BinlogCapture(config, config.drainer_addr, config.drainer_id)
    offered = plugins.offered(plugins.SOURCES, frozenset(Source))
    if config.source not in offered:
        names = ", ".join(offered) or "none"
        raise ConfigError(
            f"--source {config.source}: no package brings it", hint=f"Install the package. Those that are installed bring: {names}."
        )
    found: Callable[[CaptureConfig], Any] = plugins.load(offered[config.source])
    return found


def _silent(line: bytes) -> None:
    """No server reads it."""


def _say(line: bytes) -> None:
    with suppress(OSError, ValueError):  # the server is gone, which the lifeline notices
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


async def _heeding(source: Any) -> None:
    """Run a source that a supervisor started: it takes commands."""
    loop = asyncio.get_running_loop()

    def heard(line: bytes) -> None:
        """In the lifeline's thread."""
        try:
            asked = rules_in(line)
        except MalformedMessage as error:
            log.warning("%s", error)
            return
        if asked is None:
            lifeline.take_level(line)
        elif isinstance(source, Capture):
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(source.wanted.ask, asked)

    lifeline.hold(heard=heard)
    await source.run()


def main() -> None:
    """Entry point."""
    with reported():
        capture(orders.take(CaptureConfig), _heeding)


if __name__ == "__main__":
    main()
