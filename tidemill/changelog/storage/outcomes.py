"""Classifies storage failures: *not now*, *no room*, *refused*, *gone* or *broken*. Pure: it looks at errors, not at storage.

An error of the operating system is classified by its number. pyarrow's file systems of object stores give none, so the text is searched for
AWS's name of the error. Any other error counts as one that may pass: it does not show that something is broken.
"""

from __future__ import annotations

import enum
import errno
import re
from types import TracebackType

import pyarrow as pa

from tidemill.errors import DiskLow, LogCorrupt, LogError, LogRefused, LogUnavailable, SegmentGone, redact


class Outcome(enum.Enum):
    """The outcome of a storage request that failed."""

    AWAY = "not now: it may be answered later"
    FULL = "no room"
    REFUSED = "refused: it will be refused again until somebody changes something"
    GONE = "there is no such file"
    BROKEN = "what is stored makes no sense"


FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
REFUSED = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.ENOTSUP}
)
"""Other numbers (EIO, ESTALE, ETIMEDOUT, ECONNRESET, EHOSTUNREACH, EAGAIN, ENOLCK, …) may pass."""

_PASSING = frozenset(
    {
        *("requesttimeout", "requesttimeoutexception", "requesttimetooskewed", "requestexpired", "expiredtoken", "expiredtokenexception"),
        *("slowdown", "throttling", "throttlingexception", "toomanyrequests", "toomanyrequestsexception", "requestlimitexceeded"),
        *("internalerror", "internalfailure", "serviceunavailable", "networkconnection", "operationaborted", "bandwidthlimitexceeded"),
    }
)
"""Names of AWS's errors, whatever their HTTP status: an expired token, for example, was valid before."""
_PASSING_STATUS = frozenset({408, 409, 425, 429})
_REFUSED_NAMES = frozenset(
    {
        *("accessdenied", "accountproblem", "allaccessdisabled", "invalidaccesskeyid", "invalidclienttokenid", "signaturedoesnotmatch"),
        *("unrecognizedclient", "missingauthenticationtoken", "invalidsignature", "optinrequired", "nosuchbucket", "invalidbucketname"),
        *("validation", "invalidparametervalue", "invalidparametercombination", "invalidqueryparameter", "missingparameter"),
        *("authorizationheadermalformed", "permanentredirect", "notimplemented", "methodnotallowed", "invalidtoken"),
    }
)
_AWS = re.compile(r"AWS Error (\w+)(?: \(HTTP status (\d+)\))? during")
_AWS_UNPARSED = re.compile(r"Unable to parse ExceptionName: (\w+)")
_NETWORK = re.compile(
    r"connect|network|timed? ?out|unavailable|reset by peer|broken pipe|curl|google::cloud|HTTP/1|namenode|datanode", re.IGNORECASE
)
"""Words of network errors in pyarrow's other file systems. Arrow's readers report a file's content without a number too."""


def of_aws(name: str, status: int = 0) -> Outcome:
    """Classify an error of AWS, or of a store that speaks S3. `name`: SlowDown or SLOW_DOWN. `status`: of HTTP, 0 if unknown."""
    plain = name.replace("_", "").lower()
    if plain in _PASSING or status in _PASSING_STATUS or status >= 500:
        return Outcome.AWAY
    if plain in ("nosuchkey", "resourcenotfound"):
        return Outcome.GONE
    if plain in _REFUSED_NAMES or 300 <= status < 500:
        return Outcome.REFUSED
    return Outcome.AWAY


def outcome_of(error: OSError, *, content: bool = False) -> Outcome:
    """Classify an error. `content`: a file's content was being read, so an error of Arrow is about that."""
    number = error.errno
    if number == errno.ENOENT or isinstance(error, FileNotFoundError):
        return Outcome.GONE
    if number is not None:
        return Outcome.FULL if number in FULL else Outcome.REFUSED if number in REFUSED else Outcome.AWAY
    text = str(error)
    aws = _AWS.search(text)
    if aws is not None:
        unparsed = _AWS_UNPARSED.search(text)
        return of_aws(unparsed[1] if unparsed else aws[1], int(aws[2] or 0))
    return Outcome.BROKEN if content and not _NETWORK.search(text) else Outcome.AWAY


def error_of(outcome: Outcome, path: str, why: object) -> LogError:
    """Return the error for a file or folder by its path or URL."""
    where, text = redact(path), redact(" ".join(str(why).split()))
    match outcome:
        case Outcome.AWAY:
            return LogUnavailable(f"{where} cannot be reached now: {text}", hint=_AWAY_HINT)
        case Outcome.FULL:
            return DiskLow(f"no room for {where}: {text}; nothing was published", hint="Free disk space.")
        case Outcome.REFUSED:
            return LogRefused(f"{where}: the storage refuses: {text}", hint=_REFUSED_HINT if "://" in path else _REFUSED_HERE_HINT)
        case Outcome.GONE:
            return gone(path)
        case Outcome.BROKEN:
            return broken(path, why)


_AWAY_HINT = "The stored data is not in doubt. When the storage (disk, mount, network, endpoint) answers again, work goes on where it was."
_REFUSED_HINT = (
    "Check the address (bucket, endpoint, region, path), the credentials and their permissions: list, read, write and delete below "
    "this place. Then start again: it goes on where it was."
)
_REFUSED_HERE_HINT = (
    "Check the path, who owns the folders on it, and that this user may list, read, write and delete below it. Then start again: it goes "
    "on where it was."
)


class storage_errors:
    """Convert errors of the operating system or of pyarrow's file systems, raised in the block, to Tidemill's.

    `content`: a file is being read, so what Arrow finds in it counts too. `writing`: a missing file or folder was there a moment ago, or a
    request that NFS sent twice was done already; a repetition tells. Else FileNotFoundError passes through: the caller knows whether the
    file may be missing.

    A class, because a batch enters some eighty of these: a generator takes three times as long.
    """

    __slots__ = ("_content", "_path", "_writing")

    def __init__(self, path: str, *, content: bool = False, writing: bool = False) -> None:
        self._path, self._content, self._writing = path, content, writing

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, OSError | pa.ArrowException):
            self._convert(error)

    def _convert(self, error: OSError | pa.ArrowException) -> None:
        """Raise Tidemill's error for this one, if it is to be converted."""
        if isinstance(error, FileNotFoundError):
            if self._writing:
                raise error_of(Outcome.AWAY, self._path, error.strerror or error) from error
            if self._content:
                raise gone(self._path) from None
        elif isinstance(error, OSError):
            raise error_of(outcome_of(error, content=self._content), self._path, error.strerror or error) from error
        elif self._content:
            raise broken(self._path, error) from None


def gone(path: str) -> SegmentGone:
    """Return the error for a missing file."""
    return SegmentGone(
        f"{redact(path)} is not there (any more)",
        hint="Compaction and retention remove files; a new listing of the log finds what replaced it. If this repeats, the file was "
        "removed by hand: restore it, or start a new log.",
    )


def broken(path: str, why: object) -> LogCorrupt:
    """Return the error for a file that cannot be read."""
    return LogCorrupt(
        f"{redact(path)} is not a whole Arrow file: {redact(str(why))}",
        hint="`tidemill log verify` lists all damage. Restore the file from a copy; without one, start a new log at a ts past the "
        "file's interval.",
    )
