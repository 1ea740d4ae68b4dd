"""Canal's protocol, both sides of it. `Client` and `AsyncClient` read from servers of Canal and of Tidemill.

    from tidemill.canal import Client

    with Client("127.0.0.1", 11111, "example", filter=r"shop\\..*") as client:
        for batch in client.batches():
            for event in batch.events():
                ...

`client/` is the client. `flat/` makes Canal's flat messages of entries and says to which topic and partition they go. `conversation/`: what
a server does with one client, as pure state machines. `server/`: the process that serves an entry store. `scramble.py` checks and makes
passwords, `frames.py` writes batches: pure, for both sides.

In: bytes of a socket, entries of an entry store. Out: packets, batches of entries. Read `conversation/machine.py` first.
"""

from tidemill.canal.client import (
    AsyncClient,
    Backoff,
    Batch,
    CanalBroken,
    CanalError,
    CanalMisuse,
    CanalRefused,
    CanalUnavailable,
    Client,
    Fault,
    LazyEntry,
    Settings,
    Unit,
)

__all__ = [
    "AsyncClient",
    "Backoff",
    "Batch",
    "CanalBroken",
    "CanalError",
    "CanalMisuse",
    "CanalRefused",
    "CanalUnavailable",
    "Client",
    "Fault",
    "LazyEntry",
    "Settings",
    "Unit",
]
