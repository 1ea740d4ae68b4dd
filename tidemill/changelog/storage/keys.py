"""Keys of a bucket that an address refers to: `s3://BUCKET/FOLDER?access-key-file=…&secret-access-key-env=…`, see `tidemill.secret`.

The address goes to other processes and machines as it is; each of them reads the keys where it opens the storage.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from tidemill import credentials
from tidemill.errors import ConfigError, LogError, redact
from tidemill.secret import Way, reference, secret_of

_KEYS = ("access-key", "secret-access-key")
_NAMES = frozenset(_KEYS) | {reference(name, way) for name in _KEYS for way in Way}


def with_keys(url: str) -> str:
    """Return an address with the keys themselves, as pyarrow takes them. Raises LogError."""
    parts = urlsplit(url)
    given = parse_qsl(parts.query, keep_blank_values=True)
    named = dict(one for one in given if one[0] in _NAMES)
    if parts.scheme != "s3" or not named:
        return url
    try:
        secrets = [secret_of(name, named, "the address") for name in _KEYS]
        if "@" in parts.netloc or not all(secrets):
            raise ConfigError("access-key and secret-access-key, or where they are, belong together, without keys before the bucket")
        keys = ":".join(quote(credentials.read_setting(one), safe="") for one in secrets)
    except ConfigError as error:
        raise LogError(f"{redact(url)} cannot be opened: {error.message}", hint=error.hint) from None
    query = urlencode([one for one in given if one[0] not in _NAMES])
    return urlunsplit(parts._replace(netloc=f"{keys}@{parts.netloc}", query=query))
