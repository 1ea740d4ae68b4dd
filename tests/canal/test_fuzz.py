"""Fuzzers of Canal's codec and of the conversation, on both sides: whatever comes is answered or closes the connection, nothing is kept
without end, and no position moves past an entry that was not given.

In seconds here. `TIDEMILL_FUZZ=N pytest tests/canal/test_fuzz.py` does N times as much, of other bytes each: 200 take about ten minutes.
"""

from __future__ import annotations

import itertools
import random
import resource
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.canal.client import PlainClient
from tests.support.canal.golden import conversations, frames
from tests.support.canal.server_runs import ServerThread
from tests.support.canal.store import GrowingStore, Made, MemoryEntries, random_entries, texts, transactions
from tests.support.rows.mutation import mutated
from tests.support.rows.random_rows import maximal_varint
from tests.support.thorough import FUZZ
from tidemill.canal.client.conversation import Conversation as ClientConversation
from tidemill.canal.client.conversation import State as ClientState
from tidemill.canal.conversation.actions import Action, Close, Fetch, Send
from tidemill.canal.conversation.desk import Access, Desk, Destination
from tidemill.canal.conversation.fast_cutting import cutter
from tidemill.canal.conversation.machine import LARGEST_FRAME, Conversation, State
from tidemill.canal.conversation.subscriber import Key, Subscriber
from tidemill.canal.scramble import Credential, scramble, stored
from tidemill.canal.server.config import settings_of
from tidemill.canal.server.connection import MOST_WAITING
from tidemill.changelog.storage.open import LocalStorage
from tidemill.errors import LogUnavailable, MalformedMessage, PositionGone, TidemillError
from tidemill.kernels.decode.canal_columns import decode_array
from tidemill.protocols.canal import packets as p
from tidemill.protocols.canal.arrow import decode_plainly
from tidemill.protocols.canal.decode import events_of
from tidemill.protocols.canal.parse import parse_entry

pytestmark = pytest.mark.timeout(120 * FUZZ)
MIB = 1 << 20
SEEDS, PASSWORD = b"12345678", "quiet"
FILTERS = (
    *("", r".*\..*", "db\\.t1", "db\\.t[0-2],db\\.t3"),
    *("(", "(a*)*b", "((((a+)+)+)+)+$", "(?=db)db\\.t1", "x{1,1000}" * 9, "\\1", "\xff", "." * 999),
)
"""Good ones, and such as do not compile or would never end."""


@cache
def recorded() -> list[dict[str, Any]]:
    return [one for one in conversations() if sum(len(data) for _, _, data in one["events"]) < 1 << 15]


@cache
def packets() -> list[bytes]:
    return [bytes.fromhex(line["hex"])[4:] for line in frames()]


def changed(rng: random.Random, data: bytes, often: float = 0.7) -> bytes:
    """The bytes as they are, or spoiled."""
    if rng.random() >= often:
        return data
    made = bytearray(mutated(rng, data))
    if rng.random() < 0.4:
        at = rng.randrange(len(made) + 1)
        made[at:at] = maximal_varint(rng)
    return bytes(made)


def framed(rng: random.Random, packet: bytes) -> bytes:
    """A packet behind its length, or behind another one."""
    if rng.random() < 0.98:
        return p.frame(packet)
    return rng.choice((0, 1, len(packet) + rng.randrange(9), 1 << 20, (1 << 27) + 1, 0xFFFFFFFF)).to_bytes(4, "big") + packet


def pieces(rng: random.Random, data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = rng.choice((1, 3, 50, 1 << 20))
        yield data[at : at + size]
        at += size


# Codec


def outcome(work: Any, *arguments: Any, **options: Any) -> Any:
    try:
        return work(*arguments, **options)
    except MalformedMessage as error:
        return str(error)


def entries_of(data: bytes) -> list[bytes]:
    with suppress(p.PacketError):
        body = p.parse_packet(data)
        if isinstance(body, p.Messages):
            return [bytes(entry) for entry in body.entries]
    return []


def test_codec() -> None:
    """What is read can be written and is the same; the kernel reads what the reference reads, and refuses what it refuses."""
    entries = list(itertools.chain.from_iterable(map(entries_of, packets())))
    read = refused = 0
    for round_ in range(3000 * FUZZ):
        rng = random.Random(f"codec {round_}")
        try:
            body = p.parse_packet(changed(rng, rng.choice(packets())))
        except p.PacketError:
            refused += 1
        else:
            read += 1
            if isinstance(body, p.Ack) and not body.error_code:
                body = p.Ack()  # one of success has no text when it is written
            if not isinstance(body, p.Unknown):
                assert p.parse_packet(p.write_packet(body)) == body, round_
        entry = changed(rng, rng.choice(entries))
        with suppress(MalformedMessage):
            events_of(parse_entry(entry))
        if round_ % 10 == 0:
            values = pa.array([entry, rng.choice(entries), None], pa.binary())
            assert outcome(decode_array, values, entries=True) == outcome(decode_plainly, values, entries=True), round_
    assert read > 500
    assert refused > 500


# The client's side


def test_client() -> None:
    """Answers of a server that were changed: errors of the client, or answers."""
    limit = 1 << 12
    for round_ in range(150 * FUZZ):
        rng = random.Random(f"client {round_}")
        conversation = ClientConversation(limit)
        with suppress(TidemillError, ValueError):  # ValueError: what a recorded client sent is not a request
            for _, direction, data in rng.choice(recorded())["events"]:
                if direction == "c2s":
                    if conversation.state is not ClientState.NEW:
                        with suppress(p.PacketError):
                            conversation.request(p.parse_packet(data[4:]))  # type: ignore[arg-type]
                    continue
                for piece in pieces(rng, framed(rng, changed(rng, data[4:], 0.1))):
                    conversation.receive(piece)
                    while conversation.next_answer() is not None:
                        pass
                    assert conversation.waiting_bytes <= limit + 4 + len(piece), round_


# The server's side


@dataclass
class Line:
    """One connection."""

    conversation: Conversation
    sent: bytearray = field(default_factory=bytearray)
    fetch: Fetch | None = None
    closed: bool = False

    def do(self, actions: list[Action]) -> None:
        for action in actions:
            assert not self.closed
            if isinstance(action, Send):
                self.sent += b"".join(action.parts)
            elif isinstance(action, Fetch):
                assert self.fetch is None
                self.fetch = action
            elif isinstance(action, Close):
                self.closed = True
        assert self.closed == (self.conversation.state is State.OVER)

    def answers(self) -> list[p.Body]:
        """What the server has sent since, which is always whole."""
        found, at = [], 0
        while (taken := p.take_frame(bytes(self.sent), at)) is not None:
            packet, at = taken
            found.append(p.parse_packet(packet))
        assert at == len(self.sent)
        self.sent.clear()
        return found


class Crowd:
    """A server, clients that do anything on d and e, and one on `quiet`, whose password they do not know."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.source = MemoryEntries(10)
        self.entries: list[Made] = []
        self.now = 11
        listed = (Destination("d"), Destination("e", items=True, alone=True, any=True))
        quiet = Destination("quiet", credential=Credential("", bytes.fromhex(stored(PASSWORD))))
        self.desk = Desk({one.name: one for one in (*listed, quiet)}, Access(), self.source.begins)
        self.lines = [self.user() for _ in range(3)]
        self.good, self.got = self.line(), list[bytes]()
        self.say(self.good, p.ClientAuth("", scramble(PASSWORD, SEEDS)), p.Subscription("quiet", "1"))

    def line(self) -> Line:
        made = Line(Conversation(self.desk, SEEDS))
        made.do(made.conversation.start())
        made.answers()
        return made

    def user(self) -> Line:
        """A connection that has logged in and subscribed, mostly."""
        made = self.line()
        if self.rng.random() < 0.9:
            self.say(made, p.ClientAuth(""), p.Subscription(*self.who(), ""))
        return made

    def who(self) -> tuple[str, str]:
        return self.rng.choice(("d", "e")), self.rng.choice(("1", "2"))

    def say(self, line: Line, *bodies: p.Body) -> list[p.Body]:
        line.do(line.conversation.receive(b"".join(p.frame(p.write_packet(body)) for body in bodies)))
        self.give(line)
        return line.answers()

    def give(self, line: Line) -> None:
        """What a line's GET asks for, or that it cannot be had."""
        ask, line.fetch = line.fetch, None
        if ask is None:
            return
        trouble = self.rng.random() if line is not self.good else 1.0
        if trouble < 0.1:
            fault = LogUnavailable("away") if trouble < 0.05 else PositionGone("gone")
            line.do(line.conversation.fetched(None if trouble < 0.02 else fault))
            return
        cut = cutter(ask.selector, ask.demand, ask.begin)
        for block, first in self.source.blocks(cut.seen):
            cut.feed(block, first)
        if not cut.over:
            cut.reach(self.source.head())
        line.do(line.conversation.fetched(cut.batch()))

    def grow(self) -> None:
        more = random_entries(self.rng, self.rng.randrange(4), self.now)
        self.now = max([self.now, *(one.commit_ts for one in more)]) + 1
        self.source.add(more, self.now - 1)
        self.entries += more

    def request(self) -> bytes:
        """What a client would send, mostly; any packet."""
        rng = self.rng
        if rng.random() < 0.7:
            where = self.who()
            key = Key(where[0], int(where[1]))
            client = self.desk.known(key)
            oldest = next(iter(client.open), -1) if client is not None else -1
            get = p.Get(*where, rng.choice((0, 1, 3)), rng.choice((-1, -1, 5, 0)), 2)
            subscription = p.Subscription(*where, rng.choice(FILTERS[:4]))
            return p.write_packet(rng.choice((get, get, get, p.ClientAck(*where, oldest), p.ClientRollback(*where, 0), subscription)))
        match rng.randrange(10):
            case 0:
                return rng.choice(packets())
            case 1:
                return rng.randbytes(rng.randrange(60))
        where = rng.choice(("d", "d", "d", "e", "e", "quiet", "none", "")), rng.choice(("1", "1", "2", "-5", "40000", "x", ""))
        number = rng.choice((0, -1, 1, 2, 3, 1 << 40, -(1 << 63), *self.open_ids()))
        own = where if rng.random() < 0.3 else ("", "")
        timeout, unit = rng.choice((None, -1, 0, 5, 1 << 62, -7)), rng.choice((None, 0, 6, -1))
        bodies: tuple[p.Body, ...] = (
            p.ClientAuth(rng.choice(("", "u")), rng.choice((b"", b"x", b"0" * 40)), destination=own[0], client_id=own[1]),
            p.Subscription(*where, rng.choice(FILTERS)),
            p.Unsubscription(*where),
            *[p.Get(*where, rng.choice((0, 1, 3, 1000, -1, (1 << 31) - 1)), timeout, unit)] * 3,
            *[p.ClientAck(*where, number)] * 2,
            p.ClientRollback(*where, rng.choice((0, number))),
        )
        return p.write_packet(rng.choice(bodies))

    def open_ids(self) -> list[int]:
        return [number for client in self.desk for number in list(client.open)[:2]]

    def act(self) -> None:
        """Something happens."""
        rng = self.rng
        if rng.random() < 0.2:
            self.grow()
        at = rng.randrange(len(self.lines))
        line = self.lines[at]
        if line.closed or rng.random() < 0.02:
            line = self.lines[at] = self.user()
        spoil = changed if rng.random() < 0.2 else lambda rng, data: data
        data = b"".join(framed(rng, spoil(rng, self.request())) for _ in range(rng.choice((1, 1, 5))))
        for piece in pieces(rng, data):
            if line.closed or line.conversation.waiting_bytes > MOST_WAITING:
                break
            line.do(line.conversation.receive(piece))
            assert line.conversation.waiting_bytes <= max(LARGEST_FRAME + 4, MOST_WAITING) + len(piece)
        if rng.random() < 0.7:
            self.give(line)
        turns = len(data)
        while line.conversation.more and not line.closed and line.fetch is None:
            line.do(line.conversation.receive(b""))
            turns -= 1
            assert turns >= 0, "it goes on without an end"
        for answer in line.answers():
            assert isinstance(answer, p.Ack | p.Messages)
        for client in self.desk:
            whole(client)

    def read(self) -> None:
        """The good client goes on."""
        (answer,) = self.say(self.good, p.Get("quiet", "1", self.rng.choice((0, 1, 100)), -1, 2))
        assert isinstance(answer, p.Messages), answer
        if answer.batch_id != -1:
            self.got += [bytes(one) for one in answer.entries]
            assert self.say(self.good, p.ClientAck("quiet", "1", answer.batch_id)) == []


def whole(client: Subscriber) -> None:
    """From what was acknowledged to what was given open batches follow each other without a gap."""
    at = client.acked
    for begin, end in client.open.values():
        assert begin == at
        at = end
    assert at == client.read


def test_server() -> None:
    acknowledged = rolled_back = 0
    for round_ in range(12 * FUZZ):
        crowd = Crowd(random.Random(f"server {round_}"))
        for _ in range(60):
            crowd.act()
            if crowd.rng.random() < 0.3:
                crowd.read()
        while len(crowd.got) < len(crowd.entries):
            before = len(crowd.got)
            crowd.read()
            assert len(crowd.got) > before
        assert crowd.got == [one.data for one in crowd.entries], round_
        assert len(list(crowd.desk)) < 100
        acknowledged += sum(client.counts.acks for client in crowd.desk if client.key.destination != "quiet")
        rolled_back += sum(client.counts.rollbacks for client in crowd.desk)
    assert acknowledged > 20 * FUZZ
    assert rolled_back > 20 * FUZZ


# The process


def memory() -> int:
    """Bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_sockets(tmp_path: Path) -> None:
    """Strangers connect and send anything; another client is served on, and memory stays as it is."""
    before = 0
    for part in range(FUZZ):
        strangers(tmp_path / str(part), part)
        before = before or memory()
    assert memory() < before + 64 * MIB


def strangers(folder: Path, part: int) -> None:
    store = GrowingStore(LocalStorage(folder, sync=False))
    crowd = Crowd(random.Random("requests"))
    with ServerThread(store.storage, settings_of({}, {"d": {}, "e": {"get.wait": "any"}}, "test")) as server:
        host, _, port = server.address.rpartition(":")
        with PlainClient(server.address, client=77) as good:
            for round_ in range(40):
                crowd.rng = rng = random.Random(f"sockets {part} {round_}")
                with socket.create_connection((host, int(port)), timeout=30) as stranger, suppress(ConnectionError):
                    if rng.random() < 0.8:
                        stranger.sendall(p.frame(p.write_packet(p.ClientAuth(""))))
                    for _ in range(rng.randrange(12)):
                        stranger.sendall(framed(rng, changed(rng, crowd.request())))
                    if rng.random() < 0.5:
                        with suppress(OSError):  # the server was quicker
                            stranger.shutdown(socket.SHUT_WR)
                        while stranger.recv(1 << 16):
                            pass
                ts = 20 + round_
                store.add(transactions(ts), ts)
                number, found = good.get()
                assert found == texts(ts), (part, round_)
                good.ack(number)
            server.until(lambda status: status["connections"] == 1 and status["memory_bytes"] == 0)
    assert server.error is None
