"""What can go wrong, told so that a person can act on it.

Every error that Tidemill raises is a `TidemillError`: it has a stable code for machines, a message that names
what, where and what to do, and says whether trying again can help. The supervisor, the changefeed's state machine and the
command line look at nothing else. Messages never hold secrets: addresses are passed through `redact` first.
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
    """Bytes that are not what their format promises. The message gives the format, the offset and what was expected."""

    code = "TM:ErrMalformed"


class MalformedKey(MalformedBytes):
    """A key that is not a TiDB key of the expected kind."""

    code = "TM:ErrMalformedKey"


class MalformedRow(MalformedBytes):
    """A row value that is neither row format 1 nor 2, or whose column does not hold what its type says."""

    code = "TM:ErrMalformedRow"


class CorruptedRow(MalformedRow):
    """A row whose checksum does not fit it, where integrity checks are told to stop at one."""

    code = "TM:ErrCorruptedDataMutation"


class MalformedMessage(MalformedBytes):
    """A protocol message that a decoder refuses."""

    code = "TM:ErrMalformedMessage"


class SchemaError(TidemillError):
    """Table descriptions or DDL jobs that cannot be read or contradict each other."""

    code = "TM:ErrSchema"


class DdlTextError(SchemaError):
    """A DDL statement that cannot be printed as TiDB prints it, under the strict setting."""

    code = "TM:ErrDdlText"


class LogError(TidemillError):
    """The change log cannot be used as asked."""

    code = "TM:ErrLog"


class LogCorrupt(LogError):
    """A segment, a head or a chain of the change log is broken: a hole, an overlap, a truncated file."""

    code = "TM:ErrLogCorrupt"


class SegmentGone(LogCorrupt):
    """A segment that was listed is not there: compaction or retention took it, or somebody did. Reading the log again may help."""

    code = "TM:ErrLogSegmentGone"
    retryable = True


class LogUnavailable(LogError):
    """The storage of the log, or of a changefeed's state, cannot be reached now, or answers with an error that may pass (a time-out, 503,
    EIO, ESTALE). What is stored is not in doubt: trying again later helps."""

    code = "TM:ErrLogUnavailable"
    retryable = True


class LogRefused(LogError):
    """The storage of the log, or of a changefeed's state, refuses: wrong credentials, no permission, no such bucket, a read-only disk."""

    code = "TM:ErrLogRefused"


class LogLocked(LogError):
    """Another writer owns the partition or the log."""

    code = "TM:ErrLogLocked"


class FolderHeld(LogLocked):
    """Another writer stands still in the middle of a publication. It may go on, or be ended."""

    code = "TM:ErrLogHeld"
    retryable = True


class LogInUse(LogError):
    """Changefeeds still need the log."""

    code = "TM:ErrLogInUse"


class NotCaptured(LogError):
    """A changefeed wants rows that the capture's rules left out of the log."""

    code = "TM:ErrNotCaptured"


class DataWithoutEvents(TidemillError):
    """Rows came into a table that a changefeed wants without change events: a physical import, a restore."""

    code = "TM:ErrDataWithoutEvents"


class LogFenced(LogError):
    """This writer's epoch is over: another one has taken the partition."""

    code = "TM:ErrLogFenced"


class DiskLow(LogError):
    """The disk of the log is full, or below its low-water mark. Nothing is broken: when there is room again, the same works."""

    code = "TM:ErrDiskLow"
    retryable = True


class StartTsOutOfLog(LogError):
    """A start or target ts that the log does not cover; the message gives both ends."""

    code = "TM:ErrStartTsOutOfLog"


class UpstreamError(TidemillError):
    """PD or TiKV refuses or cannot be understood."""

    code = "TM:ErrUpstream"


class UpstreamUnavailable(UpstreamError):
    """PD or TiKV cannot be reached now."""

    code = "TM:ErrUpstreamUnavailable"
    retryable = True


class VersionTooOld(UpstreamError):
    """PD or TiKV is older than what live capture supports."""

    code = "TM:ErrVersionTooOld"


class ResolvedTsBroken(UpstreamError):
    """A store sent a row after its promise that no row so early would come, and the log is complete beyond it. The message names region,
    table, store and key."""

    code = "TM:ErrResolvedTsBroken"


class ClusterMismatch(UpstreamError):
    """The cluster is not the one that the log or the changefeed belongs to, or of a kind that is not supported."""

    code = "TM:ErrClusterMismatch"


class StartTsBeforeGc(UpstreamError):
    """History from start-ts on may have been collected already."""

    code = "TM:ErrStartTsBeforeGC"


class GcTtlExceeded(UpstreamError):
    """The log has not caught up for longer than garbage collection may be held back for it."""

    code = "TM:ErrGCTTLExceeded"


class SinkError(TidemillError):
    """The sink refuses what it is given."""

    code = "TM:ErrSink"


class SinkUnavailable(SinkError):
    """The sink cannot be reached or did not acknowledge in time."""

    code = "TM:ErrSinkUnavailable"
    retryable = True


class MessageTooLarge(SinkError):
    """A single row is larger than max-message-bytes; the message names table, key, start_ts and commit_ts."""

    code = "TM:ErrMessageTooLarge"


class NoHandleKey(SinkError):
    """A setting asks for nothing but handle key columns of a row whose table has none; the message names table, key and commit_ts."""

    code = "TM:ErrNoHandleKey"


class MessageRefused(SinkError):
    """A broker took a message for too large for its topic, whose limit may have been lowered since it was asked for."""

    code = "TM:ErrMessageRefused"


class TopicError(TidemillError):
    """A topic cannot be read: it is not there, is refused, or lost messages that were not read yet."""

    code = "TM:ErrTopic"


class TopicUnavailable(TopicError):
    """The brokers of a topic cannot be reached now."""

    code = "TM:ErrTopicUnavailable"
    retryable = True


class RegistryError(SinkError):
    """The schema registry refuses what it is asked."""

    code = "TM:ErrSchemaRegistry"


class RegistryUnavailable(SinkUnavailable):
    """The schema registry cannot be reached, is too slow, or what answers is none."""

    code = "TM:ErrSchemaRegistryUnavailable"


class SchemaIncompatible(RegistryError):
    """The schema registry refuses a table's new schema because of those before it; the message names subject and columns."""

    code = "TM:ErrSchemaIncompatible"


class TopicCollision(TidemillError):
    """Two tables would share what only one may have: a topic or subject of a protocol with a schema for each topic."""

    code = "TM:ErrTopicCollision"


class Fenced(TidemillError):
    """This try of a batch is over: another epoch has begun."""

    code = "TM:ErrFenced"


class BatchFailed(TidemillError):
    """A batch did not succeed after its retries."""

    code = "TM:ErrBatchFailed"


class FeedMismatch(TidemillError):
    """A changefeed was started with settings that differ from those it was created with."""

    code = "TM:ErrFeedMismatch"


class SystemFailed(TidemillError):
    """The operating system refuses a file, a folder or a socket."""

    code = "TM:ErrIO"

    @classmethod
    def of(cls, error: OSError) -> SystemFailed:
        """An OSError in one line. Wrong places and missing rights stay until somebody changes something; the rest may pass."""
        failed = cls(f"a file, a disk or a storage failed: {error}")
        failed.retryable = error.errno not in _LASTING_ERRNOS
        return failed


_LASTING_ERRNOS = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG}


class SparkUnavailable(TidemillError):
    """Spark does not start: nobody answers at its master, a port is taken, its settings are refused. Trying again may help."""

    code = "TM:ErrSparkUnavailable"
    retryable = True


class SqlError(TidemillError):
    """The playground refuses a statement: it is not understood, not supported, or breaks a constraint."""

    code = "TM:ErrSql"


class PlaygroundFault(TidemillError):
    """The playground has a fault of its own: what it did is not what a cluster would have done."""

    code = "TM:ErrPlayground"


def made(code: str, message: str, hint: str = "", *, retryable: bool) -> TidemillError:
    """An error of the class that a code belongs to."""
    error = _classes().get(code, TidemillError)(message, hint=hint)
    error.code, error.retryable = code, retryable
    return error


def _classes() -> dict[str, type[TidemillError]]:
    """Error classes by code, those that are made of a message alone."""
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
    """How a process ends for this error. For a person any failure is 1; a supervisor is told whether a restart can help."""
    if not supervised:
        return EXIT_FAILED
    return EXIT_RETRY if error.retryable else EXIT_FATAL
