"""What librdkafka's statistics say of brokers. Pure. Their fields: STATISTICS.md of librdkafka."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_BOOTSTRAP = -1
"""The node id of an address that was given, before the broker has told its own."""


@lru_cache(maxsize=4)
def _parsed(statistics: str) -> tuple[Mapping[str, Any], ...]:
    brokers = json.loads(statistics).get("brokers", {}).values()
    return tuple(one for one in brokers if one.get("nodeid", _BOOTSTRAP) > _BOOTSTRAP)


def broker_figures(statistics: str) -> list[dict[str, Any]]:
    """Return the brokers as `HasBrokers` has them, by number."""
    return [
        {
            "broker": str(one["nodeid"]),
            "in_flight": one["waitresp_cnt"],
            "requests": one["tx"],
            "sent_bytes": one["txbytes"],
            "latency_avg_s": one["rtt"]["avg"] / 1e6,  # from microseconds
            "latency_p99_s": one["rtt"]["p99"] / 1e6,
        }
        for one in sorted(_parsed(statistics), key=lambda one: one["nodeid"])
    ]
