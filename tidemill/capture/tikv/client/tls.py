"""TLS to PD and TiKV: the files, and the settings of the two transports made from them.

The same three files serve PD and TiKV, as in TiDB's components. They are read again for each connection, so a rotated certificate takes
effect with the next one. Channels are replaced when a file has changed.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from tidemill import credentials
from tidemill.errors import ConfigError
from tidemill.extras import extra

HTTP2 = "h2"
Stamp = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Security:
    """`ca`: the trusted CA (None: the system's). `cert` and `key`: the client certificate, for clusters that verify clients."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ConfigError("--cert and --key belong together", hint="Give both for a cluster that verifies its clients, or neither.")

    def check(self) -> None:
        """Raise ConfigError that names the unusable file, before anything is connected."""
        self.context()

    def credentials(self) -> Any:
        """Return the credentials for gRPC. Raises ConfigError."""
        return grpc.ssl_channel_credentials(_read(self.ca), self._plain_key(), _read(self.cert))

    def _plain_key(self) -> bytes | None:
        """The key as gRPC takes it: it asks for no password."""
        data = _read(self.key)
        if data is None or b"ENCRYPTED" not in data:
            return data
        with extra("binlog"):
            from cryptography.exceptions import UnsupportedAlgorithm
            from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
        password = credentials.own_key_password().encode() or None
        try:
            key = load_pem_private_key(data, password)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise ConfigError(f"--key {self.key} is encrypted, and cannot be read", hint=credentials.OF_KEYS_HINT) from None
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def context(self) -> ssl.SSLContext:
        """Return the SSL context for asyncio (HTTP/2). Raises ConfigError."""
        for path in (self.ca, self.cert, self.key):
            _read(path)
        try:
            context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=self.ca)
        except (ssl.SSLError, OSError) as e:
            raise ConfigError(f"--ca {self.ca} holds no certificate in PEM form: {e}") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols([HTTP2])
        if self.cert is not None and self.key is not None:
            try:
                context.load_cert_chain(self.cert, self.key, credentials.own_key_password)
            except (ssl.SSLError, OSError) as e:
                raise ConfigError(
                    f"--cert {self.cert} and --key {self.key} are not a pair in PEM form: {e}",
                    hint=credentials.OF_KEYS_HINT if b"ENCRYPTED" in (_read(self.key) or b"") else "",
                ) from None
        return context

    def stamp(self) -> Stamp:
        """Return a value that changes when a file changes."""
        found = []
        for path in (self.ca, self.cert, self.key):
            if path is not None:
                try:
                    status = path.stat()
                except OSError:
                    continue  # the file is being replaced: the next check sees it
                found.append((status.st_mtime_ns, status.st_size))
        return tuple(found)


def security_of(addresses: Sequence[str], ca: Path | None, cert: Path | None, key: Path | None) -> Security | None:
    """Decide on TLS: https:// or a file asks for it, http:// rules it out. Raises ConfigError if they contradict each other."""
    schemes = {a.strip().partition("://")[0].lower() for a in addresses if "://" in a}
    unknown = schemes - {"http", "https"}
    if unknown:
        raise ConfigError(f"a PD address begins with {sorted(unknown)[0]}://", hint="PD is reached by http://, https:// or HOST:PORT.")
    if len(schemes) > 1:
        raise ConfigError("some PD addresses are https://, others http://", hint="A cluster has TLS everywhere or nowhere.")
    given = any(path is not None for path in (ca, cert, key))
    if "http" in schemes and given:
        raise ConfigError("--ca, --cert and --key are for TLS, but PD is given as http://", hint="Write https://.")
    if not given and "https" not in schemes:
        return None
    security = Security(ca, cert, key)
    security.check()
    return security


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as e:
        raise ConfigError(f"{path} cannot be read: {e.strerror or e}") from None
