"""The program of an initial load that reads its parts itself, without a Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.spark import session
from tidemill.spark.capture import snapshot


@dataclass
class Job:
    """What Spark would do in its tasks."""

    parts: Sequence[Any]
    work: Callable[[Iterator[Any]], Iterable[Any]] = list

    def mapPartitions(self, work: Callable[[Iterator[Any]], Iterable[Any]]) -> Job:
        return Job(self.parts, work)

    def collect(self) -> list[Any]:
        return list(self.work(iter(self.parts)))


class Context:
    """As much of a SparkContext as the load asks for."""

    defaultParallelism = 2

    def parallelize(self, parts: Sequence[Any], slices: int) -> Job:
        return Job(parts)


def start_context(*_: Any, **__: Any) -> Context:
    return Context()


def stop_spark(_: Context) -> None:
    return


def main() -> None:
    session.start_context, session.stop_spark = start_context, stop_spark  # type: ignore[assignment]
    snapshot.main()
