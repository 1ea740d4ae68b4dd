"""The address of a schema registry: `http[s]://[USER:PASSWORD@]HOST[:PORT][/PATH][?PARAMETERS]`, user and password percent-encoded.

ca, cert, key            PEM files: the authority that signed the registry's certificate, the client's certificate and its key
password-file, -env, -command, key-password, key-password-file, …    the user's password and that of key, see `secret`
insecure-skip-verify     true: accept any certificate of the registry
timeout                  of one answer, default 10s
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from tidemill.config import values as v
from tidemill.config.faults import unknown_parameter
from tidemill.errors import ConfigError, redact
from tidemill.secret import NONE, Secret, Way, command_text, reference, secret_of

TIMEOUT_MS = 10_000
_EXPECTED = "the address has to be http://HOST:PORT or https://HOST:PORT"
_WITH_USER = "With a user: https://USER:PASSWORD@HOST:PORT"
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9a-f:.]+")


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """A checked address. `url` has no user and no parameters, so it may be shown."""

    url: str
    user: str = field(default="", repr=False)
    password: Secret = NONE
    ca: str = ""
    cert: str = ""
    key: str = ""
    insecure_skip_verify: bool = False
    timeout_ms: int = TIMEOUT_MS
    key_password: Secret = NONE

    def __str__(self) -> str:
        return self.url

    @property
    def is_local(self) -> bool:
        """Whether the registry is on this machine. It is then never reached through a proxy."""
        host = urlsplit(self.url).hostname or ""
        return host in ("localhost", "::1") or host.startswith("127.")


def with_registry(sink_uri: str, address: str | None) -> str:
    """Replace the schema registry in a sink URI. None leaves it as it is."""
    return v.with_parameter(sink_uri, "schema-registry", address)


def _file(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("expected a file")
    return text


_REFERENCES = {Way.FILE: _file, Way.ENV: v.text, Way.COMMAND: command_text}
_PARAMETERS: dict[str, Callable[[str], Any]] = {
    "ca": _file,
    "cert": _file,
    "key": _file,
    "insecure-skip-verify": v.parse_bool,
    "timeout": v.parse_duration,
    "key-password": v.text,
    **{reference(name, way): parse for name in ("password", "key-password") for way, parse in _REFERENCES.items()},
}


def parse_address(text: str) -> RegistryAddress:
    """Check an address. Raises ConfigError, whose text shows no possible secret."""
    if "://" not in text:  # check before splitting: `u:p@h` would have the scheme `u`
        raise ConfigError(f"schema registry: {redact(f'://{text.strip()}')[3:]!r}: {_EXPECTED}", hint=_WITH_USER)
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError as error:
        # A password with an unencoded `/` or `#` would be parsed as the port, and the error would show it.
        told = str(error) if "@" not in text else "user and password have to be percent-encoded"
        raise ConfigError(f"schema registry: the address cannot be read: {told}") from None
    if parts.scheme not in ("http", "https") or not _HOST.fullmatch(parts.hostname or ""):
        raise ConfigError(f"schema registry: {redact(text.strip())!r}: {_EXPECTED}", hint=_WITH_USER)
    if parts.fragment:
        raise ConfigError("schema registry: a `#` in the address has to be written %23")
    name = parts.hostname or ""
    host = f"[{name}]" if ":" in name else name
    url = f"{parts.scheme}://{host}{f':{port}' if port is not None else ''}{parts.path.rstrip('/')}"
    given = _parameters(parts)
    _check_tls(parts.scheme, given)
    return RegistryAddress(
        url=url,
        user=unquote(parts.username or ""),
        password=secret_of("password", given, "schema registry", unquote(parts.password or "")),
        ca=given.get("ca", ""),
        cert=given.get("cert", ""),
        key=given.get("key", ""),
        insecure_skip_verify=given.get("insecure-skip-verify", False),
        timeout_ms=given.get("timeout", TIMEOUT_MS),
        key_password=secret_of("key-password", given, "schema registry"),
    )


def _parameters(parts: SplitResult) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _PARAMETERS:
            raise unknown_parameter("schema registry", name, _PARAMETERS)
        if name in given:
            raise ConfigError(f"schema registry: {name} is given twice")
        try:
            given[name] = _PARAMETERS[name](value)
        except ValueError as error:
            raise ConfigError(f"schema registry: {name}: {error}") from None
    return given


def _check_tls(scheme: str, given: dict[str, Any]) -> None:
    tls = [name for name in ("ca", "cert", "key", "insecure-skip-verify") if given.get(name)]
    if tls and scheme == "http":
        raise ConfigError(f"schema registry: {tls[0]} needs an address that begins with https://")
    if bool(given.get("cert")) != bool(given.get("key")):
        raise ConfigError("schema registry: cert and key belong together")
    if not given.get("key") and any(name.startswith("key-password") for name in given):
        raise ConfigError("schema registry: key-password belongs to key")
