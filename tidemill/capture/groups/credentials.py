"""What a group needs to find its coordinator and be admitted. It is passed in the environment or in Spark's job, never on a command
line."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass, field

from tidemill.errors import ConfigError

VARIABLE = "TIDEMILL_GROUP_TICKET"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Where a coordinator listens, its log and its token. `log` may contain a password and `token` is one: neither is printed."""

    host: str
    port: int
    log: str = field(repr=False)
    token: str = field(repr=False)

    def to_environment(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def from_environment(cls) -> Credentials:
        """Read the credentials. Raises ConfigError for a process that no coordinator started."""
        try:
            return cls(**json.loads(os.environ[VARIABLE]))
        except (KeyError, ValueError, TypeError, RecursionError):
            raise ConfigError(f"{VARIABLE} is not set: a group is started by `tidemill capture --workers N`") from None


def new_token() -> str:
    """Return a new token, for one start of a capture."""
    return secrets.token_hex(32)
