"""Prometheus metrics, made from a status on each request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric, UntypedMetricFamily
from prometheus_client.registry import Collector

from tidemill.metrics.histogram import Histogram
from tidemill.metrics.pages import Page

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Sample:
    """One number, or one histogram, with its labels."""

    name: str
    help: str
    value: float
    """Of a histogram, the sum of its values."""
    labels: Mapping[str, str]
    counter: bool = False
    histogram: Histogram | None = None
    bare: bool = False
    """A counter whose name does not end in _total: it is served without a type, because the text format allows no such counter."""


def gauge(name: str, text: str, value: float, **labels: str) -> Sample:
    """Return a sample of a number that goes up and down."""
    return Sample(name, text, value, labels)


def counter(name: str, text: str, value: float, **labels: str) -> Sample:
    """Return a sample of a number that only grows. `name` is without the ending _total."""
    return Sample(name, text, value, labels, counter=True)


def histogram(name: str, text: str, values: Histogram, **labels: str) -> Sample:
    """Return a histogram."""
    return Sample(name, text, values.sum, labels, histogram=values)


def build_info() -> Sample:
    """Return the version as a label."""
    return gauge("tidemill_build_info", "1, with the version of Tidemill", 1, version=_version())


def start_time(at: float) -> Sample:
    """Return when the process began, under the name that Prometheus' own clients give it: TiUP shows by it how long a server has run."""
    return gauge("process_start_time_seconds", "Unix time at which the process began", at)


@cache
def _version() -> str:
    try:
        return metadata.version("tidemill")
    except metadata.PackageNotFoundError:
        return "unknown"


class _Samples(Collector):
    def __init__(self, samples: Callable[[], Iterable[Sample]]) -> None:
        self._samples = samples

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Any] = {}
        for sample in self._samples():
            if sample.name not in families:
                families[sample.name] = _family(sample)(sample.name, sample.help, labels=list(sample.labels))
            labels = list(sample.labels.values())
            if sample.histogram is not None:
                families[sample.name].add_metric(labels, sample.histogram.buckets(), sample.value)
            else:
                families[sample.name].add_metric(labels, sample.value)
        return families.values()


def _family(sample: Sample) -> type[Any]:
    if sample.histogram is not None:
        return HistogramMetricFamily
    if sample.bare:
        return UntypedMetricFamily
    return CounterMetricFamily if sample.counter else GaugeMetricFamily


def metrics_page(samples: Callable[[], Iterable[Sample]]) -> Page:
    """Return the page /metrics."""
    registry = CollectorRegistry()
    registry.register(_Samples(samples))
    return Page(CONTENT_TYPE, lambda: generate_latest(registry))
