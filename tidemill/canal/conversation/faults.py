"""What goes wrong in a conversation, and whose fault it is."""

from __future__ import annotations

import enum

from tidemill.errors import TidemillError

BAD_REQUEST = 400
NO_NAME = 401
NO_BATCH = 402
"""Error codes of Canal's."""


class Fault(enum.Enum):
    """Whose."""

    CLIENT = "the client's fault"
    SERVER = "the server's fault"
    NOBODY = "nobody's fault"


class Refused(TidemillError):
    """A client's request is refused. `number` is the error code of the answer."""

    code = "TM:ErrCanalRequest"

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number
