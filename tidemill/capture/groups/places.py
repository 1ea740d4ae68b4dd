"""Where a coordinator waits for its groups."""

from __future__ import annotations

from tidemill.capture.config import CaptureConfig
from tidemill.errors import ConfigError
from tidemill.places import LOOPBACK, host_for


def address_for(config: CaptureConfig) -> tuple[str, int]:
    """Host and port (0: any) to listen on: --control-addr, else the address that the Spark master is reached from, or the loopback for
    processes. Raises ConfigError."""
    if config.control_addr is None:
        return (LOOPBACK if config.master is None else host_for(config.master)), 0
    host, colon, port = config.control_addr.rpartition(":")
    if not colon or not host:
        return config.control_addr.strip("[]"), 0
    if not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"--control-addr {config.control_addr!r} is no HOST or HOST:PORT")
    return host.strip("[]"), int(port)
