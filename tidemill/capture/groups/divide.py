"""Which group has which partitions. Pure."""

from __future__ import annotations

from tidemill.errors import ConfigError


def divide(partitions: int, groups: int) -> list[tuple[int, ...]]:
    """Partitions 0 to `partitions` - 1 in groups whose sizes differ by one at most. Raises ConfigError for more groups than partitions."""
    if not 1 <= groups <= partitions:
        raise ConfigError(
            f"--workers {groups}: the log has {partitions} partitions, and each worker needs one of its own at least",
            hint=f"Use 1 to {partitions}; the number of partitions is fixed when a log is made (--log-partitions).",
        )
    return [tuple(range(g, partitions, groups)) for g in range(groups)]
