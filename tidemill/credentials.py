"""Reads secrets where they are referred to: a file, a variable of the environment, what a command prints. IO.

A secret is read when it is used, for each connection, so one that is replaced counts from the next connection on. Errors name the
reference, and neither the secret nor what a command says.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from tidemill.errors import ConfigError, SinkError, SinkUnavailable
from tidemill.process.children import environment
from tidemill.secret import NONE, Secret, Way, argv_of, reference, secret_of

OF_KEYS = {Way.FILE: "TIDEMILL_KEY_PASSWORD_FILE", Way.COMMAND: "TIDEMILL_KEY_PASSWORD_COMMAND"}
"""Variables of the environment for the password of keys. Every child has them, so they say where it is."""
OF_KEYS_HINT = f"Does {' or '.join(OF_KEYS.values())} say where the right password is?"
LIMIT_BYTES = 64 << 10
"""What a file or a command may have."""
COMMAND_S = 10.0
"""How long a command may run."""


class _Unreadable(Exception):
    """Why a secret cannot be read. `passes`: it may be there later."""

    def __init__(self, text: str, hint: str = "", *, passes: bool = True) -> None:
        super().__init__(text)
        self.text, self.hint, self.passes = text, hint, passes


def read(secret: Secret) -> str:
    """Return a sink's secret. Raises SinkUnavailable, or SinkError for a variable that is not set."""
    try:
        return _read(secret)
    except _Unreadable as error:
        raise (SinkUnavailable if error.passes else SinkError)(error.text, hint=error.hint) from None


def key_password(secret: Secret = NONE) -> Callable[[], str]:
    """Return what `ssl` asks for the password of a key that has one: without it, it would ask on the terminal. Where no setting gives it,
    it is that of `of_keys`. Raises as `read`."""
    return lambda: read(secret or of_keys())


def of_keys() -> Secret:
    """Return the password of keys that have no setting for it: of PD, TiKV, etcd and the server's own port. Raises ConfigError."""
    found = {reference("key-password", way): os.environ.get(variable) for way, variable in OF_KEYS.items()}
    return secret_of("key-password", found, "the environment")


def own_key_password() -> str:
    """Return the password of `of_keys`, as `ssl` asks for it. Raises ConfigError."""
    return read_setting(of_keys())


def read_setting(secret: Secret) -> str:
    """Return a secret of a flag or a file of settings. Raises ConfigError."""
    try:
        return _read(secret)
    except _Unreadable as error:
        raise ConfigError(error.text, hint=error.hint) from None


def _read(secret: Secret) -> str:
    if secret.way is None:
        return secret.value
    if secret.way is Way.ENV:
        if secret.place not in os.environ:
            raise _Unreadable(f"{secret}: the environment has no {secret.place}", "Set it for all processes that use it.", passes=False)
        return os.environ[secret.place]
    data = _of_file(secret) if secret.way is Way.FILE else _of_command(secret)
    if len(data) > LIMIT_BYTES:
        raise _Unreadable(f"{secret}: it has more than {LIMIT_BYTES} bytes")
    try:
        return data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise _Unreadable(f"{secret}: it is not UTF-8") from None


def _of_file(secret: Secret) -> bytes:
    try:
        with Path(secret.place).open("rb") as file:
            return file.read(LIMIT_BYTES + 1)
    except OSError as error:
        raise _Unreadable(f"{secret}: {error.strerror}") from None


def _of_command(secret: Secret) -> bytes:
    """Run a command in a session of its own, so that what it starts ends with it. What it says to stderr is not kept: it may be secret."""
    try:
        process = subprocess.Popen(
            argv_of(secret.place),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(),
            start_new_session=True,
            bufsize=0,
        )
    except OSError as error:
        raise _Unreadable(f"{secret}: {error.strerror}") from None
    assert process.stdout is not None
    deadline = time.monotonic() + COMMAND_S
    with process, process.stdout as output:
        status = None
        try:
            data = _output(output, deadline)
            if len(data) <= LIMIT_BYTES:
                status = process.wait(max(0.0, deadline - time.monotonic()))
        except (TimeoutError, subprocess.TimeoutExpired):
            raise _Unreadable(f"{secret}: it did not end within {COMMAND_S:g} s") from None
        finally:
            if status is None:  # not reaped: the group is still its own
                os.killpg(process.pid, signal.SIGKILL)
    if status:
        raise _Unreadable(f"{secret}: it ended with status {status}", "Run it by hand to see what it says.")
    return data


def _output(output: IO[bytes], deadline: float) -> bytes:
    """Return what a command prints to its end, or more than LIMIT_BYTES of it. Raises TimeoutError."""
    data = bytearray()
    with selectors.DefaultSelector() as ready:
        ready.register(output, selectors.EVENT_READ)
        while len(data) <= LIMIT_BYTES:
            if not ready.select(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            piece = os.read(output.fileno(), LIMIT_BYTES)
            if not piece:
                break
            data += piece
    return bytes(data)
