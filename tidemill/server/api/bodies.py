"""The bodies of TiCDC's API v2: what requests have, and what answers have, field by field. Pure.

The models also make the OpenAPI document. A field that TiCDC leaves out of an answer when it is empty is left out here (`omitted`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from tidemill.budget import REQUEST, Budget, OverBudget
from tidemill.config.replica_config import asks_for_nothing
from tidemill.rules.names import did_you_mean, is_misspelled
from tidemill.server.api.errors import invalid
from tidemill.statefile import is_shallow
from tidemill.tso import MAX_TS

_SHOWN = 80
_log = logging.getLogger(__name__)
MOST_ITEMS = 10_000
"""Items of all lists and objects of a body. Each rule costs time and memory for as long as its changefeed is there."""


def _or_null(schema: dict[str, Any]) -> None:
    """Let each field of a schema be null."""
    fields = schema.get("properties", {})
    schema["properties"] = {name: {"anyOf": [field, {"type": "null"}]} for name, field in fields.items()}


class Request(BaseModel):
    """A request's body. A null is a field that is not there, as in Go."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, json_schema_extra=_or_null)


class PdConfig(Request):
    """The cluster that is meant. It has to be the one that the server follows; leave it out."""

    pd_addrs: list[str] = []
    ca_path: str = ""
    cert_path: str = ""
    key_path: str = ""
    cert_allowed_cn: list[str] = []


_TS = Field(0, ge=0, le=MAX_TS)


class ChangefeedConfig(PdConfig):
    """`POST /api/v2/changefeeds` and `PUT /api/v2/changefeeds/{changefeed_id}`."""

    keyspace: str = Field("", description="`default`. The query parameter counts.")
    namespace: str = Field("", description="The older word for keyspace.")
    changefeed_id: str = Field("", description="Empty: a UUID.")
    start_ts: int = Field(0, ge=0, le=MAX_TS, description="A TSO. 0: now.")
    target_ts: int = Field(0, ge=0, le=MAX_TS, description="A TSO. 0: none.")
    sink_uri: str = Field("", description="Where changes go.")
    replica_config: dict[str, Any] | None = Field(None, description="TiCDC's configuration; in snake_case.")
    engine: str = Field("", description="Taken, and without effect.")
    schema_registry: str = Field("", description="Tidemill's own: wins over the one in sink_uri and replica_config.")


class VerifyTableConfig(ChangefeedConfig):
    """`POST /api/v2/verify_table` and `/api/v2/get_all_tables`."""


class ResumeChangefeedConfig(PdConfig):
    """`POST /api/v2/changefeeds/{changefeed_id}/resume`. The body may be empty."""

    overwrite_checkpoint_ts: int = Field(0, ge=0, le=MAX_TS, description="Go on from here. 0: from the checkpoint.")
    skip_rows: list[str] = Field([], max_length=1000, description="Tidemill's own: rows to leave out, `DATABASE.TABLE:KEY@COMMIT_TS`.")


class UpstreamConfig(PdConfig):
    """`POST /api/v2/tso`, `DELETE /api/v2/unsafe/service_gc_safepoint`. The body may be empty."""

    id: int = 0


class ResolveLockReq(PdConfig):
    """`POST /api/v2/unsafe/resolve_lock`."""

    region_id: int = Field(0, ge=0, le=2**64 - 1)
    ts: int = Field(0, ge=0, le=MAX_TS, description="0: some seconds ago.")


class LogLevelReq(Request):
    """`POST /api/v2/log`."""

    log_level: str = "info"


class RedactModeReq(Request):
    """`POST /api/v2/log/redact`."""

    redact_info_log: str = ""


class ChangefeedConfigV1(Request):
    """`POST /api/v1/changefeeds` and `PUT /api/v1/changefeeds/{changefeed_id}`."""

    keyspace: str = Field("", description="`default`. The query parameter counts.")
    namespace: str = Field("", description="The older word for keyspace.")
    changefeed_id: str = Field("", description="Empty: a UUID.")
    start_ts: int = Field(0, ge=0, le=MAX_TS, description="A TSO. 0: now.")
    target_ts: int = Field(0, ge=0, le=MAX_TS, description="A TSO. 0: none.")
    sink_uri: str = Field("", description="Where changes go.")
    timezone: str = Field("system", description="Taken, and without effect: the server's --tz counts.")
    force_replicate: bool = False
    ignore_ineligible_table: bool = False
    filter_rules: list[str] = []
    ignore_txn_start_ts: list[int] = []
    mounter_worker_num: int = Field(16, description="Taken, and without effect.")
    sink_config: dict[str, Any] | None = Field(None, description="The file's table `sink`.")


class MoveTableReq(Request):
    """`POST /api/v1/changefeeds/{changefeed_id}/tables/move_table`."""

    table_id: int = 0
    target_capture_id: str = ""


class DrainCaptureRequest(Request):
    """`PUT /api/v1/captures/drain`, as TiDB Operator calls it."""

    capture_id: str = ""


# ------------------------------------------------------------------ answers


def _without_omitted(schema: dict[str, Any], model: type[Any]) -> None:
    """Take the fields that an answer may lack out of what its schema requires."""
    required = [name for name in schema.pop("required", ()) if name not in model.omitted]
    if required:
        schema["required"] = required


class Answer(BaseModel):
    """An answer's body. `omitted`: the fields that are left out when they are empty."""

    model_config = ConfigDict(frozen=True, json_schema_extra=_without_omitted)
    omitted: ClassVar[frozenset[str]] = frozenset()

    def body(self) -> dict[str, Any]:
        """Return the JSON object, fields in TiCDC's order."""
        found = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if value in (None, "", 0, [], {}) and name in self.omitted and value is not False:
                continue
            found[name] = _plain(value)
        return found


def _plain(value: Any) -> Any:
    if isinstance(value, Answer):
        return value.body()
    return [_plain(item) for item in value] if isinstance(value, list) else value


class HttpError(Answer):
    """Every answer that is not 2xx."""

    error_msg: str
    error_code: str


class Empty(Answer):
    """`{}`"""


A = TypeVar("A", bound=Answer)


class ListResponse(Answer, Generic[A]):
    """TiCDC's envelope of lists."""

    total: int
    items: list[A]


class RunningError(Answer):
    """Why a changefeed is in state warning or failed."""

    time: str
    addr: str
    code: str
    message: str


class ChangefeedCommonInfo(Answer):
    """An item of `GET /api/v2/changefeeds`. Older versions of TiCDC say namespace for keyspace."""

    upstream_id: int
    namespace: str
    keyspace: str
    id: str
    state: str
    checkpoint_tso: int
    checkpoint_time: str
    error: RunningError | None


class TaskStatus(Answer):
    """Which tables a capture has."""

    capture_id: str
    table_ids: list[int] | None
    table_operations: dict[str, Any] | None = None


class ChangefeedInfo(Answer):
    """`GET /api/v2/changefeeds/{changefeed_id}`, and what create and update answer."""

    omitted = frozenset(
        {
            *("upstream_id", "sink_uri", "start_ts", "target_ts", "admin_job_type", "config", "state", "error", "creator_version"),
            *("task_status", "sort_engine"),
        }
    )
    upstream_id: int
    id: str
    namespace: str
    keyspace: str
    sink_uri: str
    create_time: str
    start_ts: int
    target_ts: int
    admin_job_type: int
    sort_engine: str
    config: dict[str, Any]
    state: str
    error: RunningError | None
    creator_version: str
    resolved_ts: int
    checkpoint_ts: int
    checkpoint_time: str
    task_status: list[TaskStatus]


class ChangefeedStatus(Answer):
    """`GET /api/v2/changefeeds/{changefeed_id}/status`"""

    omitted = frozenset({"state", "last_error", "last_warning"})
    state: str
    resolved_ts: int
    checkpoint_ts: int
    last_error: RunningError | None
    last_warning: RunningError | None


class SyncedStatus(Answer):
    """`GET /api/v2/changefeeds/{changefeed_id}/synced`"""

    synced: bool
    sink_checkpoint_ts: str
    puller_resolved_ts: str
    last_synced_ts: str
    now_ts: str
    info: str


class Capture(Answer):
    """A server. The versions are Tidemill's own fields: `version` is the one of TiCDC that /api/v2/status answers."""

    omitted = frozenset({"version", "tidemill_version"})
    id: str
    is_owner: bool
    address: str
    cluster_id: str
    version: str
    tidemill_version: str


class ProcessorCommonInfo(Answer):
    """A changefeed on a server."""

    namespace: str
    keyspace: str
    changefeed_id: str
    capture_id: str


class ProcessorDetail(Answer):
    """`GET /api/v2/processors/{changefeed_id}/{capture_id}`"""

    table_ids: list[int]


class NodeTableInfo(Answer):
    """An item of `GET /api/v2/changefeeds/{changefeed_id}/tables`."""

    node_id: str
    table_ids: list[int]


class TableName(Answer):
    """A table."""

    database_name: str
    table_name: str
    table_id: int
    is_partition: bool


class Tables(Answer):
    """`POST /api/v2/verify_table` and `/api/v2/get_all_tables`"""

    omitted = frozenset({"ineligible_tables", "eligible_tables", "all_tables"})
    ineligible_tables: list[TableName]
    eligible_tables: list[TableName]
    all_tables: list[TableName]


class ServerStatus(Answer):
    """`GET /api/v2/status`. `version`: of TiCDC, by which its clients decide what they may ask; `tidemill_version`: this program's.
    `liveness`: 0 alive, 1 draining, 2 stopping."""

    version: str
    tidemill_version: str
    git_hash: str
    id: str
    cluster_id: str
    pid: int
    is_owner: bool
    liveness: int


class Tso(Answer):
    """`POST /api/v2/tso`: milliseconds since 1970, and the logical part."""

    timestamp: int
    logic_time: int


class EtcdData(Answer):
    """An item of `GET /api/v2/unsafe/metadata`."""

    omitted = frozenset({"key", "value"})
    key: str
    value: str


class DispatcherCount(Answer):
    """`GET /api/v2/changefeeds/{changefeed_id}/get_dispatcher_count`"""

    count: int


class RedactModeResp(Answer):
    """`POST /api/v2/log/redact`"""

    previous_mode: str
    current_mode: str


class DrainCaptureResp(Answer):
    """How many tables the server still has."""

    current_table_count: int


# ------------------------------------------------------------------ reading

R = TypeVar("R", bound=Request)


def parse(model: type[R], data: bytes, *, empty_allowed: bool = False) -> R:
    """Return a request's body. Raises InvalidParameter that says what is wrong, and where."""
    if not data.strip():
        if empty_allowed:
            return model()
        raise invalid("the body is empty", "Send a JSON object.")
    found = {key: value for key, value in _json(data).items() if value is not None and not _is_of_newer_client(model, key, value)}
    try:
        return model.model_validate(found)
    except ValidationError as error:
        said = "; ".join(_complaint(one, model) for one in error.errors(include_url=False))
        raise invalid(said) from None


def _is_of_newer_client(model: type[Request], key: str, value: Any) -> bool:
    """Whether a field that the model does not have asks for nothing, as the defaults of a newer client do; it is left out then."""
    known = model.model_fields
    if key in known or not asks_for_nothing(value) or is_misspelled(key, known):
        return False
    _log.warning("a request has the field %s, which is not known here; its value asks for nothing", key[:_SHOWN])
    return True


def _json(data: bytes) -> Mapping[str, Any]:
    try:
        found = Budget(REQUEST).json(data, _LOAD)
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise invalid(f"the body is not UTF-8: byte {error.start}") from None
    except UnicodeEncodeError:
        raise invalid("a text of the body has half of a surrogate pair") from None
    except json.JSONDecodeError as error:
        raise invalid(f"the body is not JSON: {error.msg}, at line {error.lineno}, column {error.colno}") from None
    except OverBudget as error:
        raise invalid(f"the body is too large: {error.message}") from None
    except ValueError as error:  # also a number of thousands of digits
        raise invalid(f"the body is not JSON: {str(error)[:_SHOWN]}") from None
    except RecursionError:
        raise invalid("the body is nested too deep") from None
    if not isinstance(found, dict):
        raise invalid("the body is not a JSON object")
    if not is_shallow(found):
        raise invalid("the body is nested too deep")
    if items_of(found) > MOST_ITEMS:
        raise invalid(
            f"the lists and objects of the body have more than {MOST_ITEMS} items",
            "Say it by fewer rules: wildcards, or `!` for exceptions.",
        )
    return found


def items_of(value: Any) -> int:
    """Return how many items the lists and objects of a JSON value have, those within them included. The value is shallow."""
    level, count = [value], 0
    while level:
        count += sum(len(one) for one in level if isinstance(one, list | dict))
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())]
    return count


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not a number of JSON")


_LOAD = partial(json.loads, parse_constant=_no_constant)


def _complaint(error: ErrorDetails, model: type[Request]) -> str:
    """Return what is wrong with a field. Its value is not shown: it may be a secret."""
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{str(part)[:_SHOWN]}" for part in error["loc"]).lstrip(".")
    if error["type"] == "extra_forbidden":
        return f"unknown field {path}{did_you_mean(path, model.model_fields)}"
    return f"{path}: {error['msg'].replace('Input should be', 'expected')}"
