"""What the server tells of itself, for /status."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tidemill.canal.conversation.subscriber import Subscriber
from tidemill.canal.server.connection import Office
from tidemill.tso import physical_ms


def lag_s(office: Office, client: Subscriber) -> float:
    """How far a client is behind the store's head. One that has acknowledged all that is for it is not behind while nothing comes."""
    return max(0, physical_ms(office.reading.head) - physical_ms(client.done_ts)) / 1000


def status(office: Office) -> dict[str, Any]:
    """The page /status."""
    failures = [str(one) for one in (office.reading.failure, office.saving.failure) if one is not None]
    return {
        "checkpoint_ts": office.reading.head,
        "begins": office.reading.begins,
        "destinations": sorted(office.desk.destinations),
        "connections": len(office.connections),
        "refused": office.refused,
        "memory_bytes": office.memory.used,
        "waiting_for_memory": office.memory.waiting,
        "errors": failures,
        "clients": [_client(office, client) for client in office.desk],
    }


def _client(office: Office, client: Subscriber) -> dict[str, Any]:
    return {
        "destination": client.key.destination,
        "client": client.key.client,
        "subscribed": client.subscribed,
        "filter": client.filter,
        "acknowledged_ts": client.acked.position.commit_ts,
        "read_ts": client.read.position.commit_ts,
        "lag_s": lag_s(office, client),
        "open_batches": len(client.open),
        **asdict(client.counts),
    }
