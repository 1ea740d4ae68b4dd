"""What the machine itself needs for the same bytes: CPU seconds, user and system, of this process.

A stage can at best come close to its limit: capture to a socket and a file, delivery to a read of the same log, an encoder to a copy of its
output. All are measured beside the stage, in the same run, since a virtual machine changes its pace from hour to hour.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa

PIECE = 1 << 20
SENDER = """
import socket, sys
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
left, piece = int(sys.argv[2]), memoryview(bytes(1 << 20))
while left > 0:
    peer.sendall(piece[: min(left, len(piece))])
    left -= len(piece)
"""


def memcpy(size: int, runs: int = 50) -> float:
    """Copy so many bytes within warm memory; the least of several runs."""
    source = np.ones(size, np.uint8)
    target = np.empty_like(source)
    return min(_spent(lambda: np.copyto(target, source)) for _ in range(runs))


def loopback(size: int) -> float:
    """Receive so many bytes from another process over TCP, into one buffer. What the sender needs does not count."""
    buffer = bytearray(PIECE)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = subprocess.Popen([sys.executable, "-c", SENDER, str(listener.getsockname()[1]), str(size)])
        connection, _ = listener.accept()
        with connection:
            spent = _spent(lambda: _drain(connection, buffer))
        sender.wait()
    return spent


def _drain(connection: socket.socket, buffer: bytearray) -> None:
    while connection.recv_into(buffer):
        pass


def append(size: int, folder: Path) -> float:
    """Append so many bytes to a file in pieces of 1 MiB, then one fdatasync."""
    path, piece = folder / "appended", bytes(PIECE)

    def write() -> None:
        with path.open("wb", buffering=0) as file:
            for at in range(0, size, PIECE):
                file.write(piece[: min(PIECE, size - at)])
            os.fdatasync(file.fileno())

    try:
        return _spent(write)
    finally:
        path.unlink(missing_ok=True)


def arrow_read(files: Iterable[Path]) -> float:
    """Read Arrow IPC files into memory of this process, all columns of all batches."""

    def read() -> None:
        for path in files:
            with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
                for i in range(reader.num_record_batches):
                    reader.get_batch(i)

    return _spent(read)


def _spent(work: Callable[[], object]) -> float:
    before = time.process_time_ns()
    work()
    return (time.process_time_ns() - before) / 1e9
