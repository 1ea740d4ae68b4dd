"""What a changefeed is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemill.config.file import ChangefeedConfig
from tidemill.rules.skip import SkipRow

TRIGGER_MS, LOW_LATENCY_TRIGGER_MS = 1000, 400
"""A batch begins at most this often, by `performance-mode`."""
RETRY_S = 300.0
"""A batch that fails is tried again for about so long."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a changefeed is started with: the order of a changefeed's own process, see `process.orders`."""

    changefeed: str
    log: str = field(repr=False)
    data_dir: Path
    sink_uri: str = field(repr=False)
    config: ChangefeedConfig
    tz: str | None = None
    start_ts: int | None = None  # None: the log's start
    target_ts: int | None = None
    master: str | None = None  # None: this machine
    trigger_ms: int | None = None  # None: by performance-mode
    retry_s: float = RETRY_S
    skip_rows: tuple[SkipRow, ...] = ()
    state: str | None = None  # where the changefeed's state is, if not in data_dir
    spark_conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    supervised: bool = False  # `tidemill run` supervises it, and keeps the state between processes
    retries: bool = False  # it was started again after an error that may pass
    upstream_ts: int | None = None  # PD's time when `tidemill run` started; None: the log's end
    shared: str | None = None  # where servers share the checkpoint, if it is not with the state
    term: int = 0  # of the server that leads, which keeps settings and state; 0: no server does
    created_at: float = 0.0  # of a server's changefeed, in Unix seconds
    log_level: str = "info"
    log_file: Path | None = None

    @property
    def trigger(self) -> int:
        """Milliseconds: a batch begins at most this often."""
        by_mode = LOW_LATENCY_TRIGGER_MS if self.config.low_latency else TRIGGER_MS
        return by_mode if self.trigger_ms is None else self.trigger_ms
