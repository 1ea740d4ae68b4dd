"""The storage of claim checks: files with whole messages that are too large for their topic. `tidemill.protocols.common.claim_check`
defines the files' content and names.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, urlsplit

import pyarrow as pa

from tidemill import credentials
from tidemill.changelog.storage import s3
from tidemill.changelog.storage.open import RemoteStorage, Storage, open_storage
from tidemill.errors import ConfigError, LogError, MalformedMessage, SinkUnavailable, redact
from tidemill.protocols.common.claim_check import Keep, file_name, pack
from tidemill.protocols.options import EncodingOptions, LargeMessageOption
from tidemill.secret import Way, reference, secret_of

_S3_SECRETS = {"access-key": "access_key", "secret-access-key": "secret_key", "session-token": "session_token"}
"""Parameters, and pyarrow's names."""
_S3_PARAMETERS = {*("region", "endpoint", "force-path-style"), *_S3_SECRETS, *(reference(name, way) for name in _S3_SECRETS for way in Way)}


def _s3_storage(parts: SplitResult, location: str) -> Storage | None:
    """Return the storage of an s3:// URI with TiCDC's parameters, or None where pyarrow reads the URI itself."""
    given = dict(parse_qsl(parts.query))
    if parts.scheme != "s3" or not given.keys() & _S3_PARAMETERS:
        return None
    own = {pyarrows: credentials.read(secret_of(name, given, "claim-check-storage-uri")) for name, pyarrows in _S3_SECRETS.items()}
    by_path = given.get("force-path-style", "true").lower() != "false"
    filesystem = s3.filesystem(given.get("endpoint", ""), {"region": given.get("region", ""), **own}, by_path=by_path)
    return RemoteStorage(filesystem, f"{parts.netloc}{parts.path}".rstrip("/"), location)


class ClaimCheckStorage:
    """The storage of claim-check-storage-uri: a folder (file://, local://), s3:// with TiCDC's parameters, or others that pyarrow opens.

    Raises ConfigError if it cannot be opened.
    """

    def __init__(self, uri: str, *, raw: bool = False) -> None:
        self.raw = raw
        uri = uri if "://" in uri else f"file://{Path(uri).absolute()}"
        parts = urlsplit(uri)
        scheme = "file" if parts.scheme == "local" else parts.scheme
        self.location = f"{scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        try:
            self._storage = _s3_storage(parts, self.location) or open_storage(f"{scheme}://{uri.partition('://')[2]}")
        except (LogError, pa.ArrowException, ValueError) as error:
            text = error.message if isinstance(error, LogError) else str(error)
            raise ConfigError(f"claim-check-storage-uri {redact(self.location)}: {text}") from None

    def keep(self, key: bytes, value: bytes) -> str:
        """Write a message's file durably, and return its location as messages name it. Raises SinkUnavailable."""
        name = file_name(key, value)
        try:
            self._storage.replace(name, pack(key, value, raw=self.raw))
        except (LogError, OSError, pa.ArrowException) as error:
            raise SinkUnavailable(f"a claim-check file cannot be written to {redact(self.location)}: {error}") from error
        return f"{self.location}/{name}"

    def fetch(self, location: str) -> bytes:
        """Return the file that a message names; only the location's last part counts. Raises MalformedMessage, SinkUnavailable."""
        name = location.rpartition("/")[2]
        if not name or name in (".", ".."):
            raise MalformedMessage(f"a message names no claim-check file: {location[:200]!r}")
        try:
            data = self._storage.read(name)
        except (LogError, OSError, pa.ArrowException) as error:
            raise SinkUnavailable(f"claim-check file {name} cannot be read from {redact(self.location)}: {error}") from error
        if data is None:
            raise MalformedMessage(
                f"there is no claim-check file {name} in {redact(self.location)}", hint="it was removed, or another storage was meant"
            )
        return data


def keeper(options: EncodingOptions) -> Keep | None:
    """Return the function that stores a changefeed's large messages, or None if claim checks are not configured. Raises ConfigError."""
    large = options.large_message
    if large.option is not LargeMessageOption.CLAIM_CHECK:
        return None
    if not large.claim_check_storage_uri:
        raise ConfigError("large-message-handle-option is claim-check, but claim-check-storage-uri is empty")
    return ClaimCheckStorage(large.claim_check_storage_uri, raw=large.claim_check_raw_value).keep
