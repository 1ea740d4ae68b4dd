"""Who may do what: bearer tokens and names of client certificates, from a file, a variable or what a command prints.

A line is `TOKEN`, `NAME TOKEN`, `NAME TOKEN ROLE`, or `cn=COMMON_NAME ROLE`. Without a role it is admin. A line that begins with # is a
comment. The file is read again when it changes, and the command runs again each minute in which there are requests, so tokens can be
replaced while the server runs. A client sends `Authorization: Bearer
TOKEN`, or Basic with NAME as the user and TOKEN as the password, as `cdc cli --user --password` does; or it shows a certificate.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import hmac
import logging
import os
import stat
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemill import credentials
from tidemill.errors import ConfigError, TidemillError
from tidemill.process import threads
from tidemill.secret import Secret, Way

SHORTEST = 16
"""Characters of a token: a shorter one can be guessed."""
COMMAND_EVERY_S = 60.0
"""How often a command is asked for the tokens."""

_log = logging.getLogger(__name__)


_CERTIFICATE = "cn="


class Role(enum.IntEnum):
    """What somebody may do. Each may do what those before it may."""

    READ = 1
    """See what is not for everybody: the log, what the server keeps."""
    OPERATE = 2
    """Pause and resume."""
    ADMIN = 3
    """All else."""


_ROLES = {role.name.lower(): role for role in Role}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request, as the log names them."""

    name: str
    role: Role


class Forbidden(TidemillError):
    """The sender is known, and its role may not do this."""

    code = "CDC:ErrUnauthorized"


class Unauthorized(TidemillError):
    """The request has no token, or one that is not known."""

    code = "CDC:ErrUnauthorized"


@dataclass(slots=True, eq=False)
class Tokens:
    """The tokens of a file, or of what `reference` refers to. Raises ConfigError, when it is made, for what cannot be used."""

    path: Path | None = None
    reference: Secret = field(default_factory=lambda: Secret("auth"))
    _read_at: tuple[int, int, int] = (0, 0, 0)
    _due: float = 0.0
    _known: Mapping[bytes, Caller] = field(default_factory=dict, repr=False)
    _certificates: Mapping[str, Role] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._load()

    @property
    def names_certificates(self) -> bool:
        """Whether certificates of clients have roles."""
        return bool(self._certificates)

    def check(self, authorization: str | None, common_names: Iterable[str] = ()) -> Caller:
        """Return who sent this header, over a connection with a certificate of these names. Raises Unauthorized."""
        self._load_again()
        if not authorization:
            named = [Caller(f"{_CERTIFICATE}{name}", self._certificates[name]) for name in common_names if name in self._certificates]
            if named:
                return max(named, key=lambda caller: caller.role)
        user, token = _sent(authorization)
        digest = _digest(token)
        for known, caller in self._known.items():
            if hmac.compare_digest(known, digest) and (not user or not caller.name or user == caller.name):
                return Caller(caller.name or user or "a token", caller.role)
        raise Unauthorized("the token is not known", hint="Send one of those in the server's --auth-file.")

    def _load_again(self) -> None:
        if self.reference.way is Way.COMMAND:
            if time.monotonic() > self._due:
                self._due = time.monotonic() + COMMAND_EVERY_S
                threads.begin(self._try_to_load)  # the loop goes on meanwhile, and the old tokens count
        elif self.path is not None:
            self._try_to_load()

    def _try_to_load(self) -> None:
        try:
            if self.path is None or _version(self.path) != self._read_at:
                self._load()
        except (OSError, ConfigError) as error:
            _log.warning("the tokens cannot be read again, the old ones count: %s", error)

    def _load(self) -> None:
        if self.path is None:
            self._due = time.monotonic() + COMMAND_EVERY_S
            self._known, self._certificates = _callers(credentials.read_setting(self.reference), f"--{self.reference}")
            return
        try:
            version, text = _version(self.path), self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--auth-file {self.path}: {error}") from None
        if stat.S_IMODE(self.path.stat().st_mode) & 0o077:
            _log.warning("others may read the token file %s: chmod 600 it", self.path)
        self._known, self._certificates = _callers(text, f"--auth-file {self.path}")
        self._read_at = version


def _version(path: Path) -> tuple[int, int, int]:
    found = os.stat(path)  # noqa: PTH116
    return found.st_mtime_ns, found.st_size, found.st_ino


def _callers(text: str, source: str) -> tuple[dict[bytes, Caller], dict[str, Role]]:
    """Return who has which token (by its digest), and the roles of certificates' names. Raises ConfigError that shows no token."""
    tokens: dict[bytes, Caller] = {}
    certificates: dict[str, Role] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"{source}, line {number}"
        if words[0].startswith(_CERTIFICATE) and len(words) == 2:
            certificates[words[0].removeprefix(_CERTIFICATE)] = _role(words[1], where)
            continue
        if len(words) > 3:
            raise ConfigError(f"{where}: expected TOKEN or NAME TOKEN, with a role or without, or {_CERTIFICATE}COMMON_NAME ROLE")
        role = _role(words.pop(), where) if len(words) == 3 else Role.ADMIN
        if len(words[-1]) < SHORTEST:
            raise ConfigError(f"{where}: a token has at least {SHORTEST} characters")
        tokens[_digest(words[-1])] = Caller(words[0] if len(words) == 2 else "", role)
    if not tokens and not certificates:
        raise ConfigError(f"{source} has no token")
    return tokens, certificates


def _role(word: str, where: str) -> Role:
    """Raises ConfigError, which does not show the word: it may be a token."""
    if word not in _ROLES:
        raise ConfigError(f"{where}: expected TOKEN or NAME TOKEN, or a role as the last word", hint=f"There are {', '.join(_ROLES)}.")
    return _ROLES[word]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _sent(authorization: str | None) -> tuple[str, str]:
    """Return the user (empty: none) and the token of a header. Raises Unauthorized."""
    kind, _, rest = (authorization or "").strip().partition(" ")
    if kind.lower() == "bearer" and rest.strip():
        return "", rest.strip()
    if kind.lower() == "basic":
        try:
            user, mark, password = base64.b64decode(rest.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise Unauthorized("the Authorization header is malformed") from None
        if mark:
            return user, password
    raise Unauthorized("this request needs a token", hint="Send it as a bearer token: --token-file, or --user and --password.")
