"""The settings of a capture, from the options that `tidemill capture`, `run` and `server` share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tidemill.capture.config import CaptureConfig, duration_ms, size_bytes, split_table
from tidemill.capture.tikv.feed.base import Transport
from tidemill.changelog.files.segment import COMPRESSIONS
from tidemill.changelog.log_format import CaptureRules, Source
from tidemill.config.file import load_config
from tidemill.errors import ConfigError


def capture_settings(
    *,
    pd: str,
    compression: str | None,
    retention: str | None,
    transport: str | None,
    memory_quota: str | None,
    stuck_after: str | None,
    lock_grace: str | None,
    split_tables: Sequence[str] | None,
    rules_file: Path | None,
    snapshot: bool = False,
    workers: int | None = None,
    filter_loop: bool = False,
    filter_loop_is: str = "--filter-loop",
    binlog: bool = False,
    drainer_addr: str | None = None,
    drainer_id: str | None = None,
    **plain: Any,
) -> CaptureConfig:
    """Return the settings. `plain`: fields of `CaptureConfig` that are as they are given. None: the default.

    `filter_loop_is`: what asks for it. Raises ConfigError."""
    if compression is not None and compression not in COMPRESSIONS:
        raise ConfigError(f"--log-compression {compression!r} is unknown", hint=f"Use one of {', '.join(COMPRESSIONS)}.")
    if transport is not None and transport not in tuple(Transport):
        raise ConfigError(f"--transport {transport!r} is unknown", hint="Use h2 or grpc.")
    _check_drainer(binlog, {"--drainer-addr": drainer_addr, "--drainer-id": drainer_id})
    if binlog:
        _check_alone({"--snapshot": snapshot, "--workers": (workers or 1) > 1, "--split-table": split_tables, filter_loop_is: filter_loop})
    fields = {
        **plain,
        "snapshot": snapshot,
        "workers": workers,
        "filter_loop": filter_loop,
        "compression": compression,
        "retention_ms": duration_ms(retention, "--log-retention") if retention is not None else None,
        "transport": Transport(transport) if transport is not None else None,
        "memory_quota": size_bytes(memory_quota, "--memory-quota") if memory_quota is not None else None,
        "stuck_after": duration_ms(stuck_after, "--region-stuck-after") / 1000 if stuck_after is not None else None,
        "lock_grace": duration_ms(lock_grace, "--lock-grace") / 1000 if lock_grace is not None else None,
        "split_tables": tuple(split_table(text) for text in split_tables) if split_tables else None,
        "rules": rules_of(rules_file) if rules_file is not None else None,
        "source": Source.BINLOG.value if binlog else None,
        "drainer_addr": drainer_addr,
        "drainer_id": drainer_id,
    }
    return CaptureConfig(pd=tuple(pd.split(",")), **{name: value for name, value in fields.items() if value is not None})


def rules_of(path: Path) -> CaptureRules:
    """Return the table rules of a changefeed's TOML file. Raises ConfigError."""
    config = load_config(path)
    config.table_filter()
    return CaptureRules(0, tuple(config.filter.rules), config.case_sensitive)


def _check_drainer(binlog: bool, of_drainer: Mapping[str, str | None]) -> None:
    for flag, value in of_drainer.items():
        if value is not None and not binlog:
            raise ConfigError(f"{flag} is for captures of binlogs", hint="Give --binlog too.")


def _check_alone(without: Mapping[str, object]) -> None:
    for flag, value in without.items():
        if value:
            raise ConfigError(f"{flag} does not go with --binlog: one Drainer takes all binlogs as they come", hint=f"Leave {flag} out.")
