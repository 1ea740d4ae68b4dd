"""A capture's process: `python -m tidemill.cli.changelog.capturing`, with a `CaptureConfig` as its order. `tidemill run`, a server and
Spark queries start it; `tidemill capture` is the same with the settings of a command line."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import uvloop

from tidemill import logs, plugins
from tidemill.capture.capture import Capture
from tidemill.capture.config import CaptureConfig
from tidemill.capture.groups.plan import groups_of
from tidemill.changelog.log_format import Source
from tidemill.cli.shared.folders import made_folder
from tidemill.errors import ConfigError, LogUnavailable, TidemillError
from tidemill.process import lifeline, orders
from tidemill.process.ending import fail, fail_of_system
from tidemill.process.places import check_master_reachable
from tidemill.traces import process as traces


def capture(config: CaptureConfig) -> None:
    """Capture until a signal comes. Raises what ended it."""
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
    uvloop.run(_source(config)(config).run())


def _source(config: CaptureConfig) -> Callable[[CaptureConfig], Any]:
    """Return what captures. Raises ConfigError."""
    if not config.source:
        return Capture
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


def main() -> None:
    """Entry point."""
    try:
        config = orders.take(CaptureConfig)
        lifeline.hold(heard=lifeline.take_level)
        capture(config)
    except TidemillError as error:
        fail(error)
    except OSError as error:
        fail_of_system(error)


if __name__ == "__main__":
    main()
