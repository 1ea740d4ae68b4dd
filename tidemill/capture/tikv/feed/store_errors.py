"""Converts `cdcpb.Error`, the message with which TiKV ends a subscription, to a StoreError."""

from __future__ import annotations

from tidemill.capture.tikv.model import End, Peer, StoreError
from tidemill.wire import cdcpb_pb2

_FIELDS = {field.name for field in cdcpb_pb2.Error.DESCRIPTOR.fields}
_ENDS = {end.value: end for end in End if end.value in _FIELDS}


def parse_store_error(data: bytes) -> StoreError:
    """Return the error of a serialised `cdcpb.Error`. An error with an unknown field is UNKNOWN."""
    error = cdcpb_pb2.Error.FromString(data)
    end = next((_ENDS[field.name] for field, _ in error.ListFields() if field.name in _ENDS), End.UNKNOWN)
    leader = error.not_leader.leader
    return StoreError(
        end,
        leader=Peer(leader.id, leader.store_id) if leader.id else None,
        wait_s=error.server_is_busy.backoff_ms / 1000,
        split=bool(error.epoch_not_match.current_regions),
        told=_told(end, error),
    )


def _told(end: End, error: cdcpb_pb2.Error) -> str:
    match end:
        case End.CLUSTER_ID_MISMATCH:
            told = error.cluster_id_mismatch
            return f"TiKV belongs to cluster {told.current}, not to cluster {told.request}"
        case End.COMPATIBILITY:
            return f"TiKV asks for a client of version {error.compatibility.required_version} or newer"
        case End.DUPLICATE_REQUEST:
            return f"TiKV says repeatedly that region {error.duplicate_request.region_id} is subscribed twice"
        case _:
            return ""
