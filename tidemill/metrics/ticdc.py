"""The same numbers under TiCDC's names, so that its dashboards and alert rules find them. Pure.

Only where TiCDC's metric means the same. `with_ticdc_names` wraps a page's samples: what makes them knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tidemill.metrics.samples import Sample
from tidemill.tso import physical_ms

NAMESPACE = "default"
"""What TiCDC calls the namespace, or keyspace, of changefeeds where none is named."""

STATUS = {"normal": 0, "pending": 1, "failed": 2, "stopped": 3, "finished": 4, "removed": 5, "warning": 6}
"""The values of ticdc_owner_status."""


def _as_it_is(value: float) -> float:
    return value


def _milliseconds(ts: float) -> float:
    return physical_ms(int(ts))


@dataclass(frozen=True, slots=True)
class Same:
    """One metric of ours and its name in TiCDC."""

    theirs: str
    value: Callable[[float], float] = _as_it_is
    labels: Mapping[str, str] = field(default_factory=dict)
    """Our labels that have another name there."""
    where: tuple[str, str] | None = None
    """Only series with this label."""
    of_feed: bool = True
    """Whether it has the labels namespace and changefeed there."""


SAME: Mapping[str, tuple[Same, ...]] = {
    "tidemill_changefeed_checkpoint_ts": (Same("ticdc_owner_checkpoint_ts", _milliseconds),),
    "tidemill_changefeed_checkpoint_lag_seconds": (Same("ticdc_owner_checkpoint_ts_lag"),),
    "tidemill_changefeed_status": (Same("ticdc_owner_status"),),
    "tidemill_capture_resolved_ts": (Same("ticdc_owner_resolved_ts", _milliseconds),),
    "tidemill_capture_resolved_ts_lag_seconds": (
        Same("ticdc_owner_resolved_ts_lag"),
        Same("ticdc_subscription_client_resolved_ts_lag", of_feed=False),
    ),
    "tidemill_changefeed_rows": (Same("ticdc_sink_dml_event_count"),),
    "tidemill_changefeed_bytes": (Same("ticdc_sink_write_bytes_total"),),
    "tidemill_changefeed_ddls": (Same("ticdc_ddl_execution"),),
    "tidemill_changefeed_errors": (Same("ticdc_sink_execution_error"),),
    "tidemill_changefeed_batch_rows": (Same("ticdc_sink_batch_row_count"),),
    "tidemill_changefeed_stage_seconds": (
        Same("ticdc_ddl_exec_duration", where=("stage", "ddl")),
        Same("ticdc_sink_mq_checkpoint_ts_message_duration", where=("stage", "resolved")),
    ),
    "tidemill_kafka_request_latency_seconds": (Same("ticdc_sink_kafka_producer_request_latency"),),
    "tidemill_capture_tables": (Same("ticdc_scheduler_table_count"),),
    "tidemill_capture_gc_safe_point": (Same("ticdc_gc_cdc_gc_safepoint", _milliseconds, of_feed=False),),
    "tidemill_capture_regions": (Same("ticdc_subscription_client_subscribed_region_count", of_feed=False),),
    "tidemill_capture_matched_rows": (Same("ticdc_kvclient_pull_event_count", of_feed=False),),
    "tidemill_capture_region_errors": (Same("ticdc_kvclient_event_feed_error_count", labels={"kind": "type"}, of_feed=False),),
    "tidemill_capture_locks_resolved": (Same("ticdc_subscription_client_resolve_lock_count", of_feed=False),),
    "tidemill_capture_pending_prewrites": (Same("ticdc_log_puller_prewrite_cache_row_num", of_feed=False),),
    "tidemill_build_info": (Same("ticdc_server_build_info", labels={"version": "release_version"}, of_feed=False),),
}
"""By our name (of a counter without _total). docs/metrics.md has the same table for people."""


def with_ticdc_names(samples: Iterable[Sample], changefeed: str | None = None) -> Iterator[Sample]:
    """Yield samples, and behind each those with TiCDC's names. `changefeed`: for what has no such label of its own, as a run's capture;
    None: there is no changefeed, and what needs one is left out."""
    for sample in samples:
        yield sample
        for same in SAME.get(sample.name, ()):
            if same.where is None or sample.labels.get(same.where[0]) == same.where[1]:
                feed = sample.labels.get("changefeed", changefeed)
                if feed is not None or not same.of_feed:
                    yield _renamed(sample, same, feed)


def _renamed(sample: Sample, same: Same, feed: str | None) -> Sample:
    labels = {same.labels.get(name, name): value for name, value in sample.labels.items() if same.where is None or name != same.where[0]}
    if same.of_feed:
        labels = {"namespace": NAMESPACE, **labels, "changefeed": str(feed)}
    bare = sample.counter and not same.theirs.endswith("_total")
    name = same.theirs if bare else same.theirs.removesuffix("_total")
    return replace(sample, name=name, value=same.value(sample.value), labels=labels, bare=bare, counter=sample.counter and not bare)
