"""The file of `tidemill server --config`: TiCDC's server.toml. Its keys are the flags; a flag on the command line wins."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from tidemill.errors import ConfigError
from tidemill.rules.names import did_you_mean

log = logging.getLogger(__name__)

SECURITY = {"ca-path": "ca", "cert-path": "cert", "key-path": "key", "cert-allowed-cn": "cert-allowed-cn", "mtls": "mtls"}
"""Keys of [security], and the flags that they are."""
WITHOUT_MEANING = {
    *("owner-flush-interval", "processor-flush-interval", "sorter", "kv-client", "debug", "log", "cluster-id"),
    *("gc-tuner-memory-threshold", "per-table-memory-quota", "max-memory-percent", "max-memory-percentage"),
    *("memory-limit-percentage", "newarch", "enable-legacy-safepoint"),
    "security.redact-info-log",
}
"""Keys of TiCDC's file that Tidemill has nothing for."""
REFUSED = {
    "encryption": ("encrypts nothing that it keeps: give the log a storage that does", "enable-encryption"),
    "security.client-user-required": ("knows no users: --cert-allowed-cn or --auth-file say who may change something", ""),
    "security.client-allowed-user": ("knows no users: --cert-allowed-cn or --auth-file say who may change something", ""),
}
"""Keys that ask for protection which Tidemill does not have in that form: why, and the key of a table that asks for it."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag as a key. `parameter`: its name in the command. `repeated`: it may be given several times; `switch`: it is true or false."""

    parameter: str
    repeated: bool = False
    switch: bool = False


def flags_of(command: Any) -> dict[str, Flag]:
    """Return the flags of a command by the keys that they have in the file: their names without dashes in front."""
    found = {}
    for one in command.params:
        if one.param_type_name == "option" and one.name not in ("config", "help"):
            for name in one.opts:
                if name.startswith("--"):
                    found[name.removeprefix("--")] = Flag(str(one.name), bool(one.multiple), bool(one.is_flag))
    return found


def defaults(path: Path, flags: Mapping[str, Flag]) -> dict[str, Any]:
    """Return the values of the file by the names of the parameters. Raises ConfigError."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"--config {path}: {error}") from None
    security = found.pop("security", {})
    if not isinstance(security, Mapping):
        raise ConfigError(f"--config {path}: security = {security!r}: expected a table")
    return _values(path, found, flags, {key: key for key in flags}) | _values(path, _set(security), flags, SECURITY, "security.")


def _set(security: Mapping[str, Any]) -> dict[str, Any]:
    """What is set of [security]: TiCDC's own files name all keys, without a value where they want none."""
    return {key: value for key, value in security.items() if value not in ("", [])}


def _values(path: Path, found: Mapping[str, Any], flags: Mapping[str, Flag], keys: Mapping[str, str], part: str = "") -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in found.items():
        whole = f"{part}{key}"
        flag = flags.get(keys.get(key, ""))
        if whole in WITHOUT_MEANING and (flag is None or isinstance(value, Mapping)):
            log.warning("%s: %s has no meaning for Tidemill", path, whole)
        elif whole in REFUSED:
            _refuse(path, whole, value)
        elif flag is not None:
            values[flag.parameter] = _value(path, whole, value, flag)
        else:
            raise ConfigError(f"--config {path}: unknown key {whole}{did_you_mean(key, set(keys))}")
    return values


def _refuse(path: Path, key: str, value: Any) -> None:
    why, asks = REFUSED[key]
    if value.get(asks) if isinstance(value, Mapping) else value:
        raise ConfigError(f"--config {path}: {key} cannot be followed: Tidemill {why}")
    log.warning("%s: %s has no meaning for Tidemill", path, key)


def _value(path: Path, key: str, value: Any, flag: Flag) -> Any:
    if flag.switch:
        if not isinstance(value, bool):
            raise ConfigError(f"--config {path}: {key} = {value!r}: expected true or false")
        return value
    if flag.repeated:
        listed = value if isinstance(value, list) else [value]
        return [_plain(path, key, one) for one in listed]
    return _plain(path, key, value)


def _plain(path: Path, key: str, value: Any) -> str:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise ConfigError(f"--config {path}: {key} = {value!r}: expected a text or a number")


def read(context: typer.Context, path: Path | None) -> Path | None:
    """Callback of --config."""
    if path is not None:
        context.default_map = {**(context.default_map or {}), **defaults(path, flags_of(context.command))}
    return path
