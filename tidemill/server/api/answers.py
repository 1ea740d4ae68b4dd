"""Answers of the service as bodies of TiCDC's API. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, tzinfo

from tidemill.changefeed.states import State
from tidemill.config.replica_config import to_json
from tidemill.errors import redact
from tidemill.server import service as s
from tidemill.server.api import bodies as b
from tidemill.server.api.times import rfc3339, shown

_QUIET = (State.NORMAL, State.STOPPED, State.FINISHED, State.REMOVED)
"""States in which TiCDC's detailed answer has no error."""


def state_word(state: State) -> str:
    """Return the state as people see it: TiCDC shows pending as warning."""
    return str(State.WARNING if state is State.PENDING else state)


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes answers. `zone`: of times without a zone; None: the machine's."""

    zone: tzinfo | None = UTC

    def error(self, error: s.RunningError | None) -> b.RunningError | None:
        """Why a changefeed has stopped. The hint stands behind the message."""
        if error is None:
            return None
        message = redact(f"{error.message}. {error.hint}" if error.hint else error.message)
        return b.RunningError(time=rfc3339(error.time, self.zone), addr=error.addr, code=error.code, message=message)

    def common(self, info: s.ChangefeedInfo) -> b.ChangefeedCommonInfo:
        """A changefeed in a list."""
        return b.ChangefeedCommonInfo(
            upstream_id=info.upstream_id,
            namespace=info.namespace,
            keyspace=info.namespace,
            id=info.id,
            state=state_word(info.state),
            checkpoint_tso=info.checkpoint_ts,
            checkpoint_time=shown(info.checkpoint_time, self.zone),
            error=self.error(info.error),
        )

    def info(self, info: s.ChangefeedInfo) -> b.ChangefeedInfo:
        """A changefeed with all that it has."""
        return b.ChangefeedInfo(
            upstream_id=info.upstream_id,
            id=info.id,
            namespace=info.namespace,
            keyspace=info.namespace,
            sink_uri=redact(info.sink_uri),
            create_time=rfc3339(info.create_time, self.zone),
            start_ts=info.start_ts,
            target_ts=info.target_ts,
            admin_job_type=info.admin_job_type,
            sort_engine=info.sort_engine,
            config=to_json(info.config, all_names=True),
            state=state_word(info.state),
            error=None if info.state in _QUIET else self.error(info.error),
            creator_version=info.creator_version,
            resolved_ts=info.resolved_ts,
            checkpoint_ts=info.checkpoint_ts,
            checkpoint_time=shown(info.checkpoint_time, self.zone),
            task_status=[b.TaskStatus(capture_id=one.capture_id, table_ids=list(one.table_ids)) for one in info.task_status],
        )

    def status(self, info: s.ChangefeedInfo) -> b.ChangefeedStatus:
        """The short answer."""
        error = self.error(info.error)
        return b.ChangefeedStatus(
            state=state_word(info.state),
            resolved_ts=info.resolved_ts,
            checkpoint_ts=info.checkpoint_ts,
            last_error=error if info.state is State.FAILED else None,
            last_warning=error if info.state in (State.WARNING, State.PENDING) else None,
        )

    def synced(self, synced: s.Synced) -> b.SyncedStatus:
        """Whether all is downstream."""
        return b.SyncedStatus(
            synced=synced.synced,
            sink_checkpoint_ts=shown(synced.sink_checkpoint_ts, self.zone),
            puller_resolved_ts=shown(synced.puller_resolved_ts, self.zone),
            last_synced_ts=shown(synced.last_synced_ts, self.zone),
            now_ts=shown(synced.now_ts, self.zone),
            info=synced.info,
        )


def capture(info: s.CaptureInfo) -> b.Capture:
    """A server."""
    return b.Capture(
        id=info.id,
        is_owner=info.is_owner,
        address=info.address,
        cluster_id=info.cluster_id,
        version=info.version,
        tidemill_version=info.tidemill_version,
    )


def processor(info: s.ProcessorInfo) -> b.ProcessorCommonInfo:
    """A changefeed on a server."""
    return b.ProcessorCommonInfo(
        namespace=info.namespace, keyspace=info.namespace, changefeed_id=info.changefeed_id, capture_id=info.capture_id
    )


def tables(lists: s.TableLists) -> b.Tables:
    """Which tables a filter selects."""
    return b.Tables(
        ineligible_tables=[_table(one) for one in lists.ineligible_tables],
        eligible_tables=[_table(one) for one in lists.eligible_tables],
        all_tables=[_table(one) for one in lists.all_tables],
    )


def _table(one: s.TableName) -> b.TableName:
    return b.TableName(database_name=one.database_name, table_name=one.table_name, table_id=one.table_id, is_partition=one.is_partition)


def status(found: s.ServerStatus) -> b.ServerStatus:
    """A server's status."""
    return b.ServerStatus(
        version=found.version,
        tidemill_version=found.tidemill_version,
        git_hash=found.git_hash,
        id=found.id,
        cluster_id=found.cluster_id,
        pid=found.pid,
        is_owner=found.is_owner,
        liveness=found.liveness,
    )
