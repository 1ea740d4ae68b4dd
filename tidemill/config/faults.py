"""Reports all faults of a configuration at once, with an example for a value of the wrong type. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tidemill.errors import ConfigError
from tidemill.rules.names import did_you_mean

MOST = 100
"""Faults that are named."""
_LISTS = {"matcher": ["db.table"], "columns": ["id", "name"], "rules": ["db.*"], "ignore-event": ["delete"]}
_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


class ManyFaults(ConfigError):
    """Several faults of one configuration, each a line with its hint below."""

    def __init__(self, faults: list[ConfigError]) -> None:
        super().__init__(f"{len(faults)} faults:" + "".join("\n  " + str(fault).replace("\n", "\n  ") for fault in faults))
        self.faults = faults


def faults_of(error: ConfigError) -> list[ConfigError]:
    """Return the faults in an error."""
    return error.faults if isinstance(error, ManyFaults) else [error]


class Faults:
    """Collects ConfigErrors of steps that do not depend on each other."""

    def __init__(self) -> None:
        self._found: dict[str, ConfigError] = {}
        self._left_out = 0

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Keep the error of a step, so that the next step can run."""
        try:
            yield
        except ConfigError as error:
            self.add(error)

    def add(self, error: ConfigError) -> None:
        """Keep an error, unless the same one is kept already."""
        for one in faults_of(error):
            if len(self._found) < MOST:
                self._found.setdefault(str(one), one)
            else:
                self._left_out += str(one) not in self._found

    def check(self) -> None:
        """Raise the kept error, or ManyFaults if there are several."""
        found = list(self._found.values())
        if self._left_out:
            found.append(ConfigError(f"and {self._left_out} more"))
        if len(found) > 1:
            raise ManyFaults(found)
        for error in found:
            raise error


def complaint(error: Mapping[str, Any]) -> str:
    """Return a line for an error of pydantic: path, value (never a secret), what is wrong, an example."""
    loc = error["loc"]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")
    secret = any(word in path for word in ("password", "user", "secret", "uri", "registry"))
    shown = "" if secret or isinstance(error["input"], (dict, list)) else f" = {error['input']!r}"
    message = error["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    if error["type"] == "model_type":
        message = "expected a table"
    right = _right_value(error["type"], loc[-1] if loc else "", None if secret else error["input"])
    return f"{path}{shown}: {message}" + (f", as in {right}" if right is not None else "")


def _right_value(kind: str, key: str | int, given: Any) -> str | None:
    """Return an example such as `rules = ["db.*"]`, made from the given value if possible, or None if none is needed."""
    value: Any
    match kind:
        case "bool_type":
            value = _WORDS.get(str(given).lower(), True)
        case "int_type":
            value = int(given) if isinstance(given, str) and given.strip().isdecimal() else 16
        case "string_type":
            value = str(given) if isinstance(given, int | float) and not isinstance(given, bool) else "text"
        case "list_type":
            value = [given] if isinstance(given, str) else _LISTS.get(str(key), ["…"])
        case "missing":
            value = _LISTS.get(str(key), ["…"])
        case _:
            return None
    text = json.dumps(value, ensure_ascii=False)
    return text if isinstance(key, int) else f"{key} = {text}"


def unknown_parameter(where: str, name: str, known: Iterable[str]) -> ConfigError:
    """Return the error for a parameter that nobody knows. What does not look like a name is not shown: it may be the end of a password
    with a `?` in it."""
    if re.fullmatch(r"[\w.-]{1,64}", name):
        return ConfigError(f"{where}: unknown parameter {name}{did_you_mean(name, known)}")
    return ConfigError(f"{where}: an unknown parameter", hint="A `?` in a user name or a password has to be written %3F, a `&` %26.")
