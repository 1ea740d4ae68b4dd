"""The contract between the server and those who talk to it: the HTTP API, the command line, tests.

`ChangefeedService` is what a server does. Everything that goes in or comes out is a frozen dataclass here. The field names are TiCDC's
(API v2), so that an answer is mostly a dict of one of them.

    ts            a TSO as int; 0 or None where it says so
    times         aware datetimes (UTC); who prints them chooses the form
    replica_config  a changefeed's TOML file as a mapping, with TiCDC's keys as the file spells them (kebab-case:
                  {"case-sensitive": …, "filter": {"rules": […]}}). `tidemill.config.file` checks it. JSON bodies with snake_case are
                  translated by whoever takes them in
    sink_uri      whole in requests; redacted (`tidemill.redaction`) in every answer

Errors are `TidemillError`s. Those in `tidemill.server.errors` have TiCDC's codes and are faults of the caller (HTTP 400). Others may come
too: `ConfigError`, `SinkError`, `LogError`, `UpstreamError`. `retryable` says that the same request may work later.

A name that does not exist: ChangefeedNotExists, from every method that takes one. A namespace other than "default": InvalidKeyspace. All
methods run on the server's event loop and return within a moment, but for those that say that they wait.

The API: `tidemill.server.api.create_app(service, tokens=…, zone=…)` returns the ASGI application that `tidemill server` serves at --addr;
`tidemill.server.api.listener.Listener(app, Certificates(…))` serves it, with TLS, client certificates and --cert-allowed-cn, and
`tidemill.server.api.tokens.Tokens(path)` is --token-file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from tidemill.capture.status import CaptureStatus
from tidemill.changefeed.states import State
from tidemill.metrics.samples import Sample
from tidemill.server.host.messages import Figures

DEFAULT_NAMESPACE = "default"
"""The only namespace. TiCDC calls it keyspace since 8.5; both words mean this."""
CLUSTER_ID = "default"
"""TiCDC's --cluster-id: the name of the group of servers, not the id of the TiDB cluster (that is `upstream_id`)."""
CHANGEFEED_ID = re.compile(r"[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*")
LONGEST_ID = 128
"""What a changefeed may be called."""
SORT_ENGINE = "unified"
"""What TiCDC shows as sort_engine. The log is sorted when it is written."""


# ------------------------------------------------------------------ requests


@dataclass(frozen=True, slots=True)
class UpstreamNames:
    """The cluster that a request names. It has to be the one that the server follows; empty fields mean that."""

    pd_addrs: tuple[str, ...] = ()
    ca_path: str = ""
    cert_path: str = ""
    key_path: str = ""
    cert_allowed_cn: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewChangefeed:
    """What to create. `changefeed_id` None or "": a UUID is taken, as TiCDC does. `start_ts` None or 0: now. `target_ts` None or 0:
    none."""

    sink_uri: str = field(repr=False)
    changefeed_id: str | None = None
    namespace: str = DEFAULT_NAMESPACE
    start_ts: int | None = None
    target_ts: int | None = None
    replica_config: Mapping[str, Any] = field(default_factory=dict)
    schema_registry: str | None = field(default=None, repr=False)
    """Wins over schema-registry in the sink URI and in the configuration."""
    disable_gc_check: bool = False
    ignore_ineligible_tables: bool = True
    """False: refused (TableIneligible) if a table that the filter selects has no usable key."""
    upstream: UpstreamNames = UpstreamNames()


@dataclass(frozen=True, slots=True)
class ChangefeedUpdate:
    """What to change; None: stays as it is. `target_ts` 0 removes the target."""

    sink_uri: str | None = field(default=None, repr=False)
    target_ts: int | None = None
    replica_config: Mapping[str, Any] | None = None
    """Replaces the whole configuration."""
    keeps_own: bool = False
    """The configuration is of a client of TiCDC: Tidemill's own keys, which it does not know, stay as they are."""
    schema_registry: str | None = field(default=None, repr=False)
    upstream: UpstreamNames = UpstreamNames()


# ------------------------------------------------------------------ answers


@dataclass(frozen=True, slots=True)
class RunningError:
    """TiCDC's RunningError. `addr`: the server where it happened. `hint`: what to do, for people; may be empty."""

    time: datetime
    addr: str
    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """Which tables a capture has of a changefeed: here one capture has all of them."""

    capture_id: str
    table_ids: tuple[int, ...] = ()
    """Physical ids: each partition of a partitioned table has its own."""


@dataclass(frozen=True, slots=True)
class ChangefeedInfo:
    """A changefeed, with TiCDC's fields. `admin_job_type`: 0 none, 1 stop, 2 resume, 3 remove, 4 finish."""

    upstream_id: int
    namespace: str
    id: str
    sink_uri: str
    create_time: datetime
    start_ts: int
    target_ts: int
    admin_job_type: int
    sort_engine: str
    config: Mapping[str, Any]
    """The whole replica config as in a request, with the defaults filled in and without secrets."""
    state: State
    error: RunningError | None
    """Why it is in state warning or failed, or what it last stumbled over."""
    error_history: tuple[int, ...]
    creator_version: str
    resolved_ts: int
    """How far the log is complete."""
    checkpoint_ts: int
    checkpoint_time: datetime
    task_status: tuple[TaskStatus, ...] = ()
    given_config: Mapping[str, Any] = field(default_factory=dict)
    """The part of `config` that differs from the defaults."""
    retry_at: datetime | None = None
    """In state warning: when it is tried again."""
    holds_log_until: datetime | None = None
    """In states stopped and failed: when --gc-ttl ends for what it still needs of the log."""
    warnings: tuple[str, ...] = ()
    """About its configuration, as `tidemill config check` prints them."""


@dataclass(frozen=True, slots=True)
class CreatedChangefeed:
    """What `cdc cli changefeed create` prints."""

    info: ChangefeedInfo
    tables: TableLists


@dataclass(frozen=True, slots=True)
class Synced:
    """Whether everything that the upstream has is downstream: TiCDC's `…/synced`."""

    synced: bool
    sink_checkpoint_ts: datetime
    puller_resolved_ts: datetime
    last_synced_ts: datetime
    """When the last rows were delivered."""
    now_ts: datetime
    info: str


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counters since the changefeed was created, and where it stands now. `cdc cli changefeed statistics` shows differences of two."""

    at: datetime
    batches: int
    rows: int
    messages: int
    bytes: int
    ddls: int
    skipped_rows: int
    checkpoint_ts: int
    resolved_ts: int
    """Of the log. resolved_ts − checkpoint_ts is TiCDC's sink_gap."""
    now_ts: int
    """The cluster's time. now_ts − checkpoint_ts is TiCDC's replication_gap."""
    last_batch: Mapping[str, float] = field(default_factory=dict)
    """batch, rows, attempts, cpu_ms, wall_ms"""


@dataclass(frozen=True, slots=True)
class CaptureInfo:
    """A server. `is_owner`: it leads. One server: always true. `version`: of TiCDC, as in ServerStatus."""

    id: str
    is_owner: bool
    address: str
    cluster_id: str = CLUSTER_ID
    version: str = ""
    tidemill_version: str = ""


@dataclass(frozen=True, slots=True)
class ProcessorInfo:
    """A changefeed on a capture."""

    namespace: str
    changefeed_id: str
    capture_id: str
    table_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TableName:
    """A table, or a partition of one."""

    database_name: str
    table_name: str
    table_id: int
    is_partition: bool


@dataclass(frozen=True, slots=True)
class TableLists:
    """Tables that a filter selects: those with a usable key, and those without."""

    eligible_tables: tuple[TableName, ...]
    ineligible_tables: tuple[TableName, ...]
    all_tables: tuple[TableName, ...]
    """All that the cluster has, whatever the filter says."""


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """TiCDC's /status. `version`: the version of TiCDC whose clients are served. `liveness`: 0 alive, 1 draining, 2 stopping."""

    version: str
    tidemill_version: str
    git_hash: str
    id: str
    cluster_id: str
    pid: int
    is_owner: bool
    liveness: int
    upstream_id: int = 0
    pd_addrs: tuple[str, ...] = ()
    log: str = ""
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Tso:
    """PD's time: milliseconds since 1970, and the logical part."""

    timestamp: int
    logic_time: int


@dataclass(frozen=True, slots=True)
class EtcdEntry:
    """An entry of the server's metadata, as TiCDC's `unsafe show-metadata` lists them. Values have no secrets."""

    key: str
    value: str


# ------------------------------------------------------------------ the service


class ChangefeedService(Protocol):
    """What a server does. See the module's docstring for errors."""

    # ---- changefeeds

    async def create(self, wanted: NewChangefeed) -> CreatedChangefeed:
        """Create a changefeed and start it. Waits for the sink, up to its connect timeouts: what it refuses is refused here.

        Raises ChangefeedAlreadyExists, InvalidChangefeedId, InvalidReplicaConfig, InvalidSinkUri, StartTsBeforeLog (before the log's
        start), InvalidParameter (in the future), TargetTsBeforeStartTs, UpstreamMismatch."""

    async def changefeeds(self, *, namespace: str = DEFAULT_NAMESPACE, state: str | None = None) -> Sequence[ChangefeedInfo]:
        """All changefeeds by name. `state`: None: all but finished ones; "all": all; else one of TiCDC's words (InvalidParameter for
        others). They have no task_status."""

    async def changefeed(self, changefeed_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> ChangefeedInfo:
        """One of them, with its task_status."""

    async def update(self, changefeed_id: str, change: ChangefeedUpdate, *, namespace: str = DEFAULT_NAMESPACE) -> ChangefeedInfo:
        """Change a stopped or failed changefeed; what was changed counts from its checkpoint on, when it is resumed. A text that is the
        redacted one of the stored settings stays as it is stored (`changefeed.changes.with_secrets`): callers send back what they were
        shown.

        Raises UpdateRefused for one that runs, and for what may never change (another kind of sink, a log), with the reason;
        otherwise as `create`."""

    async def pause(self, changefeed_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Stop it at the end of its batch: state stopped. One that is stopped stays so. Raises UpdateRefused for a finished one."""

    async def resume(
        self,
        changefeed_id: str,
        *,
        overwrite_checkpoint_ts: int | None = None,
        skip_rows: Sequence[str] = (),
        namespace: str = DEFAULT_NAMESPACE,
    ) -> ChangefeedInfo:
        """Start a stopped, failed, finished or waiting (warning) one: state normal. One that is normal stays so.

        `overwrite_checkpoint_ts`: go on from there instead of the checkpoint, ahead or back; 0 or None: from the checkpoint. What lies
        between is skipped, or delivered again. Raises StartTsBeforeLog if the log does not hold it, CheckpointInFuture.

        `skip_rows`: rows to leave out from now on, as the error about them names them (`tidemill.rules.skip`). Raises InvalidParameter,
        and UpdateRefused while it is normal: a changefeed that runs does not read its settings."""

    async def remove(self, changefeed_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> ChangefeedInfo:
        """Stop and forget it. Returns what it was, with state removed. What it delivered stays."""

    async def statistics(self, changefeed_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> Statistics:
        """Counters of one changefeed, as of now."""

    async def synced(self, changefeed_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> Synced:
        """Whether everything is downstream. The intervals are `synced-status` of its configuration, by default TiCDC's (300 s, 15 s)."""

    async def tables(self, changefeed_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> Sequence[TaskStatus]:
        """Which tables it has, by node: one entry."""

    # ---- where tables are: each batch divides its rows among Spark's tasks, so these refuse (TableNotMovable) and say why

    async def move_table(self, changefeed_id: str, table_id: int, node_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> None: ...

    async def move_split_table(self, changefeed_id: str, table_id: int, node_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> None: ...

    async def split_table(self, changefeed_id: str, table_id: int, *, namespace: str = DEFAULT_NAMESPACE) -> None: ...

    async def merge_table(self, changefeed_id: str, table_id: int, *, namespace: str = DEFAULT_NAMESPACE) -> None: ...

    async def dispatcher_count(self, changefeed_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> int:
        """How many tables it has; TiCDC counts its dispatchers, of which each has a table or a span."""

    # ---- tables

    async def table_lists(self, replica_config: Mapping[str, Any], start_ts: int | None = None) -> TableLists:
        """The tables that a filter selects, as of a ts (None or 0: the log's newest), from the log's schemas. Raises InvalidReplicaConfig,
        StartTsBeforeLog."""

    # ---- the server

    async def captures(self) -> Sequence[CaptureInfo]: ...

    async def processors(self) -> Sequence[ProcessorInfo]:
        """All changefeeds that run, without table ids."""

    async def processor(self, changefeed_id: str, capture_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> ProcessorInfo:
        """Raises CaptureNotExists."""

    async def status(self) -> ServerStatus: ...

    async def health(self) -> None:
        """Raises Unhealthy with what is wrong."""

    async def resign_owner(self) -> None:
        """Let another server lead. With one server nothing changes."""

    async def drain(self, capture_id: str) -> int:
        """Bring a server's work elsewhere, before it is stopped. Returns how many tables are still there. With one server: UpdateRefused,
        because nobody can take over. Raises CaptureNotExists."""

    async def set_log_level(self, level: str) -> None:
        """debug, info, warn or error; for the server and its processes. Raises InvalidParameter."""

    async def set_log_redaction(self, mode: str) -> None:
        """TiCDC's off, marker, on: whether user data shows in the log. Tidemill's log never has row values, so nothing changes. Raises
        InvalidParameter for other words."""

    async def debug_info(self) -> Mapping[str, Any]:
        """What a developer asks for: processes, changefeeds, the capture's status. No secrets."""

    # ---- what the page shows besides: at once, without asking the cluster

    def figures(self) -> Mapping[str, Figures]:
        """How far each changefeed is, with its counters."""

    def capture_status(self) -> CaptureStatus:
        """What the capture last wrote about itself."""

    def processes(self) -> Sequence[Mapping[str, object]]:
        """The server's processes: name, pid (None: it does not run), restarts, last_error (code and message, or None)."""

    def samples(self) -> Iterable[Sample]:
        """Metrics for /metrics (`tidemill.metrics.samples.exposition`)."""

    # ---- the upstream

    async def tso(self) -> Tso:
        """PD's time now. Waits for PD for some seconds. Raises PdUnavailable."""

    # ---- unsafe

    async def metadata(self) -> Sequence[EtcdEntry]:
        """What the server keeps: one entry for each file of its state."""

    async def resolve_lock(self, region_id: int, ts: int | None = None) -> int:
        """Resolve the locks of a region at or below ts (None or 0: now less some seconds) whose transactions are over. Waits for TiKV.
        Returns how many were resolved."""

    async def delete_gc_safepoint(self) -> None:
        """Remove what holds the cluster's GC back for this server. Only while no changefeed runs: UpdateRefused otherwise."""
