"""The server's metrics, made of its status: `tidemill run` has that of its server in a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidemill.metrics.samples import Sample, counter, gauge

_COUNTED = {
    "batches": "Batches that were given to a client",
    "entries": "Entries in these batches",
    "rows": "Rows in these batches",
    "bytes": "Bytes of the entries in these batches",
    "acks": "Batches that a client acknowledged",
    "rollbacks": "Rollbacks of a client",
}


def samples(status: Mapping[str, Any]) -> Iterator[Sample]:
    """The metrics of a status; none of an empty one."""
    if "checkpoint_ts" not in status:
        return
    yield gauge("tidemill_canal_checkpoint_ts", "Entries up to this TSO can be had by Canal's clients", status["checkpoint_ts"])
    yield gauge("tidemill_canal_begins_ts", "Entries above this TSO can be had by Canal's clients", status["begins"])
    yield gauge("tidemill_canal_connections", "Connections of Canal's clients", status["connections"])
    yield counter("tidemill_canal_refused", "Connections that were closed for a fault of their client", status["refused"])
    yield gauge("tidemill_canal_memory_bytes", "Batches that connections hold in memory", status.get("memory_bytes", 0))
    yield gauge("tidemill_canal_waiting_for_memory", "Connections that wait for memory", status.get("waiting_for_memory", 0))
    for client in status["clients"]:
        labels = {"destination": str(client["destination"]), "client": str(client["client"])}
        yield gauge("tidemill_canal_lag_seconds", "How far a client's acknowledgements are behind", client["lag_s"], **labels)
        yield gauge("tidemill_canal_open_batches", "Batches neither acknowledged nor rolled back", client["open_batches"], **labels)
        for name, text in _COUNTED.items():
            yield counter(f"tidemill_canal_{name}", text, client[name], **labels)
