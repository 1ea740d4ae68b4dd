"""Errors of Tidemill, written so that the user can act on them.

Every error that Tidemill raises is a `TidemillError`. It has a stable code for machines, and a message that names what, where and what to
do. It says whether a retry can help. The supervisor, the changefeed's state machine and the command line use nothing else. Messages never
contain secrets: addresses go through `redact` first.
"""

from __future__ import annotations

import errno

from tidemill.redaction import redact as redact


class TidemillError(Exception):
    """Base of all errors that Tidemill raises. `code` is stable, in the style of TiCDC's: `TM:ErrLogCorrupt`."""

    code = "TM:ErrUnknown"
    retryable = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}\n  {hint}" if hint else message)
        self.message = message
        self.hint = hint


class ConfigError(TidemillError):
    """A flag, a sink URI parameter or a TOML key is unknown, malformed, or contradicts another one."""

    code = "TM:ErrConfig"


class MalformedBytes(TidemillError):
    """Bytes do not follow their format. The message gives the format, the offset and what was expected."""

    code = "TM:ErrMalformed"


class MalformedKey(MalformedBytes):
    """A key that is not a TiDB key of the expected kind."""

    code = "TM:ErrMalformedKey"


class MalformedRow(MalformedBytes):
    """A row value that is neither row format 1 nor 2, or whose column does not hold what its type says."""

    code = "TM:ErrMalformedRow"


class CorruptedRow(MalformedRow):
    """A row does not match its checksum, and the integrity check is set to stop there."""

    code = "TM:ErrCorruptedDataMutation"


class MalformedMessage(MalformedBytes):
    """A decoder rejects a protocol message."""

    code = "TM:ErrMalformedMessage"


class SchemaError(TidemillError):
    """Table descriptions or DDL jobs cannot be read, or contradict each other."""

    code = "TM:ErrSchema"


class DdlTextError(SchemaError):
    """A DDL statement cannot be printed as TiDB prints it, under the strict setting."""

    code = "TM:ErrDdlText"


class SchemaChanged(SchemaError):
    """A DDL has changed the columns of a table that a DataFrame is read from, in a way that `schemaChangePolicy` does not allow."""

    code = "TM:ErrSchemaChanged"


class RowsChanged(SchemaError):
    """A DDL has changed rows of a table that a stream of its changes is read from, and no change says so."""

    code = "TM:ErrRowsChanged"


class LogError(TidemillError):
    """The change log cannot be used as requested."""

    code = "TM:ErrLog"


class LogCorrupt(LogError):
    """A segment, a head or a chain of the change log is broken: a hole, an overlap, a truncated file."""

    code = "TM:ErrLogCorrupt"


class SegmentGone(LogCorrupt):
    """A listed segment is missing: compaction, retention or somebody else removed it. Listing the log again may help."""

    code = "TM:ErrLogSegmentGone"
    retryable = True


class LogUnavailable(LogError):
    """The storage of the log, or of a changefeed's state, cannot be reached now, or answers with an error that may pass (a timeout, 503,
    EIO, ESTALE). The stored data is not in doubt: a later retry helps."""

    code = "TM:ErrLogUnavailable"
    retryable = True


class LogRefused(LogError):
    """The storage of the log, or of a changefeed's state, refuses a request: wrong credentials, no permission, no such bucket, a read-only
    disk."""

    code = "TM:ErrLogRefused"


class LogLocked(LogError):
    """Another writer owns the partition or the log."""

    code = "TM:ErrLogLocked"


class FolderHeld(LogLocked):
    """Another writer is suspended in the middle of a publication. It may continue, or be killed."""

    code = "TM:ErrLogHeld"
    retryable = True


class LogInUse(LogError):
    """Changefeeds still need the log."""

    code = "TM:ErrLogInUse"


class NotCaptured(LogError):
    """A changefeed needs rows that the capture's rules left out of the log."""

    code = "TM:ErrNotCaptured"


class DataWithoutEvents(TidemillError):
    """Rows came into a changefeed's table without change events: by a physical import, or a restore."""

    code = "TM:ErrDataWithoutEvents"


class LogFenced(LogError):
    """This writer's epoch has ended: another writer has taken the partition."""

    code = "TM:ErrLogFenced"


class DiskLow(LogError):
    """The disk of the log is full, or below its low-water mark. Nothing is broken: with more space the same request works."""

    code = "TM:ErrDiskLow"
    retryable = True


class StartTsOutOfLog(LogError):
    """A start or target ts that the log does not cover; the message gives both ends."""

    code = "TM:ErrStartTsOutOfLog"


class PositionGone(LogError):
    """A position before the begin of an entry store: retention has removed what follows it."""

    code = "TM:ErrPositionGone"


class UpstreamError(TidemillError):
    """PD or TiKV refuses a request, or its answer cannot be understood."""

    code = "TM:ErrUpstream"


class UpstreamUnavailable(UpstreamError):
    """PD or TiKV cannot be reached now."""

    code = "TM:ErrUpstreamUnavailable"
    retryable = True


class VersionTooOld(UpstreamError):
    """PD or TiKV is older than what live capture supports."""

    code = "TM:ErrVersionTooOld"


class ResolvedTsBroken(UpstreamError):
    """A store sent a row below a resolved ts that it had sent, and the log is complete beyond the row. The message names region, table,
    store and key."""

    code = "TM:ErrResolvedTsBroken"


class ClusterMismatch(UpstreamError):
    """The cluster is not that of the log or the changefeed, or is of a kind that is not supported."""

    code = "TM:ErrClusterMismatch"


class StartTsBeforeGc(UpstreamError):
    """History from start-ts on may have been collected already."""

    code = "TM:ErrStartTsBeforeGC"


class GcTtlExceeded(UpstreamError):
    """The log has not caught up for longer than it may hold back garbage collection."""

    code = "TM:ErrGCTTLExceeded"


class SinkError(TidemillError):
    """The sink refuses a request."""

    code = "TM:ErrSink"


class SinkUnavailable(SinkError):
    """The sink cannot be reached or did not acknowledge in time."""

    code = "TM:ErrSinkUnavailable"
    retryable = True


class MessageTooLarge(SinkError):
    """A single row is larger than max-message-bytes; the message names table, key, start_ts and commit_ts."""

    code = "TM:ErrMessageTooLarge"


class NoHandleKey(SinkError):
    """A setting asks for handle key columns only, but the row's table has none. The message names table, key and commit_ts."""

    code = "TM:ErrNoHandleKey"


class MessageRefused(SinkError):
    """A broker rejected a message as too large for its topic; the topic's limit may have been lowered since it was read."""

    code = "TM:ErrMessageRefused"


class TopicError(TidemillError):
    """A topic cannot be read: it does not exist, access is refused, or messages were lost before they were read."""

    code = "TM:ErrTopic"


class TopicUnavailable(TopicError):
    """The brokers of a topic cannot be reached now."""

    code = "TM:ErrTopicUnavailable"
    retryable = True


class RegistryError(SinkError):
    """The schema registry refuses a request."""

    code = "TM:ErrSchemaRegistry"


class RegistryUnavailable(SinkUnavailable):
    """The schema registry cannot be reached, is too slow, or the server is not a schema registry."""

    code = "TM:ErrSchemaRegistryUnavailable"


class SchemaIncompatible(RegistryError):
    """The schema registry rejects a table's new schema because of earlier ones; the message names subject and columns."""

    code = "TM:ErrSchemaIncompatible"


class TopicCollision(TidemillError):
    """Two tables would share a topic or subject, in a protocol with one schema per topic."""

    code = "TM:ErrTopicCollision"


class Fenced(TidemillError):
    """This try of a batch is over: a newer epoch has begun."""

    code = "TM:ErrFenced"


class BatchFailed(TidemillError):
    """A batch failed after its retries."""

    code = "TM:ErrBatchFailed"


class FeedBroken(TidemillError):
    """A file of a changefeed's state cannot be read."""

    code = "TM:ErrFeedBroken"


class SameUpstreamDownstream(TidemillError):
    """The database downstream is the cluster whose changes are delivered."""

    code = "TM:ErrSameUpstreamDownstream"


class FeedMismatch(TidemillError):
    """A changefeed was started with settings that differ from those it was created with."""

    code = "TM:ErrFeedMismatch"


class UnexpectedError(TidemillError):
    """A fault of Tidemill. The process's log has the stack."""

    code = "TM:ErrUnexpected"
    retryable = True


class SystemFailed(TidemillError):
    """The operating system refuses a file, a folder or a socket."""

    code = "TM:ErrIO"

    @classmethod
    def of(cls, error: OSError) -> SystemFailed:
        """Convert an OSError. Wrong paths and missing rights stay until somebody changes something; other errors may pass."""
        failed = cls(f"a file, a disk or a storage failed: {error}")
        failed.retryable = error.errno not in _LASTING_ERRNOS
        return failed


_LASTING_ERRNOS = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG}


class SparkUnavailable(TidemillError):
    """Spark does not start: its master does not answer, a port is taken, or its settings are refused. A retry may help."""

    code = "TM:ErrSparkUnavailable"
    retryable = True


class SqlError(TidemillError):
    """The playground rejects a statement: it is not understood, not supported, or breaks a constraint."""

    code = "TM:ErrSql"


class PlaygroundFault(TidemillError):
    """The playground has a fault of its own: it did something that no cluster would have done."""

    code = "TM:ErrPlayground"


_WHY_NOT_LISTEN = {
    errno.EADDRINUSE: "the port is taken: another process listens there",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "ports below 1024 need rights of their own",
}


def cannot_listen(flag: str, address: str, error: Exception) -> ConfigError:
    """Return the error of a server whose address cannot be used. `flag`: the option that chose the address."""
    number = error.errno if isinstance(error, OSError) else None
    why = _WHY_NOT_LISTEN.get(number or 0) or (error.strerror if isinstance(error, OSError) else None) or str(error)
    hint = "End that process, or choose" if number == errno.EADDRINUSE else "Choose"
    return ConfigError(f"{flag} {address}: {why}", hint=f"{hint} another HOST:PORT with {flag}; port 0 takes a free one.")


def made(code: str, message: str, hint: str = "", *, retryable: bool) -> TidemillError:
    """Return an error of the class of a code."""
    error = _classes().get(code, TidemillError)(message, hint=hint)
    error.code, error.retryable = code, retryable
    return error


def _classes() -> dict[str, type[TidemillError]]:
    """Return the error classes by code, if they can be made from a message alone."""
    found: dict[str, type[TidemillError]] = {}
    waiting = [TidemillError]
    while waiting:
        kind = waiting.pop()
        if kind.__init__ is TidemillError.__init__:
            found.setdefault(kind.code, kind)
        waiting += kind.__subclasses__()
    return found


EXIT_FAILED = 1
EXIT_RETRY = 75  # EX_TEMPFAIL
EXIT_FATAL = 78  # EX_CONFIG


def exit_code(error: TidemillError, *, supervised: bool) -> int:
    """Return the exit code for an error. For a user any failure is 1; a supervisor learns whether a restart can help."""
    if not supervised:
        return EXIT_FAILED
    return EXIT_RETRY if error.retryable else EXIT_FATAL
