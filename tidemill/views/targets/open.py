"""The target that `--into` names."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

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
    if into.startswith(("kafka://", "kafka+ssl://")):
        return _kafka(into, name, feed, shape)
    uri = parse_sink_uri(into)
    if uri.scheme is Scheme.DELTA:
        from tidemill.views.targets.delta import DeltaTarget

        return DeltaTarget(uri, name, feed, shape)
    if uri.mysql is not None:
        from tidemill.views.targets.mysql import MysqlTarget

        return MysqlTarget(uri.mysql, name, feed, shape)
    raise ConfigError(f"--into {uri}: views go to delta://, kafka://, mysql://, tidb:// and memory")


def _kafka(into: str, name: str, feed: str, shape: Shape) -> Target:
    from tidemill.views.targets.kafka import KafkaTarget

    if "protocol" in parse_qs(urlsplit(into).query, keep_blank_values=True):
        raise ConfigError(
            f"--into {redact(into)}: the messages of a view have no protocol", hint="Leave it out; docs/views.md shows the messages."
        )
    # A URI of a sink needs one. It has no part in a view's messages.
    return KafkaTarget(parse_sink_uri(into, {"protocol": "open-protocol"}), name, feed, shape)
