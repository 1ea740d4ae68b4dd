"""Claim checks: a message that is too large for its topic is stored in a file, and a short message names the file. Pure code; the storage
is `tidemill.sinks.claim_check`.

A file is JSON with key and value in base64, or (claim-check-raw-value, for protocols without a key) only the value's bytes. TiCDC names
files at random. Here a name is a hash of the content, so a batch that is sent again overwrites its files.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import uuid
from collections.abc import Callable

from tidemill.budget import MESSAGE, Budget
from tidemill.errors import MalformedMessage

Keep = Callable[[bytes, bytes], str]
"""Stores a whole message (key, value) durably. Returns its location for the short message. Raises SinkUnavailable."""


def file_name(key: bytes, value: bytes) -> str:
    """Return the name of a message's file: a UUID made from its bytes."""
    digest = hashlib.sha256(len(key).to_bytes(8, "big") + key + value).digest()
    return f"{uuid.UUID(bytes=digest[:16], version=5)}.json"


def pack(key: bytes, value: bytes, *, raw: bool) -> bytes:
    """Return the content of a message's file."""
    if raw:
        return value
    return b'{"key":"%s","value":"%s"}' % (base64.b64encode(key), base64.b64encode(value))


def unpack(data: bytes) -> tuple[bytes, bytes]:
    """Return key and value from a file that is not raw. Raises MalformedMessage."""
    try:
        found = Budget(MESSAGE).json(data)
        key, value = (base64.b64decode(found.get(name) or "", validate=True) for name in ("key", "value"))
    except (ValueError, AttributeError, TypeError, binascii.Error, RecursionError) as error:
        raise MalformedMessage(f"a claim-check file is not a JSON object with key and value in base64: {error}") from None
    return key, value
