"""Prometheus metrics, made from a status on each request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidemill.metrics.pages import Page

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Sample:
    """One number with its labels."""

    name: str
    help: str
    value: float
    labels: Mapping[str, str]
    counter: bool = False


def gauge(name: str, text: str, value: float, **labels: str) -> Sample:
    """Return a sample of a number that goes up and down."""
    return Sample(name, text, value, labels)


def counter(name: str, text: str, value: float, **labels: str) -> Sample:
    """Return a sample of a number that only grows. `name` is without the ending _total."""
    return Sample(name, text, value, labels, counter=True)


class _Samples(Collector):
    def __init__(self, samples: Callable[[], Iterable[Sample]]) -> None:
        self._samples = samples

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Any] = {}
        for sample in self._samples():
            if sample.name not in families:
                make = CounterMetricFamily if sample.counter else GaugeMetricFamily
                families[sample.name] = make(sample.name, sample.help, labels=list(sample.labels))
            families[sample.name].add_metric(list(sample.labels.values()), sample.value)
        return families.values()


def metrics_page(samples: Callable[[], Iterable[Sample]]) -> Page:
    """Return the page /metrics."""
    registry = CollectorRegistry()
    registry.register(_Samples(samples))
    return Page(CONTENT_TYPE, lambda: generate_latest(registry))
