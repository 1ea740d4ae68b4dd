"""Reads a server's configuration: the [canal] part of a changefeed's TOML file, or Canal's own .properties files.

[canal]                                  canal.properties            of the server, and canal.instance.* for all destinations
[canal.destinations."NAME"]              NAME/instance.properties    of one destination, beside it
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemill import credentials
from tidemill.canal.server.properties import ServerProperties, destination_of, raise_faults, server_of
from tidemill.canal.server.settings import DEFAULT_DESTINATION, ServerSettings, Tls
from tidemill.errors import ConfigError
from tidemill.secret import Way, reference, secret_of

PASSWD = "canal.passwd"
_NAME = re.compile(r"[^\s/,\\]{1,200}")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def load_settings(path: Path | None, asked: Mapping[str, str] | None = None, name: str = "") -> ServerSettings:
    """Settings of a file; without one the defaults. `name`: a destination that is served too, with what is `asked` for it.

    Raises ConfigError naming all that is wrong."""
    found = _Read({}, {}, "the command line", Path()) if path is None else _read(path)
    if name:
        found.own[name] = {**found.own.get(name, {}), **(asked or {})}
    return settings_of(found.common, found.own, found.where, found.folder)


@dataclass(frozen=True, slots=True)
class _Read:
    """What a file says: of the server and all destinations, of each, and for errors where."""

    common: dict[str, str]
    own: dict[str, dict[str, str]]
    where: str
    folder: Path


def _read(path: Path) -> _Read:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror}") from None
    if path.suffix == ".properties":
        properties = parse_properties(data)
        own = {}
        for file in sorted(path.parent.glob("*/instance.properties")):
            own[file.parent.name] = parse_properties(file.read_bytes())
        named = [name.strip() for name in properties.get("canal.destinations", "").split(",") if name.strip()]
        return _Read(properties, {name: own.get(name, {}) for name in named} if named else own, str(path), path.parent)
    try:
        content = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path}: {error}") from None
    return _of_table(content.get("canal", {}), str(path), path.parent)


def _of_table(table: Any, where: str, folder: Path) -> _Read:
    """The table [canal]."""
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: canal is {table!r}, not a table")
    faults: list[str] = []
    listed = table.get("destinations", {})
    if not isinstance(listed, dict) or not all(isinstance(one, dict) for one in listed.values()):
        raise ConfigError(f"{where}: canal.destinations is not a table of tables", hint='Write [canal.destinations."NAME"].')
    common = _texts({name: value for name, value in table.items() if name != "destinations"}, faults)
    own = {name: _texts(one, faults) for name, one in listed.items()}
    if faults:
        raise_faults(where, faults)
    return _Read(common, own, where, folder)


def _texts(table: Mapping[str, Any], faults: list[str]) -> dict[str, str]:
    """Values as text, which is what they are in Canal's files."""
    found = {}
    for name, value in table.items():
        if isinstance(value, bool):
            found[name] = "true" if value else "false"
        elif isinstance(value, str | int):
            found[name] = str(value)
        else:
            faults.append(f'{name} is not text: put Canal\'s names in quotes, "canal.instance.…"')
    return found


def _resolved(properties: Mapping[str, str], where: str, folder: Path) -> dict[str, str]:
    """Return properties with the password that they refer to. Raises ConfigError."""
    names = {reference(PASSWD, way): way for way in Way}
    given = {name: value for name, value in properties.items() if name in names or name == PASSWD}
    if Way.FILE in (names.get(name) for name in given):
        given[reference(PASSWD, Way.FILE)] = str(folder / given[reference(PASSWD, Way.FILE)])
    found = {name: value for name, value in properties.items() if name not in names}
    if (passwd := secret_of(PASSWD, given, where)).way is not None:
        found[PASSWD] = credentials.read_setting(passwd)
    return found


def settings_of(common: Mapping[str, str], own: Mapping[str, Mapping[str, str]], where: str, folder: Path = Path()) -> ServerSettings:
    """`common`: of the server, and of all destinations. `own`: of each. Raises ConfigError."""
    faults: list[str] = []
    common, own = _resolved(common, where, folder), {name: _resolved(one, f"{where}: {name}", folder) for name, one in own.items()}
    server, rest = server_of(common, faults)
    names = sorted({*server.destinations, *own}) or [DEFAULT_DESTINATION]
    faults += [f"destination {name!r} cannot be named so" for name in names if not _NAME.fullmatch(name) or name.startswith(".")]
    if rest:
        destination_of("", rest, faults)
    made = {}
    for name in names:
        mine: list[str] = []
        made[name] = destination_of(name, {**rest, **own.get(name, {})}, mine, f"{name}: ")
        faults += [fault for fault in mine if not any(fault == f"{name}: {one}" for one in faults)]
    if faults:
        raise_faults(where, faults)
    return ServerSettings(
        server.access, made, server.host, server.port, _tls(server, folder), server.zookeeper, server.register, server.memory_limit
    )


def _tls(server: ServerProperties, folder: Path) -> Tls | None:
    if server.tls is None:
        return None
    ca = server.tls.get("ca")
    return Tls(folder / server.tls["cert"], folder / server.tls["key"], folder / ca if ca else None)


def parse_properties(data: bytes) -> dict[str, str]:
    """A file of Java's properties. Bytes that are not UTF-8 are Latin-1, as Java once read them all."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        found[_unescaped(key)] = _unescaped(value)
    return found


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    going = False
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        if not going and (not line or line[0] in "#!"):
            continue
        if going:
            lines[-1] += line
        else:
            lines.append(line)
        going = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        if going:
            lines[-1] = lines[-1][:-1]
    return lines


def _split(line: str) -> tuple[str, str]:
    found = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", line, re.DOTALL)
    return (found[1], line[found.end() :]) if found is not None else (line, "")


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else _ESCAPED.get(found[2], found[2]), text)
