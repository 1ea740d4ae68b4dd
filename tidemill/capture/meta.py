"""Reads the schemas of a cluster as of one ts, as key-values of the meta range."""

from __future__ import annotations

from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.read.snapshot import Snapshot
from tidemill.errors import ClusterMismatch
from tidemill.tidb.schema.metakeys import meta_filter, meta_ranges


async def read_meta(pd: PdClient, ts: int) -> dict[bytes, bytes]:
    """Return the meta key-values that schemas depend on. Hold a service safe point below `ts` meanwhile, unless `ts` is the present.

    Raises ClusterMismatch if the cluster has schemas only in keyspaces, UpstreamError.
    """
    snapshot = Snapshot(pd, ts)
    pairs = {}
    for start, end in meta_ranges():
        async for key, value in snapshot.scan(start, end):
            if meta_filter(key):
                pairs[key] = value
    if pairs:
        return pairs
    names = await pd.keyspaces()
    what = f"keyspace {', '.join(names)}" if names else "no TiDB at all, or one in a keyspace (API v2)"
    raise ClusterMismatch(
        f"cluster {pd.cluster_id} has no schemas outside of keyspaces: it serves {what}",
        hint="Keyspaces (API v2) are not supported.",
    )
