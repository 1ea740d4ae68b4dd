"""The publication protocol: how a driver makes a batch visible in a store, whatever drivers before it still do.

A driver may be frozen at any step and go on hours later, when others have delivered much more. So nothing is published because a driver
*was* the newest one a moment ago. A publication is a plan: steps that bring an interval in front of readers. `.tidemill/publication.json`
holds the claim of the driver that publishes and its last plan.

    publisher.claim(ctx)                 begin: take the note over, finish the plan in it
    publisher.publish(ctx, plan)         end of a batch

Invariants:

 1. The note changes by compare-and-swap only. A driver writes a plan only over a note with its own claim.
 2. A driver claims the note first and checks the fence then. So a driver of the past, which fails at the fence, writes no plan, and one
    whose check succeeded before its successor took the fence loses its claim before that successor writes a plan.
 3. A plan is durable before its first step, and has all that its steps need. So the names of staged files are durable before their plan.
 4. A plan in the note is carried out to its end before another one replaces it: by the driver that wrote it or by the next that claims
    the note. It is never discarded.
 5. A step may be taken again at any time, by any driver. Once its plan has been carried out, it changes nothing:
      Create    keeps a file that is there
      Place     moves a staged file, which is there once
      Raise     compares positions and never moves one back
      Remove    removes what the plan makes superfluous
 6. The last step raises the position of the whole. A plan at or below that position has been carried out.
 7. Staged files are removed when no plan in the note needs them: after `publish`, or by `discard` of a plan that was never written.

A publication without a Place needs no note: its steps compare with what is there, and a batch that is repeated repeats them alike.

On a store without compare-and-swap (an S3 that knows no conditional requests) 1 and Raise hold between two requests only.
"""

from __future__ import annotations

import enum
import json
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tidemill import statefile
from tidemill.changelog.storage.state_file import StateFile
from tidemill.errors import SinkUnavailable
from tidemill.sinks import owner
from tidemill.sinks.base import BatchContext
from tidemill.sinks.parts import log_errors
from tidemill.sinks.storage import paths
from tidemill.sinks.storage.store import Store
from tidemill.statefile import Fields
from tidemill.tso import describe

log = logging.getLogger(__name__)

NOTE = f"{paths.FOLDER}/publication.json"
_KEPT_FILES = 100_000


class Position(enum.Enum):
    """What a file of a store says of progress, as a whole number that grows."""

    INDEX = "index"  # the number in the name of a data file
    CHECKPOINT = "checkpoint-ts"
    RESOLVED = "resolved_ts"

    def of(self, data: bytes, where: str) -> int:
        """Return the position in a file's content. Raises SinkError naming the file."""
        if self is Position.INDEX:
            return paths.number_in(data.decode("utf-8", "replace"), where)
        return statefile.read(data, where, owner.NOTE).integer(self.value)


class Step(Protocol):
    """See invariant 5. Steps are values: `to_json` is what the note holds."""

    def take(self, publisher: Publisher) -> None:
        """Take the step. Raises SinkError, SinkUnavailable."""

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Create:
    """Write small files, unless they exist."""

    files: Mapping[str, bytes]

    def take(self, publisher: Publisher) -> None:
        for name, data in self.files.items():
            publisher.store.create(name, data)

    def to_json(self) -> dict[str, Any]:
        return {"step": "create", "files": {name: data.decode() for name, data in self.files.items()}}

    @classmethod
    def from_json(cls, found: Fields, where: str) -> Create:
        return cls({paths.inside(name, where): text.encode() for name, text in found.part("files").members()})


@dataclass(frozen=True, slots=True)
class Place:
    """Give staged files their names: (staged, name) each."""

    moves: Sequence[tuple[str, str]]

    def take(self, publisher: Publisher) -> None:
        publisher.store.move(self.moves)

    def to_json(self) -> dict[str, Any]:
        return {"step": "place", "moves": self.moves}

    @classmethod
    def from_json(cls, found: Fields, where: str) -> Place:
        return cls([(paths.inside(old, where), paths.inside(new, where)) for old, new in found.text_pairs("moves")])


@dataclass(frozen=True, slots=True)
class Raise:
    """Replace a small file unless it says the same position or a later one."""

    name: str
    data: bytes
    position: Position

    def take(self, publisher: Publisher) -> None:
        publisher.raise_to(self)

    def to_json(self) -> dict[str, Any]:
        return {"step": "raise", "name": self.name, "data": self.data.decode(), "position": self.position.value}

    @classmethod
    def from_json(cls, found: Fields, where: str) -> Raise:
        return cls(paths.inside(found.text("name"), where), found.text("data").encode(), found.choice("position", Position))

    def behind(self, data: bytes | None, where: str) -> bool:
        """Return whether a file's content (None: there is no file) is behind this step."""
        return data is None or self.position.of(data, where) < self.position.of(self.data, where)


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove files that the plan's other files replace."""

    names: Sequence[str]

    def take(self, publisher: Publisher) -> None:
        for name in self.names:
            publisher.store.delete(name)

    def to_json(self) -> dict[str, Any]:
        return {"step": "remove", "names": list(self.names)}

    @classmethod
    def from_json(cls, found: Fields, where: str) -> Remove:
        return cls([paths.inside(name, where) for name in found.texts("names")])


_STEPS: Mapping[str, Callable[[Fields, str], Step]] = {
    "create": Create.from_json,
    "place": Place.from_json,
    "raise": Raise.from_json,
    "remove": Remove.from_json,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a batch publishes: steps in order, then the position of the whole. `folder`: the attempt's staged files."""

    from_ts: int
    to_ts: int
    folder: str
    steps: Sequence[Step]
    last: Raise

    @property
    def needs_note(self) -> bool:
        """Whether the plan has to be durable before its first step."""
        return any(isinstance(step, Place) for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as the note holds it."""
        interval = {"from_ts": self.from_ts, "to_ts": self.to_ts, "folder": self.folder}
        return {**interval, "steps": [step.to_json() for step in self.steps], "last": self.last.to_json()}

    @classmethod
    def from_json(cls, found: Fields, where: str) -> Plan:
        """Raises SinkError naming the file."""
        steps: list[Step] = []
        for step in found.parts("steps"):
            read = _STEPS.get(step.text("step"))
            if read is None:
                raise step.broken(f"no step is called {step.text('step')!r}")
            steps.append(read(step, where))
        folder = paths.inside(found.text("folder"), where)
        return cls(found.integer("from_ts"), found.integer("to_ts"), folder, steps, Raise.from_json(found.part("last"), where))


@dataclass(frozen=True, slots=True)
class Note:
    """What `.tidemill/publication.json` holds."""

    claim: str = ""
    epoch: int = 0
    plan: Plan | None = None

    def to_json(self) -> bytes:
        """Return the file's content."""
        plan = {"plan": self.plan.to_json()} if self.plan is not None else {}
        return json.dumps({"format": 2, "claim": self.claim, "epoch": self.epoch, **plan}).encode()

    @classmethod
    def from_json(cls, data: bytes | None, where: str) -> Note:
        """Raises SinkError naming the file."""
        if data is None:
            return cls()
        found = statefile.read(data, where, owner.NOTE)
        plan = Plan.from_json(found.part("plan"), where) if "plan" in found else None
        return cls(found.text("claim"), found.integer("epoch", 0, 1 << 62), plan)


class Publisher:
    """One driver's side of the protocol. Its calls raise SinkError, SinkUnavailable, Fenced."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._where = f"{store}/{NOTE}"
        self._claim = ""
        self._files: dict[str, StateFile] = {}  # those that this driver wrote last: they know their versions

    def claim(self, ctx: BatchContext) -> None:
        """Become the driver that publishes, and finish the plan that the last one has left."""
        self._files.clear()
        claim = secrets.token_hex(8)
        note = self._change(lambda note: Note(claim, ctx.epoch, note.plan))
        ctx.check_fence(now=True)
        self._claim = claim
        if note.plan is not None and not self._carried_out(note.plan):
            log.warning("%s: finishing what was published in part, up to %s", self.store, describe(note.plan.to_ts))
            self._carry_out(note.plan)

    def publish(self, ctx: BatchContext, plan: Plan) -> None:
        """Carry a plan out. Raises SinkUnavailable if another driver has claimed the note meanwhile: the attempt has to be repeated."""
        ctx.check_fence(now=True)
        if plan.needs_note:
            self.store.settle([staged for step in plan.steps if isinstance(step, Place) for staged, _ in step.moves])
            self._change(lambda note: self._over(note, ctx, plan))
        self._carry_out(plan)

    def needs(self, folder: str) -> bool:
        """Return whether a plan that is not carried out needs an attempt's staged files."""
        plan = Note.from_json(self.store.read(NOTE), self._where).plan
        return plan is not None and plan.folder == folder and not self._carried_out(plan)

    def forget(self) -> None:
        """Forget the plan in the note, for a store that is emptied. Only behind `claim`."""
        self._change(lambda note: Note(note.claim, note.epoch))

    def raise_to(self, step: Raise) -> None:
        """Take a Raise. What this driver wrote last is not read again."""
        file = self._files.pop(step.name, None) or self.store.shared_file(step.name)
        with log_errors():
            file.change(lambda found: step.data if step.behind(found, f"{self.store}/{step.name}") else None)
        if len(self._files) >= _KEPT_FILES:
            self._files.clear()
        self._files[step.name] = file

    def _over(self, note: Note, ctx: BatchContext, plan: Plan) -> Note:
        if note.claim != self._claim:
            ctx.check_fence(now=True)
            raise SinkUnavailable(f"{self.store}: another driver, of epoch {note.epoch}, has begun to publish; this is epoch {ctx.epoch}")
        return Note(note.claim, ctx.epoch, plan)

    def _change(self, change: Callable[[Note], Note]) -> Note:
        written = Note()

        def changed(data: bytes | None) -> bytes:
            nonlocal written
            written = change(Note.from_json(data, self._where))
            return written.to_json()

        self.store.change(NOTE, changed)
        return written

    def _carried_out(self, plan: Plan) -> bool:
        return not plan.last.behind(self.store.read(plan.last.name), f"{self.store}/{plan.last.name}")

    def _carry_out(self, plan: Plan) -> None:
        for step in plan.steps:
            step.take(self)
        plan.last.take(self)
