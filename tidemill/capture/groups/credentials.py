"""What a group needs to find its coordinator and be admitted. It is passed in an order or in Spark's job, never on a command line."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Credentials:
    """Where a coordinator listens, its log and its token. `log` may contain a password and `token` is one: neither is printed."""

    host: str
    port: int
    log: str = field(repr=False)
    token: str = field(repr=False)


def new_token() -> str:
    """Return a new token, for one start of a capture."""
    return secrets.token_hex(32)
