"""A client of Canal's protocol, for servers of Canal and of Tidemill: sync and async.

In: bytes that a server sent. Out: batches of entries. `conversation.py` is one connection without IO: requests become bytes, bytes become
answers. `session.py` says what a client does over several connections: log in, subscribe, get, acknowledge, connect again; it is written as
steps without IO, which `sync.py` and `asynchronous.py` carry out. `batches.py` has batches and entries, `columns.py` makes Arrow of them,
`faults.py` the errors and whose fault each is. Read `conversation.py`, then `session.py`.
"""

from tidemill.canal.client.asynchronous import AsyncClient
from tidemill.canal.client.batches import Batch, LazyEntry
from tidemill.canal.client.conversation import Conversation
from tidemill.canal.client.faults import CanalBroken, CanalError, CanalMisuse, CanalRefused, CanalUnavailable, Fault
from tidemill.canal.client.settings import Backoff, Settings, Unit
from tidemill.canal.client.sync import Client

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
    "Conversation",
    "Fault",
    "LazyEntry",
    "Settings",
    "Unit",
]
