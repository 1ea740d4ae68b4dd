"""Passwords: the token that a client makes of its password and the server's seeds (MySQL 4.1's scheme, which Canal calls scramble411)."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

DIGEST = 20


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


def _xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def stored(password: str) -> str:
    """A password as `canal.passwd` has it: hex of SHA1(SHA1(password))."""
    return _sha1(_sha1(password.encode())).hex()


def scramble(password: str, seeds: bytes) -> bytes:
    """The token that a client sends: 40 hex digits."""
    once = _sha1(password.encode())
    return _xor(once, _sha1(seeds + _sha1(once))).hex().encode()


def is_token(token: bytes) -> bool:
    """Whether a client's password is a token: hex digits of 20 bytes or more. Canal takes longer ones for wrong and all else for broken."""
    try:
        return len(bytes.fromhex(token.decode("ascii"))) >= DIGEST
    except (ValueError, UnicodeDecodeError):
        return False


def fits(token: bytes, seeds: bytes, digest: bytes) -> bool:
    """Whether a token was made of the password whose SHA1(SHA1()) is `digest`."""
    if not is_token(token) or len(token) != 2 * DIGEST:
        return False
    once = _xor(bytes.fromhex(token.decode("ascii")), _sha1(seeds + digest))
    return hmac.compare_digest(_sha1(once), digest)


@dataclass(frozen=True, slots=True)
class Credential:
    """Who may come. No user: any name; no digest: any password."""

    user: str = ""
    digest: bytes = field(default=b"", repr=False)

    def accepts(self, user: str, token: bytes, seeds: bytes, *, plain: bool) -> bool:
        """`plain`: the password itself is taken too, as clients before 1.1.4 send it."""
        if self.user and not hmac.compare_digest(user.encode(), self.user.encode()):
            return False
        if not self.digest:
            return True
        return fits(token, seeds, self.digest) or (plain and hmac.compare_digest(_sha1(_sha1(token)), self.digest))
