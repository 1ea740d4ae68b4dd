"""Errors as TiCDC's API answers them: `{"error_msg": "[CODE]message", "error_code": "CODE"}`, and their HTTP statuses. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from tidemill.config.faults import faults_of
from tidemill.errors import ConfigError, SinkError, TidemillError, TopicError, redact
from tidemill.server.errors import InvalidParameter

INVALID = InvalidParameter.code
INTERNAL = "CDC:ErrInternalServerError"
UNAUTHORIZED = "CDC:ErrUnauthorized"

_OURS = {
    "TM:ErrOverBudget": "CDC:ErrAPIInvalidParam",
    "TM:ErrConfig": "CDC:ErrInvalidReplicaConfig",
    "TM:ErrStartTsOutOfLog": "CDC:ErrStartTsBeforeGC",
    "TM:ErrStartTsBeforeGC": "CDC:ErrStartTsBeforeGC",
    "TM:ErrSameUpstreamDownstream": "CDC:ErrSameUpstreamDownstream",
    "TM:ErrFeedMismatch": "CDC:ErrChangefeedUpdateRefused",
    "TM:ErrTopicCollision": "CDC:ErrInvalidReplicaConfig",
    "TM:ErrClusterMismatch": "CDC:ErrClusterIDMismatch",
    "TM:ErrVersionTooOld": "CDC:ErrVersionIncompatible",
    "TM:ErrUpstreamUnavailable": "CDC:ErrPDEtcdAPIError",
    "TM:ErrUpstream": "CDC:ErrPDEtcdAPIError",
    "TM:ErrMessageTooLarge": "CDC:ErrMessageTooLarge",
    "TM:ErrGCTTLExceeded": "CDC:ErrGCTTLExceeded",
    "TM:ErrDiskLow": "CDC:ErrDiskFull",
    "TM:ErrCorruptedDataMutation": "CDC:ErrCorruptedDataMutation",
    "TM:ErrInvalidTableRoutingRule": "CDC:ErrInvalidTableRoutingRule",
    "TM:ErrTableRouteConflict": "CDC:ErrTableRouteConflict",
    "TM:ErrTableRoutingFailed": "CDC:ErrTableRoutingFailed",
}
"""TiCDC's codes for Tidemill's."""

BAD_REQUEST = frozenset(
    f"CDC:Err{name}"
    for name in (
        *("APIInvalidParam", "SinkURIInvalid", "StartTsBeforeGC", "ChangeFeedNotExists", "TargetTsBeforeStartTs", "TableIneligible"),
        *("FilterRuleInvalid", "ChangefeedUpdateRefused", "MySQLConnectionError", "MySQLInvalidConfig", "CaptureNotExist"),
        *("SchedulerRequestFailed", "ActiveActiveTSOIndexIncompatible", "InvalidTableRoutingRule", "TableRouteConflict"),
        *("ChangeFeedAlreadyExists", "InvalidChangefeedID", "InvalidKeyspace", "InvalidReplicaConfig", "CliCheckpointTsIsInFuture"),
        *(
            "NewKafkaSink",
            "FailToCreateExternalStorage",
            "AvroSchemaAPIError",
            "SameUpstreamDownstream",
            "UpstreamMissMatch",
            "TableNotSupportMove",
            "ClusterIDMismatch",
            "GCTTLExceeded",
        ),
    )
)
"""Codes of what the caller can mend. The first two lines are TiCDC's own list; it answers the others with 500."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What is answered."""

    status: int
    code: str
    message: str

    def body(self) -> dict[str, str]:
        """Return the answer's body."""
        return {"error_msg": f"[{self.code}]{self.message}", "error_code": self.code}


def failure_of(error: TidemillError) -> Failure:
    """Return the answer for an error. The hint stands behind the message."""
    code = ticdc_code(error)
    status = HTTPStatus.BAD_REQUEST if code in BAD_REQUEST else HTTPStatus.INTERNAL_SERVER_ERROR
    return Failure(status, code, _text(error))


def ticdc_code(error: TidemillError) -> str:
    """Return TiCDC's code for an error."""
    if error.code.startswith("CDC:"):
        return error.code
    if isinstance(error, SinkError | TopicError) and error.code not in _OURS:
        return "CDC:ErrSinkURIInvalid"
    return _OURS.get(error.code, INTERNAL)


def _text(error: TidemillError) -> str:
    if isinstance(error, ConfigError) and len(faults := faults_of(error)) > 1:
        return redact("; ".join(_text(fault) for fault in faults))
    return redact(f"{error.message}. {error.hint}" if error.hint else error.message)


def invalid(message: str, hint: str = "") -> InvalidParameter:
    """Return the error for a request that cannot be understood."""
    return InvalidParameter(message, hint=hint)
