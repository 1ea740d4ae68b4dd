"""What the client's statistics say of brokers."""

from __future__ import annotations

import json

from tidemill.sinks.kafka.statistics import broker_figures


def broker(node: int, **more: object) -> dict[str, object]:
    return {"nodeid": node, "waitresp_cnt": 2, "tx": 10, "txbytes": 999, "rtt": {"avg": 1500, "p99": 250_000, "cnt": 4}, **more}


def test_brokers_by_number_without_bootstrap_addresses() -> None:
    told = {"brokers": {"b:9092/2": broker(2), "b:9092/bootstrap": broker(-1), "a:9092/1": broker(1, waitresp_cnt=0)}}
    first, second = broker_figures(json.dumps(told))
    assert (first["broker"], first["in_flight"], second["broker"], second["in_flight"]) == ("1", 0, "2", 2)
    assert (first["latency_avg_s"], first["latency_p99_s"], first["requests"], first["sent_bytes"]) == (0.0015, 0.25, 10, 999)


def test_before_the_client_has_told_any() -> None:
    assert broker_figures("{}") == []
