"""Runs schedules of seeds over one sink: what a run without events publishes is the truth of all others."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar, runtime_checkable

from _pytest.mark.structures import ParameterSet

from tests.support.simulate.actors import Actor
from tests.support.simulate.drivers import Changefeed, History
from tests.support.simulate.power import Supplies
from tests.support.simulate.schedule import KINDS, Event, Run, made, shrunk
from tests.support.thorough import few_of

Seen = TypeVar("Seen")


def seeds(few: int, more: int) -> list[ParameterSet]:
    """The seeds of a test: a few, and more of them in `make test-all`. `make simulate SEED=… SEEDS=…` sets them."""
    first = int(os.environ.get("SEED", "0"))
    if (number := os.environ.get("SEEDS")) is not None:
        few = more = int(number)
    return few_of(range(first, first + more), few)


class Reader(Protocol[Seen]):
    """Somebody who reads what the sink publishes, also while drivers work."""

    def check(self) -> None:
        """Read. Raises AssertionError for what no reader may see."""

    def seen(self) -> Seen:
        """What is published."""


@runtime_checkable
class Forgets(Protocol):
    """A reader that stays when the power is lost."""

    def forget(self) -> None:
        """Take what was not durable for gone."""


class Schedules(Generic[Seen]):
    """`body`: makes a driver's body of a folder, which drivers of one run share. `reader`: who reads what they publish, and knows the truth
    (None: this run makes it). `kinds`: the events that can happen to them. `behind`: listings may show the past. `supplies`: the power may
    be lost."""

    def __init__(
        self,
        folder: Path,
        body: Callable[[Path], Callable[[Actor], None]],
        reader: Callable[[Path, Seen | None], Reader[Seen]],
        kinds: Sequence[type[Event]] = KINDS,
        *,
        behind: bool = False,
        supplies: Supplies | None = None,
    ) -> None:
        self._folder, self._body, self._reader, self._kinds = folder, body, reader, kinds
        self._runs, self._behind, self._supplies = 0, behind, supplies
        run, last = self._play((), None)
        self.effects, self.truth = run.effects, last.seen()

    def _play(self, events: Sequence[Event], truth: Seen | None) -> tuple[Run, Reader[Seen]]:
        folder = self._folder / str(self._runs)
        self._runs += 1
        run_body = self._body(folder)
        reader = self._reader(folder, truth)
        run = Run(run_body, reader.check)
        if self._supplies is not None:
            run.power = self._supplies.start(folder)
            assert isinstance(reader, Forgets)
            run.after_outage = reader.forget
        try:
            run.play(events)
        finally:
            if self._supplies is not None:
                self._supplies.stop()
        return run, reader

    def _failure(self, events: Sequence[Event]) -> AssertionError | None:
        try:
            _, reader = self._play(events, self.truth)
            assert reader.seen() == self.truth, "the end differs from that of a run without events"
        except AssertionError as error:
            return error
        return None

    def run(self, seed: int) -> None:
        """Run the schedule of a seed. Raises AssertionError with the shortest schedule that fails, and its story."""
        events = self.events(seed)
        error = self._failure(events)
        if error is not None:
            shortest = shrunk(events, lambda part: self._failure(part) is not None)
            raise AssertionError(f"seed {seed}: {shortest}\n{self._failure(shortest)}") from error

    def events(self, seed: int) -> list[Event]:
        """Return the schedule of a seed."""
        schedule = made(seed, self.effects, behind=self._behind, outages=self._supplies is not None)
        return [event for event in schedule if isinstance(event, tuple(self._kinds))]

    def at(self, effect: str) -> list[int]:
        """Return which effects of a run without events have this in their name: of the code as it is now."""
        run, _ = self._play((), self.truth)
        return [number for number, name in enumerate(run.names) if effect in name]

    def finds(self, *schedules: Sequence[Event]) -> None:
        """Raises AssertionError if all of these schedules pass, of code with a fault."""
        assert any(self._failure(events) is not None for events in schedules), "no schedule finds the fault"


class Trials(Schedules[Seen]):
    """Of the drivers of a changefeed. `sink`: the URI of a sink below a folder."""

    def __init__(
        self,
        history: History,
        folder: Path,
        sink: Callable[[Path], str],
        reader: Callable[[Path, Seen | None], Reader[Seen]],
        toml: str = "",
        *,
        behind: bool = False,
        supplies: Supplies | None = None,
    ) -> None:
        super().__init__(folder, lambda run: Changefeed(history, run, sink(run), toml).drive, reader, behind=behind, supplies=supplies)
