"""The Grafana dashboard, made of a table of panels. Pure.

A panel is a title, a unit of Grafana and queries with their legends. `$changefeed` and `$instance` are chosen at the top of the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT, COLUMNS = 12, 8, 2
UID = "tidemill"
FEED = '{changefeed=~"$changefeed",instance=~"$instance"}'
HERE = '{instance=~"$instance"}'
WINDOW = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    """PromQL and legend."""


def _one(title: str, unit: str, query: str, legend: str) -> Panel:
    """A chart of one query."""
    return Panel(title, unit, ((query, legend),))


def _slow(metric: str, *labels: str) -> tuple[tuple[str, str], ...]:
    """The 99th percentile and the mean of a histogram."""
    by, legend = ", ".join(("le", *labels)), " ".join(f"{{{{{label}}}}}" for label in labels)
    of_sum, of_count = (f"sum by ({', '.join(labels)}) (rate({metric}_{what}{HERE}[{WINDOW}]))" for what in ("sum", "count"))
    p99 = f"histogram_quantile(0.99, sum by ({by}) (rate({metric}_bucket{HERE}[{WINDOW}])))"
    return (p99, f"{legend} p99"), (f"{of_sum} / {of_count}", f"{legend} mean")


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Changefeeds",
        (
            _one("Checkpoint lag", "s", f"tidemill_changefeed_checkpoint_lag_seconds{FEED}", "{{changefeed}}"),
            _one("State", "short", f"tidemill_changefeed_state{FEED} == 1", "{{changefeed}} {{state}}"),
            _one("Rows delivered", "rowsps", f"rate(tidemill_changefeed_rows_total{FEED}[{WINDOW}])", "{{changefeed}}"),
            _one("Bytes delivered", "Bps", f"rate(tidemill_changefeed_bytes_total{FEED}[{WINDOW}])", "{{changefeed}}"),
            _one("Failed attempts", "short", f"increase(tidemill_changefeed_errors_total{FEED}[{WINDOW}])", "{{changefeed}}"),
            _one("DDLs", "short", f"increase(tidemill_changefeed_ddls_total{FEED}[{WINDOW}])", "{{changefeed}}"),
        ),
    ),
    (
        "Durations of the delivery",
        (
            Panel("Batches", "s", _slow("tidemill_changefeed_batch_seconds", "changefeed")),
            Panel("Stages of a batch", "s", _slow("tidemill_changefeed_stage_seconds", "changefeed", "stage")),
            Panel("Steps of tasks", "s", _slow("tidemill_changefeed_task_seconds", "changefeed", "step")),
            _one("Answers of brokers", "s", f"tidemill_kafka_request_latency_seconds{FEED}", "{{changefeed}} broker {{broker}} {{type}}"),
            Panel("Answers of the schema registry", "s", _slow("tidemill_changefeed_registry_seconds", "changefeed")),
            _one("Requests without an answer", "short", f"tidemill_kafka_in_flight_requests{FEED}", "{{changefeed}} broker {{broker}}"),
        ),
    ),
    (
        "Capture",
        (
            _one("Resolved ts lag", "s", f"tidemill_capture_resolved_ts_lag_seconds{HERE}", "{{instance}}"),
            _one("Slowest tables", "s", f"tidemill_capture_table_resolved_ts_lag_seconds{HERE}", "{{table}}, partition {{partition}}"),
            _one("Held up", "s", f"tidemill_capture_table_held_seconds{HERE}", "{{table}}: {{cause}}"),
            _one("Regions", "short", f"sum by (instance, phase) (tidemill_capture_regions{HERE})", "{{instance}} {{phase}}"),
            _one("Rows captured", "rowsps", f"sum by (instance) (rate(tidemill_capture_rows_total{HERE}[{WINDOW}]))", "{{instance}}"),
            _one("Received", "Bps", f"sum by (instance) (rate(tidemill_capture_received_bytes_total{HERE}[{WINDOW}]))", "{{instance}}"),
            Panel("Stages of the capture", "s", _slow("tidemill_capture_stage_seconds", "instance", "stage")),
            _one("Errors of regions", "short", f"sum by (kind) (increase(tidemill_capture_region_errors_total{HERE}[1m]))", "{{kind}}"),
        ),
    ),
    (
        "Servers",
        (
            _one("Leads", "short", f"tidemill_server_leads{HERE}", "{{instance}}"),
            _one("Age of the lease", "s", f"tidemill_server_lease_age_seconds{HERE}", "{{instance}}"),
            _one("The newest takeover", "s", f"tidemill_server_takeover_seconds{HERE}", "{{instance}} {{part}}"),
            _one("Servers that are there", "short", f"tidemill_server_members{HERE}", "seen by {{instance}}"),
        ),
    ),
    (
        "Resources",
        (
            _one("Memory of the capture", "bytes", f"sum by (instance) (tidemill_capture_memory_bytes{HERE})", "{{instance}}"),
            _one("CPU of receiving", "short", f"sum by (step) (rate(tidemill_capture_cpu_seconds_total{HERE}[{WINDOW}]))", "{{step}}"),
            _one("History that PD keeps", "s", f"tidemill_capture_gc_seconds_left{HERE}", "{{instance}}"),
            _one("Restarts", "short", f"increase(tidemill_process_restarts_total{HERE}[{WINDOW}])", "{{instance}} {{process}}"),
        ),
    ),
)


def panels() -> Iterator[Panel]:
    """Every panel."""
    return (panel for _, row in ROWS for panel in row)


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    made: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS:
        made.append({"id": len(made) + 1, "type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": _place(0, y, 24, 1)})
        y += 1
        for i, panel in enumerate(row):
            where = _place(i % COLUMNS * WIDTH, y + i // COLUMNS * HEIGHT, WIDTH, HEIGHT)
            made.append(_chart(len(made) + 1, panel, where))
        y += -(-len(row) // COLUMNS) * HEIGHT
    return {
        "uid": UID,
        "title": "Tidemill",
        "tags": ["tidemill", "cdc"],
        "schemaVersion": 38,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
                _choice("instance", "tidemill_build_info"),
                _choice("changefeed", "tidemill_changefeed_checkpoint_ts"),
            ]
        },
        "panels": made,
    }


_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _choice(label: str, metric: str) -> dict[str, Any]:
    query = {"query": f"label_values({metric}, {label})", "refId": label}
    many = {"multi": True, "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    return {"name": label, "label": label, "type": "query", "datasource": _SOURCE, "query": query, "refresh": 2, "sort": 1, **many}


def _chart(number: int, panel: Panel, where: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + i), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
        for i, (query, legend) in enumerate(panel.queries)
    ]
    look = {
        "defaults": {"unit": panel.unit, "min": 0, "custom": {"lineWidth": 1, "fillOpacity": 5, "showPoints": "never"}},
        "overrides": [],
    }
    options = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    base = {"id": number, "type": "timeseries", "title": panel.title, "datasource": _SOURCE, "gridPos": where}
    return {**base, "targets": targets, "fieldConfig": look, "options": options}
