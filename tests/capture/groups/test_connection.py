"""The connections between a coordinator and its groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.capture.captures import until
from tests.support.capture.loops import run
from tidemill.capture.groups.connection import Wire
from tidemill.capture.groups.credentials import Credentials, new_token
from tidemill.capture.groups.group import Group, Outcome
from tidemill.capture.groups.messages import (
    Assignment,
    Challenge,
    Ended,
    Head,
    Hello,
    Report,
    Stop,
    encode,
    is_proof,
    proof,
)
from tidemill.capture.groups.scheduler import (
    Who,
)
from tidemill.capture.groups.server import STRANGER_LINE, Control
from tidemill.capture.status import Section
from tidemill.errors import MalformedMessage


def who(attempt: int) -> Who:
    return Who(attempt, 1000 + attempt, "h", 70 + attempt)


@dataclass
class Heard:
    """A coordinator that records what it is told."""

    came_: list[tuple[int, Who]] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    gone: list[tuple[int, int]] = field(default_factory=list)
    then: Callable[[int, int], None] = lambda group, attempt: None

    def came(self, group: int, who: Who) -> None:
        self.came_.append((group, who))
        self.then(group, who.attempt)

    def reported(self, group: int, attempt: int, section: Section) -> None:
        self.sections.append(section)

    def failed(self, group: int, attempt: int, ended: Ended) -> None:
        self.ended.append(ended)

    def went(self, group: int, attempt: int) -> None:
        self.gone.append((group, attempt))


async def control(heard: Heard, token: str) -> Control:
    made = Control(token, heard, lambda group: Assignment((group,), "7", {}, 10, 5))
    await made.start("127.0.0.1")
    return made


def test_who_does_not_know_the_token_is_let_in_nowhere(tmp_path: Path) -> None:
    async def main() -> None:
        heard, token = Heard(), new_token()
        one = await control(heard, token)
        stranger = Group(Credentials("127.0.0.1", one.port, "/log", new_token()), 0, 0, tmp_path)
        assert await stranger.run() is Outcome.LOST
        wire = await Wire.connect("127.0.0.1", one.port)
        assert isinstance(await wire.receive(), Challenge)
        wire.send(Stop())
        assert await wire.receive() is None
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert len((await reader.read()).splitlines()) == 1, "the challenge, then the end"
        writer.close()
        assert heard.came_ == []
        await one.stop()

    run(main())


def test_a_line_of_a_stranger_is_short(tmp_path: Path) -> None:
    """What is sent before the proof of the token is not kept."""

    async def main() -> None:
        one = await control(Heard(), new_token())
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
        await reader.readline()
        writer.write(b"x" * (2 * STRANGER_LINE))  # no end of a line
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        await one.stop()

    run(main())


def test_a_coordinator_that_does_not_know_the_token_is_not_believed(tmp_path: Path) -> None:
    async def main() -> None:
        async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(encode(Challenge("n")))
            await reader.readline()
            writer.write(encode(Assignment((0,), "7", {}, 10, 5, "guess")))
            await reader.read()
            writer.close()

        async with await asyncio.start_server(pretend, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(MalformedMessage, match="is not this capture's coordinator"):
                await Group(Credentials("127.0.0.1", port, "/log", new_token()), 0, 0, tmp_path).run()

    run(main())


def test_what_is_said_arrives_and_an_end_is_noticed(tmp_path: Path) -> None:
    async def main() -> None:
        heard, token = Heard(), new_token()
        one = await control(heard, token)
        heard.then = one.assign
        wire = await Wire.connect("127.0.0.1", one.port)
        challenge = await wire.receive()
        assert isinstance(challenge, Challenge)
        wire.send(Hello(1, 4, 99, "h", 12, "mine", proof(token, "group", challenge.nonce, "mine", 1, 4)))
        answer = await wire.receive()
        assert isinstance(answer, Assignment)
        assert (answer.partitions, answer.head, answer.last_to) == ((1,), 10, 5)
        assert is_proof(answer.proof, token, "coordinator", "mine", 1, 4)
        one.head(1, 4, 20, 15)
        one.order(1, 4)
        one.order(1, 3)  # nobody
        assert [await wire.receive() for _ in range(2)] == [Head(20, 15), Stop()]
        wire.send(Report({"heads": {"1": 20}, "rows": 3}))
        wire.send(Ended("TM:ErrLog", "no", False))
        wire.close()
        await until(lambda: heard.gone == [(1, 4)])
        assert heard.came_ == [(1, Who(4, 99, "h", 12))]
        assert heard.sections == [Section(heads={1: 20}, rows=3)]
        assert heard.ended == [Ended("TM:ErrLog", "no", False)]
        await one.stop()

    run(main())


def test_an_attempt_is_connected_once_and_a_refusal_says_why(tmp_path: Path) -> None:
    async def main() -> None:
        heard, token = Heard(), new_token()
        one = await control(heard, token)
        credentials = Credentials("127.0.0.1", one.port, "/log", token)
        first = asyncio.ensure_future(Group(credentials, 0, 1, tmp_path).run())
        await until(lambda: len(heard.came_) == 1)
        assert await Group(credentials, 0, 1, tmp_path).run() is Outcome.LOST
        one.refuse(0, 1, "another has it")
        assert await first is Outcome.LOST
        await until(lambda: heard.gone == [(0, 1)])
        await one.stop()

    run(main())
