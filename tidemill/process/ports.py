"""Ports for servers that are programs of their own and have to be told theirs.

A port that the kernel chose is free until some connection takes it, which may be before the server does. So these lie below those that
the kernel chooses from, and are given out in turn: processes that ask at the same time get different ones, by a file that they share.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import tempfile
from pathlib import Path

_FIRST, _LAST = 20_000, 32_000
"""Linux chooses from 32768 on."""


def free_ports(count: int) -> list[int]:
    """Return different ports of 127.0.0.1 that nobody listens at. The same ones come again after some thousands."""
    with open(Path(tempfile.gettempdir()) / f"tidemill-ports-{os.getuid()}", "a+", encoding="ascii", opener=opened_as_own) as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        turn.seek(0)
        said = turn.read(len(str(_LAST)))
        port = int(said) if said.isdecimal() and _FIRST <= int(said) <= _LAST else _FIRST
        found: list[int] = []
        while len(found) < count:
            port = port + 1 if port < _LAST else _FIRST
            if _is_free(port):
                found.append(port)
        turn.truncate(0)
        turn.write(str(port))
        return found


def opened_as_own(path: str, flags: int) -> int:
    """Open a file in a folder where others may write: no link of theirs, and no file of theirs. An opener of `open`. Raises OSError."""
    number = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    if os.fstat(number).st_uid != os.getuid():
        os.close(number)
        raise PermissionError(errno.EPERM, "the file is another user's", path)
    return number


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
