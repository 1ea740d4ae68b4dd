"""Secrets of settings: a value, or where the value is. Pure: `credentials` reads them.

A setting that is a secret, NAME, may stand as a reference instead:

    NAME-file       a file that holds it
    NAME-env        an environment variable that holds it
    NAME-command    a command that prints it, started without a shell

`SECRETS` is the table of such settings: sink URIs, TOML files, addresses of schema registries and flags take their names from it, and a
server takes from it what a request may not name.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tidemill.errors import ConfigError

SECRETS: Mapping[str, str] = {
    "password": "the password",
    "sasl-password": "the password",
    "access-key": "the access key's name",
    "secret-access-key": "the key",
    "session-token": "the token",
    "external-id": "the external id",
    "key-password": "the password of the key's file",
    "ssl-key-password": "the password of the key's file",
    "token": "the token",
    "auth": "the lines of an --auth-file",
    "canal.passwd": "the password's digest",
}
"""What each holds."""


class Way(StrEnum):
    """How a reference says where a secret is."""

    FILE = "file"
    ENV = "env"
    COMMAND = "command"


ABOUT = {Way.FILE: "a file that holds", Way.ENV: "an environment variable that holds", Way.COMMAND: "a command that prints"}


def reference(name: str, way: Way) -> str:
    """Return the setting by which a secret is referred to: `password-file`. Raises KeyError for what is not in the table."""
    SECRETS[name]
    return f"{name}-{way}"


FILES, VARIABLES, COMMANDS = (frozenset(reference(name, way) for name in SECRETS) for way in Way)
"""The settings that name a file, a variable, a command."""
NAMES = frozenset(SECRETS) | FILES | VARIABLES | COMMANDS


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret of a setting: its value, or with `way` where it is. No repr shows either: arguments of a command may be secrets."""

    name: str = ""
    value: str = field(default="", repr=False)
    way: Way | None = None
    place: str = field(default="", repr=False)

    def __bool__(self) -> bool:
        """Whether it was given."""
        return bool(self.value or self.place)

    def __str__(self) -> str:
        """Return what errors call it. Of a command that is the program."""
        if self.way is None:
            return self.name
        return f"{reference(self.name, self.way)} {argv_of(self.place)[0] if self.way is Way.COMMAND else self.place}"


NONE = Secret()


def secret_of(name: str, values: Mapping[str, Any], where: str, value: str | None = None) -> Secret:
    """Return a secret of settings by name; NONE where it is not given. `value`: from elsewhere than the settings.

    Raises ConfigError if it is given twice."""
    value = value or values.get(name) or ""
    places = {way: str(text) for way in Way if (text := values.get(reference(name, way)))}
    names = [reference(name, way) for way in places]
    if value and places:
        raise ConfigError(f"{where}: {SECRETS[name]} itself is given, so leave out {' and '.join(names)}")
    if len(places) > 1:
        raise ConfigError(f"{where}: {' and '.join(names)} say where {SECRETS[name]} is: give one")
    way, place = next(iter(places.items()), (None, ""))
    return Secret(name, value, way, place) if value or place else NONE


def argv_of(command: str) -> tuple[str, ...]:
    """Return a command's program and arguments, split as a shell does. Raises ValueError."""
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise ValueError(f"not a command: {str(error).lower()}") from None
    if not words or "\0" in command:
        raise ValueError("expected a command")
    return words


def command_text(value: str) -> str:
    """Check a command. Raises ValueError."""
    argv_of(value)
    return value
