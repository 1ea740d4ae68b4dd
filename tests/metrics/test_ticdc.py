"""The same numbers under TiCDC's names."""

from __future__ import annotations

from tidemill.metrics.histogram import Histogram
from tidemill.metrics.samples import Sample, counter, gauge, histogram, metrics_page
from tidemill.metrics.ticdc import with_ticdc_names

FEED = {"namespace": "default", "changefeed": "f"}


def theirs(*samples: Sample, feed: str | None = None) -> dict[str, tuple[float, dict[str, str]]]:
    return {one.name: (one.value, dict(one.labels)) for one in with_ticdc_names(samples, feed) if one.name.startswith("ticdc_")}


def test_units_and_labels() -> None:
    ts = 1_700_000_000_123 << 18 | 5
    assert theirs(gauge("tidemill_changefeed_checkpoint_ts", "", ts, changefeed="f")) == {
        "ticdc_owner_checkpoint_ts": (1_700_000_000_123, FEED)
    }
    assert theirs(counter("tidemill_capture_region_errors", "", 3, kind="not_leader")) == {
        "ticdc_kvclient_event_feed_error_count": (3, {"type": "not_leader"})
    }


def test_a_capture_without_a_changefeed_has_no_metrics_of_one() -> None:
    lag = gauge("tidemill_capture_resolved_ts_lag_seconds", "", 2.0)
    assert theirs(lag).keys() == {"ticdc_subscription_client_resolved_ts_lag"}
    assert theirs(lag, feed="f")["ticdc_owner_resolved_ts_lag"] == (2.0, FEED)


def test_only_the_stage_that_means_the_same() -> None:
    of = {stage: histogram("tidemill_changefeed_stage_seconds", "", Histogram(), changefeed="f", stage=stage) for stage in ("ddl", "plan")}
    assert theirs(of["plan"]) == {}
    assert theirs(of["ddl"]) == {"ticdc_ddl_exec_duration": (0.0, FEED)}


def test_as_text() -> None:
    """A counter without _total keeps its name; one with it, and a histogram, have their type."""
    values = Histogram((1.0,))
    values.observe(0.5)
    made = [
        counter("tidemill_changefeed_rows", "Rows", 7, changefeed="f"),
        counter("tidemill_changefeed_bytes", "Bytes", 9, changefeed="f"),
        histogram("tidemill_changefeed_batch_rows", "Rows", values, changefeed="f"),
    ]
    text = metrics_page(lambda: with_ticdc_names(made)).body().decode()

    assert 'ticdc_sink_dml_event_count{changefeed="f",namespace="default"} 7.0' in text
    assert "# TYPE ticdc_sink_dml_event_count untyped" in text
    assert "# TYPE ticdc_sink_write_bytes_total counter" in text
    assert "# TYPE ticdc_sink_batch_row_count histogram" in text
    assert 'le="+Inf"' in text
