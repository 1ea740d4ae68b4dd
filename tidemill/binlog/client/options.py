"""The settings of a pump client, with the values of TiDB's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Strategy(StrEnum):
    """How the Pump of a Prewrite is chosen."""

    RANGE = "range"  # one after the other
    HASH = "hash"  # by start_ts
    SCORE = "score"  # more to those that are quick, idle, and report a high score

    @classmethod
    def of(cls, text: str) -> Strategy:
        """Return the strategy of a name; `range` for one that is not known, as TiDB does."""
        return cls(text.lower()) if text.lower() in {one.value for one in cls} else cls.RANGE


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Times are seconds. `labels`: only Pumps that have all of them are written to."""

    strategy: Strategy = Strategy.RANGE
    write_timeout: float = 15.0  # of one attempt
    retry_for: float = 15.0  # a Prewrite, before all Pumps are tried once more
    retry_every: float = 0.1
    commit_for: float = 600.0
    commit_every: float = 1.0
    most_errors: int = 10  # in a row; with more a Pump is passed over
    probe_every: float = 30.0  # those that are passed over
    ignore_error: bool = False  # give up writing binlogs after the first that no Pump takes
    most_bytes: int = (1 << 31) - 1  # of a binlog
    labels: Mapping[str, str] = field(default_factory=dict)
