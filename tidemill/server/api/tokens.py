"""Who may change something: bearer tokens from a file.

The file has a token a line, or `NAME TOKEN`. A line that begins with # is a comment. It is read again when it changes, so tokens can be
replaced while the server runs. A client sends `Authorization: Bearer TOKEN`, or Basic with NAME as the user and TOKEN as the password, as
`cdc cli --user --password` does.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemill.errors import ConfigError, TidemillError

SHORTEST = 16
"""Characters of a token: a shorter one can be guessed."""

_log = logging.getLogger(__name__)


class Unauthorized(TidemillError):
    """The request has no token, or one that is not known."""

    code = "CDC:ErrUnauthorized"


@dataclass(slots=True, eq=False)
class Tokens:
    """The tokens of a file. Raises ConfigError, when it is made, for a file that cannot be used."""

    path: Path
    _read_at: tuple[int, int, int] = (0, 0, 0)
    _known: Mapping[bytes, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._load()

    def check(self, authorization: str | None) -> str:
        """Return the name of whoever sent this header. Raises Unauthorized."""
        self._load_again()
        user, token = _sent(authorization)
        digest = _digest(token)
        for known, name in self._known.items():
            if hmac.compare_digest(known, digest) and (not user or not name or user == name):
                return name or user or "a token"
        raise Unauthorized("the token is not known", hint="Send one of those in the server's --auth-file.")

    def _load_again(self) -> None:
        try:
            if _version(self.path) != self._read_at:
                self._load()
        except (OSError, ConfigError) as error:
            _log.warning("the token file %s cannot be read again, the old tokens count: %s", self.path, error)

    def _load(self) -> None:
        try:
            version, text = _version(self.path), self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--auth-file {self.path}: {error}") from None
        if stat.S_IMODE(self.path.stat().st_mode) & 0o077:
            _log.warning("others may read the token file %s: chmod 600 it", self.path)
        self._known, self._read_at = dict(_lines(text, self.path)), version


def _version(path: Path) -> tuple[int, int, int]:
    found = os.stat(path)  # noqa: PTH116
    return found.st_mtime_ns, found.st_size, found.st_ino


def _lines(text: str, path: Path) -> list[tuple[bytes, str]]:
    """Return (digest, name) of each line. Raises ConfigError that shows no token."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) > 2:
            raise ConfigError(f"--auth-file {path}, line {number}: expected TOKEN or NAME TOKEN")
        if len(words[-1]) < SHORTEST:
            raise ConfigError(f"--auth-file {path}, line {number}: a token has at least {SHORTEST} characters")
        found.append((_digest(words[-1]), words[0] if len(words) == 2 else ""))
    if not found:
        raise ConfigError(f"--auth-file {path} has no token")
    return found


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
