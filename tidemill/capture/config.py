"""The settings of a capture, from its flags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.capture.tikv.feed.base import Transport
from tidemill.changelog.log_format import CaptureRules
from tidemill.changelog.options import DEFAULTS, HOUR_MS
from tidemill.errors import ConfigError
from tidemill.process.places import is_in_process, local_cores

if TYPE_CHECKING:  # kernels and gRPC take a second, and a supervisor that only checks settings needs none of them
    from tidemill.capture.tikv.client.tls import Security
    from tidemill.capture.tikv.receive.ingest import Options
    from tidemill.capture.tikv.watchdog.detect import StuckThresholds

CAPTURE = "tidemill.cli.changelog.capturing"
"""The module that is a capture's process. Its order is a `CaptureConfig`."""
DEFAULT_PARTITIONS = 4
LEAST_QUOTA = 64 << 20
DEFAULT_QUOTA, DEFAULT_STUCK = "1GiB", "60s"  # of --memory-quota and --region-stuck-after
DEFAULT_GRACE, DEFAULT_SCANS = "2m", 64  # of --lock-grace and --tikv-scans

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]i?b?)?", re.IGNORECASE)
_MASTER = re.compile(r"local(?:\[(?:[1-9]\d*|\*)(?:, *\d+)?\])?|local-cluster\[.+\]|yarn|[a-z][a-z0-9]*(?::k8s)?://.+")
_UNIT_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(text: str, flag: str) -> int:
    """Return the milliseconds of `24h`, `90m`, `1.5d`. Raises ConfigError naming the flag."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"{flag} {text!r} is not a duration", hint="Write a number and one of ms, s, m, h, d: 24h.")
    return int(float(found[1]) * _UNIT_MS[found[2]])


def size_bytes(text: str, flag: str) -> int:
    """Return the bytes of `1GiB`, `512MiB`, `100000`. Raises ConfigError naming the flag."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"{flag} {text!r} is not a size", hint="Write bytes, or a number and one of KiB, MiB, GiB: 1GiB.")
    return int(float(found[1]) * _UNIT_BYTES[(found[2] or "").lower()[:1]])


def split_table(text: str) -> tuple[str, int]:
    """A value of --split-table, DATABASE.TABLE=N. Raises ConfigError."""
    name, equals, over = text.rpartition("=")
    if not equals or not over.isdecimal() or "." not in name:
        raise ConfigError(f"--split-table {text!r} is not DATABASE.TABLE=N", hint="N is a number of log partitions: shop.orders=4.")
    return name, int(over)


_OF_GROUPS = (
    *("compression", "transport", "memory_quota", "row_budget", "prewrite_budget", "low_water_bytes", "stuck_after", "filter_loop", "term"),
    *("lock_grace", "tikv_scans"),
    *("ca", "cert", "key"),
)
"""Settings that a coordinator sends to its groups, besides PD's addresses."""


@dataclass(frozen=True, slots=True)
class CaptureConfig:
    """Settings of a capture, which are its process's order. `log`: a path or a URL. `data_dir`: for status.json and scratch files; by
    default beside a local log."""

    pd: tuple[str, ...]
    log: str
    start_ts: str | None = None  # as tso.parse reads it; None: now, or the end of an existing log
    partitions: int | None = None  # None: those of the log, 4 for a new one
    split_tables: tuple[tuple[str, int], ...] = ()  # of a new log: hot tables, and over how many partitions each
    compression: str = "none"
    retention_ms: int = 24 * HOUR_MS
    gc_ttl: int = 86400
    transport: Transport = Transport.H2
    status_addr: str | None = None
    data_dir: Path | None = None
    rules: CaptureRules | None = None  # from_ts 0; None: those of the log, all tables for a new one
    rules_number: int = 0  # of the server's command with these rules, see `rule_changes`
    snapshot: bool = False  # a new log begins with an initial load at its start
    master: str | None = None  # Spark master of the initial load and of groups
    workers: int | None = None  # number of groups; None: see worker_count
    control_addr: str | None = None  # HOST[:PORT] where groups find the coordinator
    silent_after: float = 30.0  # seconds after which a group that sends nothing is replaced
    log_level: str = "info"  # of the groups' processes
    log_file: Path | None = None
    low_water_bytes: int = DEFAULTS.low_water_bytes
    memory_quota: int = 1 << 30  # bytes of messages, rows and prewrites in memory, decoded; more waits on disk
    row_budget: int | None = None  # parts of the quota, for tests
    prewrite_budget: int | None = None
    ca: Path | None = None  # TLS files, as TiCDC's flags of the same names
    cert: Path | None = None
    key: Path | None = None
    stuck_after: float = 60.0  # seconds without progress after which a region is subscribed again
    lock_grace: float = 120.0  # seconds for which a transaction's TTL must be over before the watchdog resolves its locks
    tikv_scans: int = DEFAULT_SCANS  # scans at the same time: of each store's regions, and parts of tables read at once
    filter_loop: bool = False  # without the rows that another change data capture wrote
    term: int = 0  # of the server that leads and started this capture; 0: no server did
    source: str = ""  # empty: TiKV's change feed; binlog; or one of another package
    drainer_addr: str = ""  # of binlog: HOST:PORT and the name in the registry
    drainer_id: str = ""

    def __post_init__(self) -> None:
        if not any(a.strip() for a in self.pd):
            raise ConfigError("no PD address given", hint="Name one or more as in --pd 10.0.1.5:2379,10.0.1.6:2379.")
        if self.partitions is not None and not 1 <= self.partitions <= 1024:
            raise ConfigError(f"--log-partitions {self.partitions}: a change log has 1 to 1024 partitions")
        most = self.partitions or DEFAULT_PARTITIONS
        for name, over in self.split_tables:
            if not 2 <= over <= most:
                raise ConfigError(f"--split-table {name}={over}: a number from 2 to {most}, as the log has partitions (--log-partitions)")
        if self.memory_quota < LEAST_QUOTA:
            raise ConfigError(f"--memory-quota {self.memory_quota}: at least {LEAST_QUOTA} bytes")
        if self.stuck_after < 1:
            raise ConfigError(f"--region-stuck-after {self.stuck_after} s: at least one second")
        if self.lock_grace < 0:
            raise ConfigError(f"--lock-grace {self.lock_grace} s: a time of no less than zero")
        if self.tikv_scans < 1:
            raise ConfigError(f"--tikv-scans {self.tikv_scans}: at least 1")
        if self.gc_ttl < 60:
            raise ConfigError(f"--gc-ttl {self.gc_ttl}: at least 60 seconds")
        if self.master is not None and _MASTER.fullmatch(self.master) is None:  # checked here, before a log exists
            raise ConfigError(
                f"--master {self.master!r} is not a Spark master",
                hint="Write spark://HOST:PORT, yarn, k8s://https://HOST:PORT or local[N].",
            )
        self._check_workers()

    def _check_workers(self) -> None:
        if self.workers is None:
            return
        if self.workers < 1:
            raise ConfigError(f"--workers {self.workers}: at least 1")
        cores = local_cores(self.master)
        if self.workers > 1 and cores is not None and self.workers > cores:
            raise ConfigError(
                f"--workers {self.workers} needs as many cores, --master {self.master} has {cores}",
                hint="A worker keeps its core for as long as the capture runs. Without --master workers are processes.",
            )
        if self.on_one_machine and self.memory_quota // self.workers < LEAST_QUOTA:
            raise ConfigError(
                f"--memory-quota {self.memory_quota} for {self.workers} workers on one machine: each needs {LEAST_QUOTA} bytes at least"
            )

    @property
    def on_one_machine(self) -> bool:
        """Whether groups share this machine, and so the memory quota."""
        return is_in_process(self.master)

    def worker_count(self, partitions: int) -> int:
        """Return the number of groups for a log of this many partitions; 1: everything runs in this process. Without --workers, a cluster
        gets one group per partition, at most four, and a single machine gets one."""
        if self.workers is not None:
            return self.workers
        return 1 if self.on_one_machine else min(partitions, DEFAULT_PARTITIONS)

    def of_group(self, workers: int) -> dict[str, Any]:
        """Return the settings for a group, as JSON; see `from_coordinator`."""
        quota = self.memory_quota // workers if self.on_one_machine else self.memory_quota
        told = {name: getattr(self, name) for name in _OF_GROUPS} | {"pd": list(self.pd), "memory_quota": quota}
        told["tikv_scans"] = max(1, self.tikv_scans // workers)
        return {name: str(value) if isinstance(value, Path) else value for name, value in told.items()}

    @classmethod
    def from_coordinator(cls, settings: Mapping[str, Any], log: str, data_dir: Path) -> CaptureConfig:
        """Return the settings of a group. Raises ConfigError if the coordinator is of another version."""
        try:
            files = {name: Path(settings[name]) if settings[name] is not None else None for name in ("ca", "cert", "key")}
            plain = {name: settings[name] for name in _OF_GROUPS} | {"transport": Transport(settings["transport"])}
            return cls(**{**plain, **files}, pd=tuple(settings["pd"]), log=log, data_dir=data_dir)
        except (KeyError, TypeError, ValueError) as e:
            raise ConfigError(
                f"the coordinator's settings are of another version of Tidemill: {e}", hint="Use one version everywhere."
            ) from None

    @property
    def security(self) -> Security | None:
        """TLS to PD and TiKV; None: not wanted. Raises ConfigError."""
        from tidemill.capture.tikv.client.tls import security_of

        return security_of(self.pd, self.ca, self.cert, self.key)

    @property
    def receiving(self) -> Options:
        """The memory budgets of the receiver."""
        from tidemill.capture.tikv.receive.ingest import Options

        options = Options.of_quota(self.memory_quota)
        given = {"row_budget": self.row_budget, "prewrite_budget": self.prewrite_budget}
        return replace(options, **{name: value for name, value in given.items() if value is not None})

    @property
    def stuck_thresholds(self) -> StuckThresholds:
        """The thresholds of the watchdog. A scan may take ten times as long: TiKV may have queued it behind thousands."""
        from tidemill.capture.tikv.watchdog.detect import StuckThresholds

        return StuckThresholds(silent=self.stuck_after, frozen=self.stuck_after, scanning=10 * self.stuck_after)

    @property
    def folder(self) -> Path:
        """The folder of status.json and scratch files. Raises ConfigError for a log on an object store without --data-dir."""
        if self.data_dir is not None:
            return self.data_dir
        if "://" in self.log and not self.log.startswith("file://"):
            raise ConfigError(
                "a log on an object store needs --data-dir", hint="The folder takes status.json and a few GiB of scratch files."
            )
        path = Path(self.log.removeprefix("file://"))
        return path.with_name(path.name + ".capture")
