"""The target that `--into` names."""

from __future__ import annotations

from tidemill.config.parameters import Scheme
from tidemill.config.uri import parse_sink_uri
from tidemill.errors import ConfigError, redact
from tidemill.views.shape import Shape
from tidemill.views.targets.base import Target
from tidemill.views.targets.memory import MemoryTarget

MEMORY = "memory"


def target_of(into: str, name: str, feed: str, shape: Shape) -> Target:
    """Return the target. `feed`: the view's own name for it. Raises ConfigError, ExtraMissing."""
    if into == MEMORY:
        return MemoryTarget()
    if "://" not in into:
        raise ConfigError(f"--into {redact(into)} is neither memory nor a URI", hint="As in delta:///lake, mysql://… or memory.")
    uri = parse_sink_uri(into)
    if uri.scheme is Scheme.DELTA:
        from tidemill.views.targets.delta import DeltaTarget

        return DeltaTarget(uri, name, feed, shape)
    if uri.mysql is not None:
        from tidemill.views.targets.mysql import MysqlTarget

        return MysqlTarget(uri.mysql, name, feed, shape)
    raise ConfigError(f"--into {uri}: views go to delta://, mysql://, tidb:// and memory")
