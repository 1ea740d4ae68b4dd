"""How a capture is divided into groups, and where its coordinator listens. Errors in either show before the start."""

from __future__ import annotations

from tidemill.capture.config import DEFAULT_PARTITIONS, CaptureConfig
from tidemill.capture.groups.divide import divide
from tidemill.changelog.ownership import check_shareable
from tidemill.changelog.reader import LogReader, log_exists
from tidemill.changelog.storage.open import open_storage
from tidemill.errors import ConfigError
from tidemill.process.places import LOOPBACK, host_for


def groups_of(config: CaptureConfig) -> list[tuple[int, ...]]:
    """Return the partitions of each group; empty if one process has them all. Raises ConfigError, LogError, LogUnavailable."""
    if config.worker_count(DEFAULT_PARTITIONS) == 1:
        return []  # one process, whatever partitions the log has
    storage = open_storage(config.log)
    if (config.workers or 1) > 1:
        check_shareable(storage)
    partitions = LogReader(storage).partitions if log_exists(storage) else config.partitions or DEFAULT_PARTITIONS
    workers = config.worker_count(partitions)
    if workers == 1:
        return []
    address_for(config)
    divided = divide(partitions, workers)
    check_shareable(storage)
    return divided


def address_for(config: CaptureConfig) -> tuple[str, int]:
    """Return the host and port (0: any) to listen on. It is --control-addr, else the address that the Spark master can reach, else the
    loopback. Raises ConfigError."""
    if config.control_addr is None:
        return (LOOPBACK if config.master is None else host_for(config.master)), 0
    host, colon, port = config.control_addr.rpartition(":")
    if not colon:
        return port, 0
    if not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"--control-addr {config.control_addr!r} is not a HOST or HOST:PORT")
    return host.strip("[]"), int(port)
