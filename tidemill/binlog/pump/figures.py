"""The figures of a Pump for Prometheus, under the names of the real one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from tidemill.binlog.pump.collecting import Collector
from tidemill.binlog.pump.resolving import Resolver
from tidemill.binlog.pump.serving.service import PumpService
from tidemill.binlog.pump.store import Store
from tidemill.metrics.samples import Sample, counter, gauge

_PREFIX = "binlog_pump_"


class Source(Protocol):
    """Where the figures come from."""

    store: Store
    collector: Collector
    resolver: Resolver
    service: PumpService
    space: int


def samples_of(pump: Source) -> Iterator[Sample]:
    """Yield the present figures."""
    store, counts = pump.store, pump.store.counts
    yield gauge(f"{_PREFIX}storage_max_commit_ts", "Up to where binlogs can be pulled.", store.order.max_commit_ts)
    yield gauge(f"{_PREFIX}storage_gc_ts", "Up to where binlogs may be gone.", store.index.gc_ts())
    yield gauge(f"{_PREFIX}storage_done_gc_ts", "Up to where garbage collection is done.", pump.collector.done_ts)
    yield gauge(f"{_PREFIX}storage_storage_size_bytes", "Bytes of the value log.", store.log.size(), type="used")
    yield gauge(f"{_PREFIX}storage_storage_size_bytes", "Bytes of the value log.", pump.space, type="available")
    yield counter(f"{_PREFIX}storage_write_binlogs", "Binlogs that were written.", counts.binlogs)
    yield counter(f"{_PREFIX}storage_write_bytes", "Bytes of binlogs that were written.", counts.bytes)
    yield counter(f"{_PREFIX}storage_syncs", "Batches that were written and synced.", counts.syncs)
    yield counter(f"{_PREFIX}storage_write_seconds", "Seconds that writing and syncing took.", counts.seconds)
    yield counter(f"{_PREFIX}storage_slow_writes", "Batches that took longer than slow_write_threshold.", counts.slow)
    yield counter(f"{_PREFIX}storage_failed_writes", "Batches that could not be written.", counts.failures)
    yield counter(f"{_PREFIX}storage_query_tikv_count", "Questions to TiKV about Prewrites without Commit.", pump.resolver.asked)
    yield counter(f"{_PREFIX}storage_deleted_kv", "Keys that garbage collection deleted.", pump.collector.deleted_keys)
    yield counter(f"{_PREFIX}loss_binlog_count", "Commits without a Prewrite that pullers met.", pump.service.lost)
    yield gauge(f"{_PREFIX}open_prewrites", "Prewrites without Commit and Rollback.", len(store.order.open))
    yield gauge(f"{_PREFIX}waiting_for_index", "Binlogs that wait for the index.", store.waiting)
    yield gauge(f"{_PREFIX}index_behind", "1 while the index reads the value log.", int(store.behind))
    yield counter(f"{_PREFIX}index_caught_up", "Binlogs that were indexed from the value log.", counts.caught_up)
    yield gauge(f"{_PREFIX}pulls", "Streams of Drainers.", pump.service.pulls)
