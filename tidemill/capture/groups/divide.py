"""Divides partitions among groups. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.errors import ConfigError


def divide(partitions: int, groups: int, weights: Sequence[int] = ()) -> list[tuple[int, ...]]:
    """Divide partitions 0 to `partitions` - 1 into groups of about the same weight, each with at least one partition.

    Partitions are assigned by falling weight, each to the lightest group. Without weights the sizes of groups differ by one at most.

    Raises ConfigError if there are more groups than partitions.
    """
    if not 1 <= groups <= partitions:
        raise ConfigError(
            f"--workers {groups}: the log has {partitions} partitions, and each worker needs at least one",
            hint=f"Use 1 to {partitions}, or give the log more partitions (`tidemill log grow`; --log-partitions for a new one).",
        )
    weighed = dict(enumerate(weights or [0] * partitions))
    divided: list[list[int]] = [[] for _ in range(groups)]
    for partition in sorted(weighed, key=lambda p: (-weighed[p], p)):
        lightest = min(divided, key=lambda group: (bool(group), sum(weighed[p] for p in group), len(group)))
        lightest.append(partition)
    return [tuple(sorted(group)) for group in divided]
