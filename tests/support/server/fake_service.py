"""A changefeed service without capture, Spark or sink: states, checks and answers as `tidemill.server.service` says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from tidemill.capture.status import CaptureStatus
from tidemill.changefeed.states import Event, State, after
from tidemill.config.file import check_config
from tidemill.errors import ConfigError, redact
from tidemill.metrics.samples import Sample, gauge
from tidemill.server import errors as e
from tidemill.server import service as s
from tidemill.server.host.messages import Figures
from tidemill.tso import compose, when

NOW_MS = 1_764_000_000_000
NOW = compose(NOW_MS)
UPSTREAM = 7_300_000_000_000_000_001
CAPTURE = "capture-one"
TABLES = (s.TableName("shop", "orders", 104, False), s.TableName("shop", "items", 106, True))
NO_KEY = s.TableName("shop", "log_lines", 108, False)


@dataclass
class FakeService:
    """Changefeeds in a dict. `calls`: each call with its arguments, for tests that look at what was asked for."""

    feeds: dict[str, s.ChangefeedInfo] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    ineligible: tuple[s.TableName, ...] = ()
    fails: Exception | None = None
    """What the next call raises."""
    now: int = NOW
    capture: CaptureStatus = field(default_factory=CaptureStatus)
    log_starts: int = compose(NOW_MS - 7 * 86_400_000)

    def forget(self) -> None:
        """Be as new."""
        self.__init__()  # type: ignore[misc]

    def _called(self, name: str, what: Any = None) -> None:
        self.calls.append((name, what))
        if self.fails is not None:
            error, self.fails = self.fails, None
            raise error

    def _feed(self, name: str) -> s.ChangefeedInfo:
        if name not in self.feeds:
            raise e.ChangefeedNotExists(f"changefeed not exists, {name}")
        return self.feeds[name]

    def _to(self, name: str, event: Event) -> s.ChangefeedInfo:
        info = self._feed(name)
        self.feeds[name] = replace(info, state=after(info.state, event))
        return self.feeds[name]

    def fail(self, name: str, code: str = "CDC:ErrKafkaSendMessage", message: str = "the broker is away") -> None:
        """Let a changefeed fail."""
        error = s.RunningError(when(NOW), "127.0.0.1:8300", code, message, "Look at the broker.")
        self.feeds[name] = replace(self._to(name, Event.REFUSED), error=error)

    # ---- changefeeds

    async def create(self, wanted: s.NewChangefeed) -> s.CreatedChangefeed:
        self._called("create", wanted)
        name = wanted.changefeed_id or str(UUID(int=len(self.feeds) + 1))
        if name in self.feeds:
            raise e.ChangefeedAlreadyExists(f"changefeed already exists, {name}")
        start = wanted.start_ts or self.now
        if start > self.now:
            raise e.InvalidParameter(f"invalid start-ts {start}, larger than current tso {self.now}")
        if start < self.log_starts and not wanted.disable_gc_check:
            raise e.StartTsBeforeLog(f"start-ts {start} lies before the log's start {self.log_starts}")
        if wanted.target_ts and wanted.target_ts <= start:
            raise e.TargetTsBeforeStartTs(f"target-ts {wanted.target_ts} is earlier than start-ts {start}")
        _check(wanted.replica_config, wanted.sink_uri)
        if self.ineligible and not wanted.ignore_ineligible_tables:
            raise e.TableIneligible("some tables are not eligible to replicate: shop.log_lines")
        self.secrets[name] = wanted.sink_uri
        self.feeds[name] = s.ChangefeedInfo(
            upstream_id=UPSTREAM,
            namespace=wanted.namespace,
            id=name,
            sink_uri=redact(wanted.sink_uri),
            create_time=when(NOW).replace(microsecond=123_000),
            start_ts=start,
            target_ts=wanted.target_ts or 0,
            admin_job_type=0,
            sort_engine=s.SORT_ENGINE,
            config=_with_defaults(wanted.replica_config),
            state=State.NORMAL,
            error=None,
            error_history=(),
            creator_version="v0.1.0",
            resolved_ts=self.now,
            checkpoint_ts=start,
            checkpoint_time=when(start),
            task_status=(s.TaskStatus(CAPTURE, tuple(table.table_id for table in TABLES)),),
            given_config=wanted.replica_config,
        )
        return s.CreatedChangefeed(self.feeds[name], self._lists())

    async def changefeeds(self, *, namespace: str = s.DEFAULT_NAMESPACE, state: str | None = None) -> Sequence[s.ChangefeedInfo]:
        self._called("changefeeds", state)
        if state not in (None, "all", *State):
            raise e.InvalidParameter(f"there is no state {state}")
        found = [replace(info, task_status=()) for _, info in sorted(self.feeds.items())]
        hidden = (State.FINISHED, State.REMOVED) if state is None else ()
        return [info for info in found if info.state not in hidden and state in (None, "all", info.state)]

    async def changefeed(self, changefeed_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> s.ChangefeedInfo:
        self._called("changefeed", changefeed_id)
        return self._feed(changefeed_id)

    async def update(self, changefeed_id: str, change: s.ChangefeedUpdate, *, namespace: str = s.DEFAULT_NAMESPACE) -> s.ChangefeedInfo:
        self._called("update", change)
        info = self._feed(changefeed_id)
        if info.state not in (State.STOPPED, State.FAILED):
            raise e.UpdateRefused("changefeed update error: can only update changefeed config when it is stopped or failed")
        config = info.given_config if change.replica_config is None else change.replica_config
        uri = change.sink_uri or self.secrets[changefeed_id]
        _check(config, uri)
        self.secrets[changefeed_id] = uri
        target = info.target_ts if change.target_ts is None else change.target_ts
        self.feeds[changefeed_id] = replace(
            info, sink_uri=redact(uri), config=_with_defaults(config), given_config=config, target_ts=target
        )
        return self.feeds[changefeed_id]

    async def pause(self, changefeed_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> None:
        self._called("pause", changefeed_id)
        if self._feed(changefeed_id).state is State.FINISHED:
            raise e.UpdateRefused("changefeed update error: it is finished")
        self._to(changefeed_id, Event.PAUSED)

    async def resume(
        self,
        changefeed_id: str,
        *,
        overwrite_checkpoint_ts: int | None = None,
        skip_rows: Sequence[str] = (),
        namespace: str = s.DEFAULT_NAMESPACE,
    ) -> s.ChangefeedInfo:
        self._called("resume", skip_rows or overwrite_checkpoint_ts)
        if overwrite_checkpoint_ts is not None and overwrite_checkpoint_ts > self.now:
            raise e.CheckpointInFuture(f"the overwrite-checkpoint-ts {overwrite_checkpoint_ts} must be smaller than current TSO")
        info = replace(self._to(changefeed_id, Event.RESUMED), error=None)
        if overwrite_checkpoint_ts:
            info = replace(info, checkpoint_ts=overwrite_checkpoint_ts, checkpoint_time=when(overwrite_checkpoint_ts))
        self.feeds[changefeed_id] = info
        return info

    async def remove(self, changefeed_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> s.ChangefeedInfo:
        self._called("remove", changefeed_id)
        info = self._to(changefeed_id, Event.REMOVED)
        del self.feeds[changefeed_id]
        return info

    async def statistics(self, changefeed_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> s.Statistics:
        self._called("statistics", changefeed_id)
        info = self._feed(changefeed_id)
        return s.Statistics(datetime.now(UTC), 3, 40, 41, 4096, 1, 0, info.checkpoint_ts, info.resolved_ts, self.now)

    async def synced(self, changefeed_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> s.Synced:
        self._called("synced", changefeed_id)
        info = self._feed(changefeed_id)
        return s.Synced(True, info.checkpoint_time, when(self.now), info.checkpoint_time, when(self.now), "The data syncing is finished")

    async def tables(self, changefeed_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> Sequence[s.TaskStatus]:
        self._called("tables", changefeed_id)
        return self._feed(changefeed_id).task_status

    # ---- where tables are

    async def move_table(self, changefeed_id: str, table_id: int, node_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> None:
        self._called("move_table", (changefeed_id, table_id, node_id))
        self._feed(changefeed_id)
        raise e.TableNotMovable("a table is on no node: each batch divides its rows among Spark's tasks")

    async def move_split_table(self, changefeed_id: str, table_id: int, node_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> None:
        await self.move_table(changefeed_id, table_id, node_id)

    async def split_table(self, changefeed_id: str, table_id: int, *, namespace: str = s.DEFAULT_NAMESPACE) -> None:
        await self.move_table(changefeed_id, table_id, "")

    async def merge_table(self, changefeed_id: str, table_id: int, *, namespace: str = s.DEFAULT_NAMESPACE) -> None:
        await self.move_table(changefeed_id, table_id, "")

    async def dispatcher_count(self, changefeed_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> int:
        self._called("dispatcher_count", changefeed_id)
        return sum(len(one.table_ids) for one in self._feed(changefeed_id).task_status)

    # ---- tables

    def _lists(self) -> s.TableLists:
        return s.TableLists(TABLES, self.ineligible, (*TABLES, *self.ineligible))

    async def table_lists(self, replica_config: Mapping[str, Any], start_ts: int | None = None) -> s.TableLists:
        self._called("table_lists", (replica_config, start_ts))
        _check(replica_config, "blackhole://")
        return self._lists()

    # ---- the server

    async def captures(self) -> Sequence[s.CaptureInfo]:
        self._called("captures")
        return [s.CaptureInfo(CAPTURE, True, "127.0.0.1:8300")]

    async def processors(self) -> Sequence[s.ProcessorInfo]:
        self._called("processors")
        return [s.ProcessorInfo(info.namespace, name, CAPTURE) for name, info in self.feeds.items() if info.state is State.NORMAL]

    async def processor(self, changefeed_id: str, capture_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> s.ProcessorInfo:
        self._called("processor", (changefeed_id, capture_id))
        info = self._feed(changefeed_id)
        if capture_id != CAPTURE:
            raise e.CaptureNotExists(f"capture not exists, {capture_id}")
        return s.ProcessorInfo(info.namespace, changefeed_id, CAPTURE, info.task_status[0].table_ids)

    async def status(self) -> s.ServerStatus:
        self._called("status")
        return s.ServerStatus("v8.5.7", "v0.1.0", "none", CAPTURE, s.CLUSTER_ID, 4711, True, 0)

    async def health(self) -> None:
        self._called("health")

    async def resign_owner(self) -> None:
        self._called("resign_owner")

    async def drain(self, capture_id: str) -> int:
        self._called("drain", capture_id)
        if capture_id != CAPTURE:
            raise e.CaptureNotExists(f"capture not exists, {capture_id}")
        raise e.NowhereToDrain("scheduler request failed, only one capture alive")

    async def set_log_level(self, level: str) -> None:
        self._called("set_log_level", level)
        if level not in ("debug", "info", "warn", "error"):
            raise e.InvalidParameter(f"fail to change log level: {level}")

    async def set_log_redaction(self, mode: str) -> None:
        self._called("set_log_redaction", mode)
        if mode.lower() not in ("on", "off", "marker"):
            raise e.InvalidParameter(f"invalid redact mode: {mode}")

    async def debug_info(self) -> Mapping[str, Any]:
        self._called("debug_info")
        return {"processes": [{"name": "capture", "pid": 1}]}

    def figures(self) -> Mapping[str, Figures]:
        return {name: Figures(1, info.checkpoint_ts, info.resolved_ts, 3, 40, 41, 4096, 1) for name, info in self.feeds.items()}

    def capture_status(self) -> CaptureStatus:
        return self.capture

    def processes(self) -> Sequence[Mapping[str, object]]:
        return [{"name": "capture", "pid": 12, "restarts": 0, "last_error": None}]

    def samples(self) -> Iterable[Sample]:
        return [gauge("tidemill_changefeeds", "how many there are", len(self.feeds))]

    # ---- the upstream

    async def tso(self) -> s.Tso:
        self._called("tso")
        return s.Tso(self.now >> 18, self.now & (1 << 18) - 1)

    # ---- unsafe

    async def metadata(self) -> Sequence[s.EtcdEntry]:
        self._called("metadata")
        return [s.EtcdEntry(f"/tidemill/changefeeds/{name}", redact(self.secrets[name])) for name in self.feeds]

    async def resolve_lock(self, region_id: int, ts: int | None = None) -> int:
        self._called("resolve_lock", (region_id, ts))
        return 1

    async def delete_gc_safepoint(self) -> None:
        self._called("delete_gc_safepoint")


def _check(config: Mapping[str, Any], sink_uri: str) -> None:
    try:
        parsed = check_config(config, "replica_config")
    except ConfigError as error:
        raise e.InvalidReplicaConfig(error.message, hint=error.hint) from None
    try:
        parsed.sink_uri(sink_uri)
    except ConfigError as error:
        raise e.InvalidSinkUri(error.message, hint=error.hint) from None


def _with_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {"case-sensitive": False, "filter": {"rules": ["*.*"]}, "changefeed-error-stuck-duration": "30m"}
    return defaults | dict(config)
