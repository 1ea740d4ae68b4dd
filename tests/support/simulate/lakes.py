"""A lake's tables whose every step passes a gate, also between the check of the fence and what it lets through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.simulate.actors import current_gate
from tests.support.simulate.stores import Gate
from tidemill.sinks.lake.base import Stamp, Tables

_STEPS = ("delivered", "shape", "begin", "merge", "append", "empty", "rename", "drop", "compact", "version", "read")


def nothing() -> None:
    """The effect of a gate that only stops."""


class GatedTables:
    """Stops before each call."""

    def __init__(self, inner: Tables, gate: Gate) -> None:
        self._inner, self._gate = inner, gate

    def __str__(self) -> str:
        return str(self._inner)

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._inner, name)
        return self._stopping(name, real) if name in _STEPS else real

    def _stopping(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            what = given[0] if isinstance(given[0], str) else ""
            self._gate(f"{'read' if name in ('delivered', 'version', 'read') else name} {what}", nothing)
            return real(*given, **more)

        return call


def gated_stamp(changefeed: str, resolved_ts: int, epoch: int, check_fence: Any) -> Stamp:
    """A stamp behind whose checks of the fence a driver may stand still."""
    gate = current_gate()

    def check(*, now: bool = False) -> None:
        check_fence(now=now)
        gate("step behind the fence", nothing)

    return Stamp(changefeed, resolved_ts, epoch, check)
