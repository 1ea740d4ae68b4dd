"""What the changefeed service refuses, with TiCDC's codes: scripts and `cdc cli` look for them."""

from __future__ import annotations

from tidemill import errors
from tidemill.config.parameters import Scheme
from tidemill.errors import TidemillError


class ChangefeedNotExists(TidemillError):
    """There is no changefeed of that name."""

    code = "CDC:ErrChangeFeedNotExists"


class ChangefeedAlreadyExists(TidemillError):
    """A changefeed of that name is there already."""

    code = "CDC:ErrChangeFeedAlreadyExists"


class InvalidChangefeedId(TidemillError):
    """A changefeed's name has to match ^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$ and may have 128 characters."""

    code = "CDC:ErrInvalidChangefeedID"


class InvalidKeyspace(TidemillError):
    """There is one namespace, `default`."""

    code = "CDC:ErrInvalidKeyspace"


class InvalidParameter(TidemillError):
    """A parameter of a request is malformed, or contradicts another one."""

    code = "CDC:ErrAPIInvalidParam"


class UpdateRefused(TidemillError):
    """The changefeed's state does not allow the request, or a setting may not change."""

    code = "CDC:ErrChangefeedUpdateRefused"


class NowhereToDrain(TidemillError):
    """There is no other server that could take a server's changefeeds over. TiUP goes on at once when it reads this code."""

    code = "CDC:ErrSchedulerRequestFailed"


class StartTsBeforeLog(TidemillError):
    """History from that ts on is not in the log, and the cluster may have collected it."""

    code = "CDC:ErrStartTsBeforeGC"


class TargetTsBeforeStartTs(TidemillError):
    """The target ts lies before the start ts or the checkpoint."""

    code = "CDC:ErrTargetTsBeforeStartTs"


class CheckpointInFuture(TidemillError):
    """overwrite-checkpoint-ts lies in the future."""

    code = "CDC:ErrCliCheckpointTsIsInFuture"


class InvalidReplicaConfig(TidemillError):
    """The changefeed's configuration has a fault. The message names the key."""

    code = "CDC:ErrInvalidReplicaConfig"


class TableIneligible(TidemillError):
    """A table that the filter selects has no usable key, and neither ignore-ineligible-table nor force-replicate is set."""

    code = "CDC:ErrTableIneligible"


class InvalidSinkUri(TidemillError):
    """The sink URI has a fault, or the sink refuses what a changefeed needs."""

    code = "CDC:ErrSinkURIInvalid"


class BrokersAway(TidemillError):
    """Kafka does not answer."""

    code = "CDC:ErrNewKafkaSink"
    retryable = True


class DatabaseAway(TidemillError):
    """The database downstream does not answer."""

    code = "CDC:ErrMySQLConnectionError"
    retryable = True


class StorageAway(TidemillError):
    """The storage of a sink does not answer."""

    code = "CDC:ErrFailToCreateExternalStorage"
    retryable = True


class RegistryAway(TidemillError):
    """The schema registry does not answer."""

    code = "CDC:ErrAvroSchemaAPIError"
    retryable = True


def sink_away(scheme: str, error: TidemillError) -> type[TidemillError]:
    """Return the kind of error for a sink that does not answer now."""
    if isinstance(error, errors.RegistryUnavailable):
        return RegistryAway
    away: dict[str, type[TidemillError]] = {Scheme.KAFKA: BrokersAway, Scheme.MYSQL: DatabaseAway}
    return away.get(scheme, StorageAway)


class LogNotKept(TidemillError):
    """A changefeed was stopped, failed or too slow for longer than --gc-ttl: the log does not keep for it any longer what it needs."""

    code = "CDC:ErrGCTTLExceeded"


class CaptureNotExists(TidemillError):
    """No server has that id."""

    code = "CDC:ErrCaptureNotExist"


class TableNotMovable(TidemillError):
    """Tables are not placed on nodes: each batch divides its rows among Spark's tasks."""

    code = "CDC:ErrTableNotSupportMove"


class UpstreamMismatch(TidemillError):
    """The request names another cluster than the one that the server follows."""

    code = "CDC:ErrUpstreamMissMatch"


class Unhealthy(TidemillError):
    """The capture or the delivery host does not run, or the cluster does not answer."""

    code = "CDC:ErrClusterIsUnhealthy"
    retryable = True


class PdUnavailable(TidemillError):
    """PD does not answer."""

    code = "CDC:ErrAPIGetPDClientFailed"
    retryable = True


class NotOwner(TidemillError):
    """Another server leads."""

    code = "CDC:ErrNotOwner"
    retryable = True


class OwnerNotFound(TidemillError):
    """No server leads at the moment."""

    code = "CDC:ErrOwnerNotFound"
    retryable = True


class CaptureNotReady(TidemillError):
    """The capture has not started again with the tables of a new changefeed."""

    code = "CDC:ErrClusterIsUnhealthy"
    retryable = True
