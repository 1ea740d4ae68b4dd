"""The file of `tidemill server --config`: TiCDC's server.toml. Its keys are the flags; a flag on the command line wins."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import typer

from tidemill.errors import ConfigError
from tidemill.rules.names import did_you_mean

log = logging.getLogger(__name__)

_SECURITY = {"ca-path": "ca", "cert-path": "cert", "key-path": "key", "cert-allowed-cn": "cert_allowed_cn", "mtls": "mtls"}
"""Keys of [security], and the flags that they are."""
_SWITCHES = {"mtls", "standby"}
"""Keys that are true or false."""
_WITHOUT_MEANING = {
    *("owner-flush-interval", "processor-flush-interval", "sorter", "kv-client", "debug", "log", "cluster-id"),
    *("gc-tuner-memory-threshold", "per-table-memory-quota", "max-memory-percent", "newarch"),
}
"""Keys of TiCDC's file that Tidemill has nothing for."""


def defaults(path: Path, flags: Set[str]) -> dict[str, Any]:
    """Return the values of the file by the names of the parameters. Raises ConfigError."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"--config {path}: {error}") from None
    values: dict[str, Any] = {}
    for key, value in found.items():
        if key == "security" and isinstance(value, Mapping):
            values |= _security(path, value)
        elif key.replace("-", "_") in flags:
            values[key.replace("-", "_")] = _value(path, key, value)
        elif key in _WITHOUT_MEANING:
            log.warning("%s: %s has no meaning for Tidemill", path, key)
        else:
            raise ConfigError(f"--config {path}: unknown key {key}{did_you_mean(key, {flag.replace('_', '-') for flag in flags})}")
    return values


def _security(path: Path, found: Mapping[str, Any]) -> dict[str, Any]:
    unknown = next((key for key in found if key not in _SECURITY), None)
    if unknown is not None:
        raise ConfigError(f"--config {path}: unknown key security.{unknown}{did_you_mean(unknown, set(_SECURITY))}")
    return {_SECURITY[key]: _value(path, key, value, "security.") for key, value in found.items() if value not in ("", [])}


def _value(path: Path, key: str, value: Any, part: str = "") -> Any:
    if key not in _SWITCHES:
        return _plain(path, f"{part}{key}", value)
    if not isinstance(value, bool):
        raise ConfigError(f"--config {path}: {part}{key} = {value!r}: expected true or false")
    return value


def _plain(path: Path, key: str, value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise ConfigError(f"--config {path}: {key} = {value!r}: expected a text or a number")


def read(context: typer.Context, path: Path | None) -> Path | None:
    """Callback of --config."""
    if path is not None:
        flags = {str(parameter.name) for parameter in context.command.params} - {"config"}
        context.default_map = {**(context.default_map or {}), **defaults(path, flags)}
    return path
