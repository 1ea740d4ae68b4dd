"""Gives a capture other table rules while it runs: nothing is started again, no subscription of a table that stays wanted ends.

The rules come as a numbered command of the server, and the answer says from which ts on they hold:

    {"do": "rules", "number": N, "rules": {"from_ts": 0, "rules": […], "case_sensitive": …}}
    {"is": "rules", "number": N, "rules": {"from_ts": TS, …}}

1. The schema stream stops at a ts a moment ahead. No folder is there yet, and none can pass it.
2. Once the schema is known up to exactly this ts, log.json gets the rules from there on. After a crash they hold, or they do not.
3. The spans of tables that are wanted now begin at this ts, and those of others end there.
4. The schema stream goes on, and with it the rows.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import NoReturn

from tidemill import tso
from tidemill.capture import rules
from tidemill.changelog.log_format import CaptureRules, LogIdentity
from tidemill.errors import MalformedMessage
from tidemill.process import orders

AHEAD_MS = 500
"""How far ahead the chosen ts is: longer than it takes to stop the schema stream."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Numbered:
    """The rules of a command or of the report about it."""

    number: int
    rules: CaptureRules


def command(asked: Numbered) -> bytes:
    """Return the line that gives a capture other rules."""
    return _line("do", asked)


def report(taken: Numbered) -> bytes:
    """Return the line that says which rules hold, and from when on."""
    return _line("is", taken)


def rules_in(line: bytes) -> Numbered | None:
    """Return what a command or a report says; None for another line. Raises MalformedMessage."""
    try:
        found = json.loads(line)
        if "rules" not in (found.pop("do", ""), found.pop("is", "")):
            return None
        said: Numbered = orders.from_plain(Numbered, found)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise MalformedMessage(f"a line between the server and its capture is not understood: {error}") from error
    return said


def _line(word: str, said: Numbered) -> bytes:
    return json.dumps({word: "rules", **orders.to_plain(said)}, separators=(",", ":")).encode() + b"\n"


class Wanted:
    """The rules that a capture is to have."""

    def __init__(self, first: CaptureRules | None, number: int, say: Callable[[bytes], None]) -> None:
        """`first`: None: those of the log. `number`: that of the command that they came with. `say`: takes reports."""
        self.rules, self.number, self._say = first, number, say
        self._asked = asyncio.Event()

    def ask(self, asked: Numbered) -> None:
        """Take other rules; on the event loop."""
        self.rules, self.number = asked.rules, asked.number
        self._asked.set()

    async def next(self) -> Numbered:
        """Wait for other rules."""
        await self._asked.wait()
        self._asked.clear()
        assert self.rules is not None
        return Numbered(self.number, self.rules)

    def settled(self, number: int, identity: LogIdentity) -> None:
        """Report the newest rules of the log, after this command."""
        self._say(report(Numbered(number, identity.rules_above(tso.MAX_TS)[0] or CaptureRules(0, rules.EVERYTHING))))


class Again(Exception):
    """Not an error: it ends the capture's tasks, so that it begins with other rules."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a capture that a change of the rules needs. `known`: up to where the schema is known. `freeze_at`: stops the schema
    stream at a ts; None: it goes on. `moved` is set when the schema has got further. `write`: gives log.json the rules. `take`: gives them
    to the spans; None: groups have the spans."""

    identity: Callable[[], LogIdentity]
    known: Callable[[], int]
    freeze_at: Callable[[int | None], None]
    moved: asyncio.Event
    now: Callable[[], Awaitable[int]]
    write: Callable[[CaptureRules], Awaitable[None]]
    take: Callable[[CaptureRules], None] | None


class RuleChanges:
    """Carries out what is asked for."""

    def __init__(self, wanted: Wanted, parts: Parts, freezing: asyncio.Lock) -> None:
        """`freezing`: held by whoever stops the schema stream."""
        self._wanted, self._parts, self._freezing = wanted, parts, freezing

    async def run(self) -> NoReturn:
        """Give the capture the rules that are asked for, forever. Raises Again where they are for groups."""
        while True:
            asked = await self._wanted.next()
            if not rules.same(self._parts.identity().rules_above(tso.MAX_TS)[0], asked.rules):
                if self._parts.take is None:
                    raise Again
                async with self._freezing:
                    await self._change(asked.rules, self._parts.take)
            self._wanted.settled(asked.number, self._parts.identity())

    async def _change(self, asked: CaptureRules, take: Callable[[CaptureRules], None]) -> None:
        parts = self._parts
        try:
            ts = await self._stop()
            entry = replace(asked, from_ts=ts)
            await parts.write(entry)
            take(entry)
            _log.info("from %s on the capture rules are %s", tso.describe(ts), ", ".join(entry.rules))
        finally:
            parts.freeze_at(None)

    async def _stop(self) -> int:
        """Return the ts up to which the schema is known, and at which it has stopped."""
        parts = self._parts
        while True:
            ts = await parts.now() + (AHEAD_MS << tso.LOGICAL_BITS)
            parts.freeze_at(ts)
            while parts.known() < ts:
                parts.moved.clear()
                await parts.moved.wait()
            if parts.known() == ts:
                return ts
            _log.info("the schema stream had passed %s before it could be stopped there: a later ts is tried", tso.describe(ts))
            parts.freeze_at(None)
