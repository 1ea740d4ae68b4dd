"""Plays recorded conversations of Canal's clients against the pure conversation, and tells where the answers differ from Canal's.

The store holds the entries that the recorded server sent, in the binlog's order; at each recorded answer those up to the last one that
had been sent by then. A GET is answered when the recorded one was. After a connection that the server closes where Canal answered
something that nobody asked for, the client connects, logs in and subscribes again.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.canal.store import Made, MemoryEntries
from tidemill.canal.conversation.actions import Close, Fetch, Send
from tidemill.canal.conversation.desk import Desk
from tidemill.canal.conversation.fast_cutting import cutter
from tidemill.canal.conversation.machine import Conversation, State
from tidemill.canal.conversation.subscriber import Record
from tidemill.canal.server.config import settings_of
from tidemill.canal.server.settings import ServerSettings
from tidemill.protocols.canal.codes import EntryType, PacketType
from tidemill.protocols.canal.packets import Ack, Body, Handshake, Messages, PacketError, parse_packet, take_frame
from tidemill.wire import canal_entry_pb2 as pb

FILE = Path(__file__).parents[2] / "golden" / "canal" / "recordings.jsonl.gz"
REFUSED = (
    "canal.instance.memory.rawEntry",
    "canal.instance.memory.buffer.size",
    "canal.instance.transaction.size",
    "canal.instance.gtidon",
)
"""Properties of Canal's own store: the recording is played without them."""


@dataclass(frozen=True, slots=True)
class Step:
    """`kind`: open, c2s, s2c, end c2s, end s2c, action."""

    at: int
    kind: str
    conn: int
    data: bytes
    text: str


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recording."""

    scenario: str
    destination: str
    options: dict[str, str]
    user: str | None
    password: str | None
    steps: list[Step]


def recordings() -> dict[str, Recorded]:
    """All of them by name."""
    found = {}
    with gzip.open(FILE, "rt") as file:
        for line in file:
            one = json.loads(line)
            steps = [
                Step(at, kind, conn, b"" if kind == "action" else base64.b64decode(data), data if kind == "action" else "")
                for at, kind, conn, data in one["steps"]
            ]
            options = dict(tuple(part.strip() for part in text.split("=", 1)) for text in one["options"])
            found[one["scenario"]] = Recorded(
                one["scenario"], one["destination"] or "example", options, one["user"], one["so"].get("password_plain"), steps
            )
    return found


def settings(recorded: Recorded, stored: str) -> ServerSettings:
    """`stored`: the password as canal.passwd has it."""
    common = {"canal.user": recorded.user, "canal.passwd": stored} if recorded.user is not None else {}
    own = {name: value for name, value in recorded.options.items() if name not in REFUSED}
    return settings_of(common, {recorded.destination: own}, recorded.scenario)


def packets(data: bytes) -> Iterator[bytes]:
    """The packets of whole frames."""
    at = 0
    while (taken := take_frame(data, at, 1 << 31)) is not None:
        packet, at = taken
        yield packet


def body_of(packet: bytes) -> Body | None:
    try:
        return parse_packet(packet)
    except PacketError:
        return None


class Log:
    """The entries that a recorded server sent, in the binlog's order, with a commit_ts for each transaction and DDL."""

    def __init__(self, recorded: Recorded) -> None:
        found: dict[tuple[str, int, int], bytes] = {}
        for step in recorded.steps:
            if step.kind == "s2c":
                for packet in packets(step.data):
                    body = body_of(packet)
                    for data in body.entries if isinstance(body, Messages) else ():
                        found.setdefault(self._key(data), bytes(data))
        self.keys = sorted(found, key=lambda key: key[:2])  # entries of one event stay as they were sent
        self.made = list(self._made([found[key] for key in self.keys]))

    def _key(self, data: bytes) -> tuple[str, int, int]:
        head = pb.Entry.FromString(bytes(data))
        header = head.header
        return header.logfile_name.decode(), header.logfile_offset, int(head.entry_type)

    def number(self, data: bytes) -> int:
        """Which entry it is: sent again it may have another table id."""
        return self.keys.index(self._key(data))

    def _made(self, listed: list[bytes]) -> Iterator[Made]:
        ts, inside = 1000, False
        for data in listed:
            entry = pb.Entry.FromString(data)
            kind = EntryType(entry.entry_type or EntryType.ROWDATA)
            name = (entry.header.schema_name.decode(), entry.header.table_name.decode())
            rows, ddl = 0, False
            if kind == EntryType.ROWDATA:
                change = pb.RowChange.FromString(entry.store_value)
                rows, ddl = len(change.row_datas), change.is_ddl or not change.row_datas
            if kind == EntryType.TRANSACTIONBEGIN or (not inside):
                ts += 1
            inside = kind == EntryType.TRANSACTIONBEGIN or (inside and kind != EntryType.TRANSACTIONEND)
            yield Made(ts, data, kind, name, int(entry.header.event_type), rows, ddl)


@dataclass
class Line:
    """A connection."""

    conversation: Conversation
    answers: list[Body | str] = field(default_factory=list)
    fetch: Fetch | None = None
    login: bytes = b""
    subscription: bytes = b""
    seeds: bytes = b""
    compared: int = 0
    lost: bool = False


class Player:
    """Plays one. `differences` tells where it went otherwise."""

    def __init__(self, recorded: Recorded, stored: str) -> None:
        self._recorded, self._settings = recorded, settings(recorded, stored)
        self._log, self._shown = Log(recorded), 0
        self._source = MemoryEntries(1000)
        self._desk = self._new_desk()
        self._lines: dict[int, Line] = {}
        self.differences: list[str] = []

    def _new_desk(self) -> Desk:
        return Desk(self._settings.destinations, self._settings.access, self._source.begins)

    def play(self) -> list[str]:
        """Play all; the differences."""
        steps = self._recorded.steps
        for number, step in enumerate(steps):
            if step.kind == "open":
                self._open(step.conn, self._seeds(steps[number:], step.conn))
            elif step.kind == "c2s":
                self._sent(step, self._lines[step.conn])
            elif step.kind == "s2c":
                self._received(step, self._lines[step.conn])
            elif step.kind == "end s2c":
                self._ended(step, steps[:number])
            elif "server started again" in step.text:
                self._restart()
        return self.differences

    @staticmethod
    def _seeds(rest: list[Step], conn: int) -> bytes:
        for step in rest:
            if step.kind == "s2c" and step.conn == conn:
                body = body_of(next(packets(step.data)))
                if isinstance(body, Handshake):
                    return body.seeds
        return b"12345678"

    def _open(self, conn: int, seeds: bytes) -> None:
        line = self._lines[conn] = Line(Conversation(self._desk, seeds), seeds=seeds)
        self._do(line, line.conversation.start())

    def _restart(self) -> None:
        """Only what is on disk is left."""
        kept = {client.key: client.record.to_json() for client in self._desk}
        self._desk = self._new_desk()
        for key, data in kept.items():
            self._desk.restore(key, Record.from_json(data, str(key)))

    def _do(self, line: Line, actions: list[Any]) -> None:
        for action in actions:
            if isinstance(action, Send):
                answer = parse_packet(next(packets(b"".join(action.parts))))
                line.answers.append(answer)
            elif isinstance(action, Close):
                line.answers.append("closed")
            elif isinstance(action, Fetch):
                line.fetch = action

    def _give(self, line: Line) -> None:
        """Answer the GET that waits with what the store has."""
        ask, line.fetch = line.fetch, None
        assert ask is not None
        cut = cutter(ask.selector, ask.demand, ask.begin)
        for block, first in self._source.blocks(cut.seen):
            cut.feed(block, first)
        cut.reach(self._source.head())
        self._do(line, line.conversation.fetched(cut.batch()))

    def _sent(self, step: Step, line: Line) -> None:
        if line.lost:
            self._again(line)
        for packet in packets(step.data):
            kind = packet_type(packet)
            if kind == PacketType.CLIENTAUTHENTICATION and not line.login:
                line.login = step.data
            elif kind == PacketType.SUBSCRIPTION:
                line.subscription = step.data
        self._do(line, line.conversation.receive(step.data))

    def _again(self, line: Line) -> None:
        """Connect again after the server closed."""
        fresh = Line(Conversation(self._desk, line.seeds), seeds=line.seeds)
        fresh.conversation.start()
        for data in (line.login, line.subscription):
            if data:
                fresh.conversation.receive(data)
        line.conversation, line.lost, line.fetch = fresh.conversation, False, None

    def _received(self, step: Step, line: Line) -> None:
        for packet in packets(step.data):
            want = parse_packet(packet)
            if isinstance(want, Messages) and line.fetch is not None:
                self._show(want)
                self._give(line)
            got = line.answers[line.compared] if line.compared < len(line.answers) else "no answer"
            line.compared += got != "no answer"
            if got == "closed":
                line.lost = True
            what = self._difference(want, got)
            if what:
                self.differences.append(f"{step.conn}: {what}")

    def _show(self, answer: Messages) -> None:
        """The store has what was sent up to here."""
        if answer.entries:
            end = max(self._log.number(data) for data in answer.entries) + 1
            while end < len(self._log.made) and self._log.made[end].commit_ts == self._log.made[end - 1].commit_ts:
                end += 1
            if end > self._shown:
                fresh, self._shown = self._log.made[self._shown : end], end
                self._source.add(fresh, fresh[-1].commit_ts)

    def _difference(self, want: Body, got: Body | str) -> str:
        if isinstance(got, str):
            return f"{got} instead of {described(want)}"
        same = type(got) is type(want)
        if same and isinstance(got, Ack) and isinstance(want, Ack):
            same = got.error_code == want.error_code
        elif same and isinstance(got, Messages) and isinstance(want, Messages):
            same = got.batch_id == want.batch_id and self._numbers(got) == self._numbers(want)
        return "" if same else f"{described(got)} instead of {described(want)}"

    def _numbers(self, answer: Messages) -> list[int]:
        return [self._log.number(data) for data in answer.entries]

    def _ended(self, step: Step, before: list[Step]) -> None:
        """The recorded server closed, unless the client had."""
        line = self._lines[step.conn]
        if any(one.kind == "end c2s" and one.conn == step.conn for one in before) or line.lost:
            return
        if "closed" not in line.answers and line.conversation.state is not State.OVER:
            self.differences.append(f"{step.conn}: open instead of closed")


def packet_type(packet: bytes) -> int:
    """Of a request; 0 for none."""
    body = body_of(packet)
    return {"ClientAuth": 2, "Subscription": 4}.get(type(body).__name__, 0)


def described(body: Body) -> str:
    """In a few words."""
    if isinstance(body, Ack):
        return f"ACK {body.error_code}" if body.error_code else "ACK"
    if isinstance(body, Messages):
        return f"batch {body.batch_id} of {len(body.entries)}"
    return type(body).__name__
