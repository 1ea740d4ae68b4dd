"""What other packages bring: entry points, in a group each for sinks, protocols, sources and commands. `docs/extend.md` says how.

They are looked up when a name is asked for that is not built in, and loaded when it is used: without such a name nothing is read.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tidemill.errors import ConfigError, TidemillError

SINKS = "tidemill.sinks"
"""A name is the scheme of a sink URI, its object a `SinkSpec` of `tidemill.config.sinks`."""
PROTOCOLS = "tidemill.protocols"
"""A name is the value of `protocol`, its object a `ProtocolSpec` of `tidemill.protocols.spec`."""
SOURCES = "tidemill.sources"
"""A name is the value of `--source` and of `source` in log.json, its object a function of a `CaptureConfig`."""
COMMANDS = "tidemill.commands"
"""A name is a verb of the command line, its object a function or a `typer.Typer`."""


@functools.cache
def offered(group: str, built_in: Collection[str] = ()) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name. Raises ConfigError for a name that is built in, or that two packages bring."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        if point.name in built_in:
            raise _broken(point, "it is built in", "Give it another name.")
        other = found.setdefault(point.name, point)
        if (other.value, package_of(other)) != (point.value, package_of(point)):
            raise _broken(point, f"the package {package_of(other)} brings it too", "Remove one of the two packages.")
    return found


def load(point: EntryPoint, kind: type | None = None) -> Any:
    """Return the object of an entry point. Raises ConfigError, also for one that is not of this kind."""
    try:
        found = point.load()
    except (ImportError, AttributeError, SyntaxError, NameError, TypeError, ValueError, TidemillError) as error:
        raise _broken(point, f"{type(error).__name__}: {error}", "Mend or remove the package.") from error
    if kind is not None and not isinstance(found, kind):
        raise _broken(point, f"it is a {type(found).__name__}, not a {kind.__name__}", "Mend or remove the package.")
    return found


def package_of(point: EntryPoint) -> str:
    """Return the name of the package that brings an entry point."""
    return point.dist.name if point.dist is not None else "(unknown)"


def _broken(point: EntryPoint, why: str, hint: str) -> ConfigError:
    return ConfigError(
        f"package {package_of(point)}: the entry point {point.group}: {point.name} = {point.value} cannot be used: {why}", hint=hint
    )
