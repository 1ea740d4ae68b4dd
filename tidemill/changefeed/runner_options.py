"""What the driver of a changefeed is started with: its options, and its command line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidemill import tso
from tidemill.config.file import ChangefeedConfig, load_config
from tidemill.config.uri import with_store
from tidemill.errors import ConfigError
from tidemill.process.lifeline import RETRIES, SUPERVISED
from tidemill.rules.skip import SkipRow, parse_skip_rows
from tidemill.spark import settings as spark_settings

SINK_VARIABLE, LOG_VARIABLE = "TIDEMILL_SINK_URI", "TIDEMILL_LOG"
"""Environment variables with the URLs: they may hold passwords, and everybody can see command lines."""
TRIGGER_MS, LOW_LATENCY_TRIGGER_MS = 1000, 400
"""A batch begins at most this often, by `performance-mode`."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the process was started with."""

    changefeed: str
    log: str
    data_dir: Path
    sink_uri: str
    config: ChangefeedConfig
    tz: str | None
    start_ts: int | None
    target_ts: int | None
    master: str | None
    trigger_ms: int
    retry_s: float
    skip_rows: tuple[SkipRow, ...] = ()
    state: str | None = None  # where the changefeed's state is, if not in data_dir
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    supervised: bool = False  # `tidemill run` supervises it, and keeps the state between processes
    retries: bool = False  # it was started again after an error that may pass
    upstream_ts: int | None = None  # PD's time when `tidemill run` started
    shared: str | None = None  # where servers share the checkpoint, if it is not with the state
    term: int = 0  # of the server that leads; 0: no server does


def parse_arguments(arguments: Sequence[str], description: str | None) -> argparse.Namespace:
    """Parse the command line; wrong usage ends the process with 2."""
    parser = argparse.ArgumentParser(prog="python -m tidemill.changefeed.runner", description=description)
    parser.add_argument("--changefeed-id", required=True)
    parser.add_argument("--log", help=f"default: the environment's {LOG_VARIABLE}")
    parser.add_argument("--data-dir", required=True, type=Path)
    parser.add_argument("--state", help="path or URL of the changefeed's state, where other hosts may go on from; default: --data-dir")
    parser.add_argument("--sink-uri", help=f"default: the environment's {SINK_VARIABLE}")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--tz")
    parser.add_argument("--start-ts", help="TSO; default: the log's start")
    parser.add_argument("--target-ts", help="TSO; default: none")
    parser.add_argument("--upstream-ts", help="TSO: PD's time; rows up to it may have been delivered before; default: the log's end")
    parser.add_argument("--master", help="Spark master; default: local[cores]")
    parser.add_argument("--spark-conf", action="append", default=[], help="NAME=VALUE: a Spark setting")
    parser.add_argument("--trigger-ms", type=int, help="a batch begins at most this often; default: by performance-mode")
    parser.add_argument("--retry-s", type=float, default=300.0, help="a batch that fails is tried again for about so long")
    parser.add_argument("--skip-row", action="append", default=[], help="DATABASE.TABLE:KEY@COMMIT_TS: a row that is left out")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-file", type=Path)
    return parser.parse_args(arguments)


def options_of(parsed: argparse.Namespace) -> Options:
    """Raises ConfigError."""
    sink_uri = parsed.sink_uri or os.environ.get(SINK_VARIABLE)
    if not sink_uri:
        raise ConfigError(f"no sink: neither --sink-uri nor {SINK_VARIABLE} is given")
    location = parsed.log or os.environ.get(LOG_VARIABLE)
    if not location:
        raise ConfigError(f"no log: neither --log nor {LOG_VARIABLE} is given")
    config = load_config(parsed.config)
    trigger_ms = LOW_LATENCY_TRIGGER_MS if config.low_latency else TRIGGER_MS
    return Options(
        changefeed=parsed.changefeed_id,
        log=location,
        data_dir=parsed.data_dir,
        sink_uri=with_store(sink_uri, str(parsed.data_dir.absolute() / "canal")),
        config=config,
        tz=parsed.tz,
        start_ts=tso.parse(parsed.start_ts) if parsed.start_ts is not None else None,
        target_ts=tso.parse(parsed.target_ts) if parsed.target_ts is not None else None,
        upstream_ts=tso.parse(parsed.upstream_ts) if parsed.upstream_ts is not None else None,
        master=parsed.master,
        trigger_ms=trigger_ms if parsed.trigger_ms is None else parsed.trigger_ms,
        retry_s=parsed.retry_s,
        skip_rows=parse_skip_rows(parsed.skip_row),
        state=parsed.state,
        spark_conf=spark_settings.options(parsed.spark_conf),
        supervised=SUPERVISED in os.environ,
        retries=RETRIES in os.environ,
    )
