"""Claim checks: whole messages kept as files in a storage, because they are larger than the topic allows. IO happens here.

A file is JSON with key and value in base64, or (claim-check-raw-value, for protocols without a key) the value's bytes alone. TiCDC names
files by chance; here a name comes from the content, so a batch that is sent again writes the same files and leaves none behind.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import uuid
from urllib.parse import urlsplit

import pyarrow as pa

from tidemill.changelog.storage import open_storage
from tidemill.errors import ConfigError, LogError, MalformedMessage, SinkUnavailable, redact
from tidemill.protocols.options import EncodingOptions, LargeMessageOption


def file_name(key: bytes, value: bytes) -> str:
    """The name of a message's file: a UUID made of its bytes."""
    digest = hashlib.sha256(len(key).to_bytes(8, "big") + key + value).digest()
    return f"{uuid.UUID(bytes=digest[:16], version=5)}.json"


def pack(key: bytes, value: bytes, *, raw: bool) -> bytes:
    """What a file holds."""
    if raw:
        return value
    return b'{"key":"%s","value":"%s"}' % (base64.b64encode(key), base64.b64encode(value))


def unpack(data: bytes) -> tuple[bytes, bytes]:
    """Key and value of a file that is not raw. Raises MalformedMessage."""
    try:
        found = json.loads(data)
        key, value = (base64.b64decode(found.get(name) or "", validate=True) for name in ("key", "value"))
    except (ValueError, AttributeError, TypeError, binascii.Error, RecursionError) as error:
        raise MalformedMessage(f"a claim-check file is no JSON object with key and value in base64: {error}") from None
    return key, value


class ClaimCheckStorage:
    """The storage of claim-check-storage-uri: file://, s3:// and what else pyarrow opens. Raises ConfigError where it cannot be opened."""

    def __init__(self, uri: str, *, raw: bool = False) -> None:
        self.raw = raw
        parts = urlsplit(uri)
        host = parts.netloc.rpartition("@")[2]
        self.location = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
        try:
            self._storage = open_storage(uri)
        except LogError as error:
            raise ConfigError(f"claim-check-storage-uri: {error.message}") from None

    def keep(self, key: bytes, value: bytes) -> str:
        """Write a message's file; returns where it is, as messages say it. It is durable then. Raises SinkUnavailable."""
        name = file_name(key, value)
        try:
            self._storage.replace(name, pack(key, value, raw=self.raw))
        except (OSError, pa.ArrowException) as error:
            raise SinkUnavailable(f"a claim-check file cannot be written to {redact(self.location)}: {error}") from error
        return f"{self.location}/{name}"

    def fetch(self, location: str) -> bytes:
        """The bytes of a file by what a message says of it: its last part, looked up here. Raises MalformedMessage, SinkUnavailable."""
        name = location.rpartition("/")[2]
        if not name or name in (".", ".."):
            raise MalformedMessage(f"a message names no claim-check file: {location[:200]!r}")
        try:
            data = self._storage.read(name)
        except (OSError, pa.ArrowException) as error:
            raise SinkUnavailable(f"claim-check file {name} cannot be read from {redact(self.location)}: {error}") from error
        if data is None:
            raise MalformedMessage(
                f"there is no claim-check file {name} in {redact(self.location)}", hint="it was removed, or another storage was meant"
            )
        return data


def claim_check_storage(options: EncodingOptions) -> ClaimCheckStorage | None:
    """The storage that a changefeed's large messages go to; None where they do not. Raises ConfigError."""
    large = options.large_message
    if large.option is not LargeMessageOption.CLAIM_CHECK:
        return None
    if not large.claim_check_storage_uri:
        raise ConfigError("large-message-handle-option is claim-check, but claim-check-storage-uri is empty")
    return ClaimCheckStorage(large.claim_check_storage_uri, raw=large.claim_check_raw_value)
