"""Where the server is, and who asks: TiCDC's flags, its environment variables, its file of credentials."""

from __future__ import annotations

import getpass
import os
import ssl
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemill import credentials
from tidemill.cli.cdc.client import Client
from tidemill.errors import ConfigError
from tidemill.secret import ABOUT, Secret, Way, reference, secret_of

DEFAULT_SERVER = "http://127.0.0.1:8300"
ADDRESS_VARIABLE = "TIDEMILL_SERVER"
TOKEN_VARIABLE = "TIDEMILL_TOKEN"
CREDENTIALS = Path(".ticdc/credentials")
"""Below the user's home: TiCDC's file, with ticdc_user, ticdc_password, ca_path, cert_path, key_path."""

ServerOption = Annotated[str | None, typer.Option("--server", help=f"The server's address. Default: {DEFAULT_SERVER}.")]
PdOption = Annotated[str | None, typer.Option("--pd", help="Deprecated: use --server. PD's address for `tso query`.")]
CaOption = Annotated[str | None, typer.Option("--ca", help="PEM file with the server's CA.")]
CertOption = Annotated[str | None, typer.Option("--cert", help="PEM file with a client certificate.")]
KeyOption = Annotated[str | None, typer.Option("--key", help="PEM file with the key of --cert.")]
UserOption = Annotated[str | None, typer.Option("--user", help="User name. Also TICDC_USER.")]
PasswordOption = Annotated[str | None, typer.Option("--password", help="Password, or a token of the server. Also TICDC_PASSWORD.")]
LogLevelOption = Annotated[str | None, typer.Option("--log-level", help="Taken, and without effect: errors are always printed.")]

_SECRETS = {
    "password": "the password",
    "token": f"a token of the server (also {TOKEN_VARIABLE})",
    "key-password": "the password of --key",
}


_REFERENCES = {reference(name, way).replace("-", "_"): (name, way) for name in _SECRETS for way in Way}
"""The flags that say where a secret is, by the name of the parameter."""


def _flag(name: str, way: Way) -> Any:
    about = f"{ABOUT[way]} {_SECRETS[name]}{'; it is started without a shell' if way is Way.COMMAND else ''}."
    return Annotated[str | None, typer.Option(f"--{reference(name, way)}", help=about[0].upper() + about[1:])]


OPTIONS: dict[str, Any] = {
    "server": ServerOption,
    "pd": PdOption,
    "ca": CaOption,
    "cert": CertOption,
    "key": KeyOption,
    "user": UserOption,
    "password": PasswordOption,
    **{parameter: _flag(*secret) for parameter, secret in _REFERENCES.items()},
    "log_level": LogLevelOption,
}
"""The flags that each command has, by the name of the parameter."""


@dataclass(frozen=True, slots=True)
class Connection:
    """What was given."""

    server: str | None = None
    pd: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    log_level: str | None = None
    references: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Where secrets are, by the setting: `token-file`."""

    @classmethod
    def of(cls, flags: Mapping[str, Any]) -> Connection:
        """Return what flags give. `flags`: by the names of OPTIONS, None for one that is not given."""
        references = {reference(*secret): flags[parameter] for parameter, secret in _REFERENCES.items() if flags[parameter]}
        return cls(**{name: value for name, value in flags.items() if name not in _REFERENCES}, references=references)

    def over(self, below: Connection | None) -> Connection:
        """Return these flags, and where one is not given that of a group before the command."""
        if below is None:
            return self
        own = {one.name: getattr(self, one.name) or getattr(below, one.name) for one in fields(self) if one.name != "references"}
        return Connection(**own, references={**below.references, **self.references})

    def client(self, flag: str = "--server", *, asks: bool = True) -> Client:
        """Return a client of the server. `flag`: what names it in the command. `asks`: a password that is not given is asked for at the
        terminal. Raises ConfigError."""
        certificates = self._certificates()
        address = self._address(secure=any(certificates))
        return Client(address, _context(address, *certificates, self._secret("key-password")), self._authorization(asks=asks), flag=flag)

    def _secret(self, name: str, value: str | None = None) -> Secret:
        """Return a secret of the flags. Raises ConfigError."""
        return secret_of(name, self.references, "the command line", value)

    def _address(self, *, secure: bool) -> str:
        found = self.server or os.environ.get(ADDRESS_VARIABLE) or DEFAULT_SERVER
        if "://" not in found:
            found = f"{'https' if secure else 'http'}://{found}"
        if not found.startswith(("http://", "https://")):
            raise ConfigError(f"--server {found}: expected http://HOST:PORT or https://HOST:PORT")
        return found.rstrip("/")

    def _certificates(self) -> tuple[str, str, str]:
        given = (self.ca or "", self.cert or "", self.key or "")
        if any(given):
            return given
        found = [os.environ.get(f"TICDC_{name}_PATH", "") for name in ("CA", "CERT", "KEY")]
        if not any(found):
            kept = _kept()
            found = [kept.get(f"{name}_path", "") for name in ("ca", "cert", "key")]
        return found[0], found[1], found[2]

    def _authorization(self, *, asks: bool) -> tuple[str, str] | str | None:
        """Return a token, or user and password, or None."""
        if token := self._secret("token"):
            words = credentials.read_setting(token).split()
            if not words:
                raise ConfigError(f"--{token} is empty")
            return words[-1]
        if text := os.environ.get(TOKEN_VARIABLE):
            return text
        user: str | None = self.user
        password: str | None = credentials.read_setting(self._secret("password", self.password))
        if not user:
            user, password = os.environ.get("TICDC_USER"), password or os.environ.get("TICDC_PASSWORD")
        if not user:
            kept = _kept()
            user, password = kept.get("ticdc_user"), password or kept.get("ticdc_password")
        if not user:
            if password:
                raise ConfigError("a password is given without a user", hint="Give --user too.")
            return None
        if asks and not password and sys.stdin.isatty():
            password = getpass.getpass("Enter password: ")
        return user, password or ""


def _kept() -> dict[str, str]:
    """Return what TiCDC's file of credentials has; nothing if there is none. Raises ConfigError."""
    path = Path.home() / CREDENTIALS
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from None
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _context(address: str, ca: str, cert: str, key: str, key_password: Secret) -> ssl.SSLContext | None:
    if not address.startswith("https://"):
        if ca or cert or key:
            raise ConfigError(f"--server {address} is plain HTTP, but certificates are given", hint="Write https://.")
        return None
    if bool(cert) != bool(key):
        raise ConfigError("--cert and --key go together", hint="Give both, or neither.")
    try:
        context = ssl.create_default_context(cafile=ca or None)
        if cert:
            context.load_cert_chain(cert, key, credentials.key_password(key_password))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--ca {ca or 'none'}, --cert {cert or 'none'}, --key {key or 'none'}: {error}") from None
    return context
