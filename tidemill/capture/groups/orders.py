"""What the processes of groups are started with: see `process.orders`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tidemill.capture.groups.credentials import Credentials


@dataclass(frozen=True, slots=True)
class GroupOrder:
    """One group as a process, `groups.child`."""

    credentials: Credentials
    group: int
    attempt: int
    scratch: Path
    log_level: str
    log_file: Path | None


@dataclass(frozen=True, slots=True)
class JobOrder:
    """All groups as tasks of one Spark job, `spark.capture.groups`. `memory_quota`: bytes, of a group."""

    credentials: Credentials
    master: str
    groups: int
    memory_quota: int
    scratch: Path
    log_level: str
    log_file: Path | None
    job: int = 0
