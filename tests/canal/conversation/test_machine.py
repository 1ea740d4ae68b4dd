"""The conversation: what is refused and how, batches, places, and what no client can make it do."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.canal.store import Made, MemoryEntries, transaction
from tests.support.thorough import FUZZ
from tidemill.canal.conversation.actions import Action, Close, Fetch, Idle, Save, Send
from tidemill.canal.conversation.cutting import Place, behind
from tidemill.canal.conversation.desk import Access, Desk, Destination
from tidemill.canal.conversation.fast_cutting import cutter
from tidemill.canal.conversation.filters import FilterError
from tidemill.canal.conversation.machine import LARGEST_FRAME, STRANGER_FRAME, Conversation, State
from tidemill.canal.conversation.subscriber import MOST_OPEN, Key, Record
from tidemill.canal.scramble import Credential, scramble, stored
from tidemill.errors import LogCorrupt, LogUnavailable, PositionGone
from tidemill.protocols.canal.packets import (
    Ack,
    Body,
    ClientAck,
    ClientAuth,
    ClientRollback,
    Get,
    Messages,
    Subscription,
    Unsubscription,
    frame,
    parse_packet,
    take_frame,
    write_packet,
)
from tidemill.wire import canal_packet_pb2 as pb

SEEDS = b"12345678"
AUTH, SUBSCRIBE, ALL_NOW = ClientAuth(""), Subscription("d", "1001"), Get("d", "1001", 1000, -1, 2)


def row(ts: int, table: str = "t", text: bytes = b"row") -> Made:
    return Made(ts, text + b" %d" % ts, name=("db", table), event=1, rows=1)


@dataclass
class Talk:
    """A client and what it is answered. GETs are answered at once with what there is."""

    desk: Desk
    source: MemoryEntries
    answers: list[Body] = field(default_factory=list)
    saved: list[Record] = field(default_factory=list)
    closed: str = ""
    idle: Idle | None = None
    hold: Fetch | None = None
    held: bool = False

    def __post_init__(self) -> None:
        self.conversation = Conversation(self.desk, SEEDS)
        self.do(self.conversation.start())
        self.answers.clear()

    def do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                taken = take_frame(b"".join(action.parts))
                assert taken is not None
                self.answers.append(parse_packet(taken[0]))
            elif isinstance(action, Save):
                self.saved.append(action.client.record)
            elif isinstance(action, Close):
                self.closed = action.reason
            elif isinstance(action, Idle):
                self.idle = action
            elif isinstance(action, Fetch):
                self.hold = action
                if not self.held:
                    self.give()

    def give(self) -> None:
        ask, self.hold = self.hold, None
        assert ask is not None
        cut = cutter(ask.selector, ask.demand, ask.begin)
        for block, first in self.source.blocks(cut.seen):
            cut.feed(block, first)
        if not cut.over:
            cut.reach(self.source.head())
        self.do(self.conversation.fetched(cut.batch()))

    def send(self, *bodies: Body) -> list[Body]:
        """The answers to these requests."""
        before = len(self.answers)
        self.do(self.conversation.receive(b"".join(frame(write_packet(body)) for body in bodies)))
        return self.answers[before:]


def desk(source: MemoryEntries, *destinations: Destination, access: Access | None = None) -> Desk:
    listed = destinations or (Destination("d"),)
    return Desk({one.name: one for one in listed}, access or Access(), source.begins)


def talk(entries: Sequence[Made] = (), *destinations: Destination, access: Access | None = None, login: bool = True) -> Talk:
    source = MemoryEntries(10)
    source.add(list(entries), max([10, *(one.commit_ts for one in entries)]))
    made = Talk(desk(source, *destinations, access=access), source)
    if login:
        assert made.send(AUTH, SUBSCRIBE) == [Ack(), Ack()]
    return made


def batch(answer: Body) -> tuple[int, list[bytes]]:
    assert isinstance(answer, Messages)
    return answer.batch_id, [bytes(one) for one in answer.entries]


SOME = [*transaction(11, [row(11)]), *transaction(12, [row(12)]), *transaction(13, [row(13)])]


def test_batches_are_counted_and_acknowledged_in_order() -> None:
    t = talk(SOME, Destination("d", items=True))
    three = Get("d", "1001", 3, -1, 2)
    assert [batch(t.send(three)[0])[0] for _ in range(4)] == [1, 2, 3, -1]
    t.saved.clear()
    assert t.send(ClientAck("d", "1001", 1)) == []
    assert t.saved[-1].place.position.commit_ts == 11
    t.send(ClientAck("d", "1001", 3))
    assert "not the firstly" in t.closed
    assert t.conversation.state is State.OVER
    assert t.send(ALL_NOW) == []


def test_rollback_gives_everything_again_with_new_ids() -> None:
    t = talk(SOME, Destination("d", items=True))
    first, second = (batch(t.send(Get("d", "1001", 3, -1, 2))[0]) for _ in range(2))
    t.send(ClientAck("d", "1001", 1), ClientRollback("d", "1001"))
    assert batch(t.send(Get("d", "1001", 3, -1, 2))[0]) == (3, second[1])
    assert first[1] != second[1]


def test_rollback_of_one_takes_the_younger_back_too() -> None:
    t = talk(SOME, Destination("d", items=True))
    batches = [batch(t.send(Get("d", "1001", 3, -1, 2))[0]) for _ in range(3)]
    t.send(ClientAck("d", "1001", 1), ClientRollback("d", "1001", 2))
    assert [batch(t.send(Get("d", "1001", 3, -1, 2))[0]) for _ in range(2)] == [(4, batches[1][1]), (5, batches[2][1])]
    t.send(ClientAck("d", "1001", 4), ClientAck("d", "1001", 5))
    assert not t.closed
    assert batch(t.send(ALL_NOW)[0]) == (-1, [])


def test_clients_of_a_destination_are_independent() -> None:
    t = talk([*transaction(11, [row(11, "a")]), *transaction(12, [row(12, "b")])])
    assert len(batch(t.send(ALL_NOW)[0])[1]) == 6
    assert t.send(Subscription("d", "7", r"db\.b")) == [Ack()]
    assert batch(t.send(Get("d", "7", 1000, -1, 2))[0]) == (1, [b"begin 12", b"row 12", b"end 12"])
    t.send(ClientAck("d", "7", 1), ClientAck("d", "1001", 1))
    assert not t.closed


def test_the_same_client_twice_shares_its_batches() -> None:
    one = talk(SOME, Destination("d", items=True))
    two = Talk(one.desk, one.source)
    two.send(AUTH, SUBSCRIBE)
    three = Get("d", "1001", 3, -1, 2)
    assert [batch(t.send(three)[0])[0] for t in (one, two, one)] == [1, 2, 3]
    two.send(ClientAck("d", "1001", 1))
    one.send(ClientAck("d", "1001", 2))
    assert not one.closed
    assert not two.closed


def test_a_get_that_waits_begins_again_when_another_connection_took_its_batch() -> None:
    one = talk(SOME, Destination("d", items=True))
    two = Talk(one.desk, one.source)
    two.send(AUTH, SUBSCRIBE)
    one.held = True
    assert one.send(Get("d", "1001", 3, 0, 2)) == []
    assert batch(two.send(Get("d", "1001", 3, -1, 2))[0])[0] == 1
    one.held = False
    one.give()
    assert batch(one.answers[-1]) == (2, [b"begin 12", b"row 12", b"end 12"])


def test_a_get_that_waited_does_not_move_its_client_back() -> None:
    """Another connection of the client has gone further, past what is not for it: that may be removed from the store by now."""
    one = talk()
    two = Talk(one.desk, one.source)
    two.send(AUTH, SUBSCRIBE)
    one.held = True
    for batch_of_before in (True, False):
        assert one.send(Get("d", "1001", 3, 5, 3)) == []
        ask = one.hold
        assert ask is not None
        cut = cutter(ask.selector, ask.demand, ask.begin)
        cut.reach(one.source.head())
        one.source.add([], one.source.head() + 10)
        assert two.send(ALL_NOW) == [Messages(-1)]
        (client,) = one.desk
        if batch_of_before:
            one.do(one.conversation.fetched(cut.batch()))
        else:
            ts = one.source.head() + 1
            one.source.add(transaction(ts, [row(ts)]), ts)
            one.give()
            assert client.open == {1: (Place(behind(30)), client.read)}
        assert client.acked == Place(behind(one.source.head() if batch_of_before else 30))


def test_requests_behind_a_get_that_waits_are_answered_behind_it() -> None:
    t = talk(SOME)
    t.held = True
    assert t.send(ALL_NOW, Unsubscription("d", "1001")) == []
    t.give()
    assert [type(one) for one in t.answers[-2:]] == [Messages, Ack]


def test_a_client_begins_where_it_is_told() -> None:
    t = talk(SOME, Destination("d", start_ts=12))
    assert batch(t.send(ALL_NOW)[0])[1] == [b"begin 13", b"row 13", b"end 13"]
    t.desk.seek(Key("d", 5), 11)
    assert t.send(Subscription("d", "5")) == [Ack()]
    assert len(batch(t.send(Get("d", "5", 1000, -1, 2))[0])[1]) == 6


def test_a_client_that_is_moved_or_forgotten() -> None:
    t = talk(SOME)
    t.send(ALL_NOW)
    t.desk.seek(Key("d", 1001), 12)
    assert batch(t.send(ALL_NOW)[0]) == (2, [b"begin 13", b"row 13", b"end 13"])
    assert t.desk.forget(Key("d", 1001))
    assert not t.desk.forget(Key("d", 1001))
    assert [type(one) for one in t.send(ALL_NOW)] == [Ack]
    assert t.send(SUBSCRIBE) == [Ack()]
    assert len(batch(t.send(ALL_NOW)[0])[1]) == 9


def test_a_place_behind_the_begin_of_the_store_is_told() -> None:
    t = talk(SOME)
    t.held = True
    t.send(ALL_NOW)
    t.do(t.conversation.fetched(PositionGone("the entry store begins at 12")))
    assert t.answers[-1] == Ack(400, "the entry store begins at 12")


def test_ddl_isolation() -> None:
    ddl = Made(12, b"alter", name=("db", "t"), event=5, ddl=True)
    t = talk([*transaction(11, [row(11)]), ddl, *transaction(13, [row(13)])], Destination("d", alone=True))
    assert [len(batch(t.send(ALL_NOW)[0])[1]) for _ in range(3)] == [3, 1, 3]


def test_what_is_not_for_the_client_moves_it_on() -> None:
    """So that what nobody needs can be removed, and a silent client is not behind."""
    t = talk(SOME, login=False)
    t.send(AUTH, Subscription("d", "1001", "other"))
    t.saved.clear()
    assert batch(t.send(ALL_NOW)[0]) == (-1, [])
    assert t.saved == [Record(Place(behind(13)), "other", subscribed=True)]


# ---- login


SECRET = Access(Credential("canal", bytes.fromhex(stored("Canal@123"))))


@pytest.mark.parametrize(
    ("body", "number"),
    [
        (ClientAuth("canal", scramble("Canal@123", SEEDS)), 0),
        (ClientAuth("canal", scramble("other", SEEDS)), 400),
        (ClientAuth("other", scramble("Canal@123", SEEDS)), 400),
        (ClientAuth("canal", b""), 400),
        (ClientAuth("canal", scramble("Canal@123", SEEDS) + b"00"), 400),
        (SUBSCRIBE, 400),
        (ALL_NOW, 400),
    ],
)
def test_login(body: Body, number: int) -> None:
    t = talk(access=SECRET, login=False)
    (answer,) = t.send(body)
    assert isinstance(answer, Ack)
    assert answer.error_code == number
    assert t.send(ClientAuth("canal", scramble("Canal@123", SEEDS))) == [Ack()] or number == 0


@pytest.mark.parametrize("password", [b"Canal@123", b"zz" * 20, b"00" * 19])
def test_what_is_no_token_closes(password: bytes) -> None:
    t = talk(access=SECRET, login=False)
    assert t.send(ClientAuth("canal", password)) == []
    assert t.closed


def test_plain_passwords_where_they_are_allowed() -> None:
    t = talk(access=Access(SECRET.credential, plain=True), login=False)
    assert t.send(ClientAuth("canal", b"Canal@123")) == [Ack()]


def test_a_destination_with_a_password_of_its_own() -> None:
    own = Credential("u", bytes.fromhex(stored("p")))
    t = talk((), Destination("d"), Destination("own", own), login=False)
    assert t.send(AUTH) == [Ack()]
    (answer,) = t.send(Subscription("own", "1"))
    assert isinstance(answer, Ack)
    assert answer.error_code == 400
    t = Talk(t.desk, t.source)
    assert t.send(ClientAuth("u", scramble("p", SEEDS)), Subscription("own", "1")) == [Ack(), Ack()]


def test_idle_times_are_milliseconds() -> None:
    t = talk(login=False)
    t.send(ClientAuth("", net_read_timeout=1500))
    assert t.idle == Idle(1.5, 3600.0)


# ---- what is refused


@pytest.mark.parametrize("text", ["(", "[a", "a{2,1}", r"(?<n", "*", "a" * 70_000, r"a,(b"])
def test_a_filter_that_does_not_compile_is_refused_at_once(text: str) -> None:
    t = talk()
    (answer,) = t.send(Subscription("d", "9", text))
    assert isinstance(answer, Ack)
    assert answer.error_code == 400
    (answer,) = t.send(Get("d", "9", 1, -1, 2))
    assert isinstance(answer, Ack)
    assert "should subscribe first" in answer.error_message


def test_the_filter_that_was_there_stays_when_another_is_refused() -> None:
    t = talk([*transaction(11, [row(11, "a")]), *transaction(12, [row(12, "b")])], login=False)
    t.send(AUTH, Subscription("d", "1001", r"db\.b"), Subscription("d", "1001", "("))
    assert batch(t.send(ALL_NOW)[0])[1] == [b"begin 12", b"row 12", b"end 12"]


@pytest.mark.parametrize(
    ("body", "number"),
    [
        (Subscription("", "1001"), 401),
        (Subscription("d", ""), 401),
        (Subscription("nosuch", "1001"), 400),
        (Subscription("d", "x"), 400),
        (Subscription("d", "32768"), 400),
        (Subscription("d", " 1"), 400),
        (Get("d", "1", 1, -1, 2), 400),
        (Get("d", "1001", -1, -1, 2), 400),
        (AUTH, 400),
    ],
)
def test_errors(body: Body, number: int) -> None:
    (answer,) = talk(SOME).send(body)
    assert isinstance(answer, Ack)
    assert answer.error_code == number


@pytest.mark.parametrize(
    "body",
    [
        ClientAck("d", "1001", 0),
        ClientAck("d", "1001", 5),
        ClientRollback("d", "1001", 5),
        ClientAck("no", "1001", 1),
        ClientAck("d", "9", 1),
    ],
)
def test_errors_that_nobody_asked_for_close(body: Body) -> None:
    t = talk(SOME)
    assert t.send(body) == []
    assert t.closed


def test_a_rollback_of_all_that_greets_is_passed_over() -> None:
    """Real clients send it before they subscribe. A wrong destination is then an answer to their SUBSCRIPTION."""
    t = talk(login=False)
    assert t.send(AUTH, ClientRollback("no", "1001")) == [Ack()]
    (answer,) = t.send(Subscription("no", "1001", ""))
    assert isinstance(answer, Ack)
    assert "should start first" in answer.error_message
    assert t.send(ClientRollback("no", "1001")) == []
    assert t.closed
    for body in (ClientRollback("no", "1001", 3), ClientAck("no", "1001", 3)):
        t = talk(login=False)
        assert t.send(AUTH, body) == [Ack()]
        assert t.closed


@pytest.mark.parametrize("body", [ClientAck("d", "1001", -1), ClientRollback("d", "9", 3), Unsubscription("d", "9")])
def test_what_is_passed_over(body: Body) -> None:
    t = talk(SOME)
    assert t.send(body) == ([Ack()] if isinstance(body, Unsubscription) else [])
    assert not t.closed


@pytest.mark.parametrize("length", [-1, LARGEST_FRAME + 1, 1 << 30])
def test_lengths_that_are_not_waited_for(length: int) -> None:
    t = talk()
    t.do(t.conversation.receive(length.to_bytes(4, "big", signed=True)))
    assert t.closed
    assert t.conversation.waiting_bytes == 0


def test_a_stranger_has_little_room() -> None:
    t = talk(login=False)
    t.do(t.conversation.receive((STRANGER_FRAME + 1).to_bytes(4, "big")))
    assert t.closed


def test_a_store_that_is_away_is_told() -> None:
    t = talk()
    t.held = True
    t.send(ALL_NOW)
    t.do(t.conversation.fetched(LogUnavailable("away")))
    assert t.answers[-1] == Ack(400, "away")


def test_open_batches_are_not_without_limit() -> None:
    t = talk((), Destination("d", items=True))
    client = t.desk.client(Key("d", 1001))
    t.source.add(SOME, 13)
    for number in range(1, MOST_OPEN + 1):
        client.open[number] = client.read, client.read
    (answer,) = t.send(Get("d", "1001", 1, -1, 2))
    assert isinstance(answer, Ack)
    assert answer.error_code == 400


def test_records_are_read_as_they_were_written() -> None:
    record = Record(Place(behind(7), inside=True), "x\n\u00e9", subscribed=True)
    assert Record.from_json(record.to_json(), "x") == record
    assert json.loads(record.to_json())["commit_ts"] == 7
    for bad in (b"{}", b"[]", b"x", b'{"format": 1, "commit_ts": -1, "index": 0}', b'{"format": 2, "commit_ts": 1, "index": 0}', b"\xff"):
        with pytest.raises(LogCorrupt, match=r"clients/d/1\.json"):
            Record.from_json(bad, "clients/d/1.json")


# ---- anything at all

NUMBERS = st.integers(-(1 << 31), (1 << 31) - 1)
NAMES = st.sampled_from(["d", "", "x", "d" * 300, "\u00e9"])
IDS = st.sampled_from(["1001", "7", "", "x", "-32768", "99999", "+1"])
BODIES = st.one_of(
    st.builds(ClientAuth, NAMES, st.binary(max_size=60), NUMBERS, NUMBERS, NAMES, IDS, st.text(max_size=20)),
    st.builds(Subscription, NAMES, IDS, st.text(max_size=30)),
    st.builds(Unsubscription, NAMES, IDS),
    st.builds(Get, NAMES, IDS, NUMBERS, st.one_of(st.none(), st.integers(-(1 << 63), (1 << 63) - 1)), st.one_of(st.none(), NUMBERS)),
    st.builds(ClientAck, NAMES, IDS, st.integers(-3, 5)),
    st.builds(ClientRollback, NAMES, IDS, st.integers(-3, 5)),
    st.builds(Ack, NUMBERS, st.text(max_size=5)),
)
PIECES = st.one_of(BODIES.map(lambda body: frame(write_packet(body))), st.binary(max_size=40), st.binary(max_size=30).map(frame))


@pytest.mark.slow
@settings(max_examples=50 * FUZZ, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(PIECES, max_size=30), st.booleans(), st.booleans(), st.integers(1, 100))
def test_whatever_comes_is_answered_or_closes(pieces: list[bytes], login: bool, secret: bool, cut: int) -> None:
    t = talk(SOME, access=SECRET if secret else None, login=login and not secret)
    data = b"".join(pieces)
    for at in range(0, len(data), cut):
        t.do(t.conversation.receive(data[at : at + cut]))
        while t.conversation.more:
            t.do(t.conversation.receive(b""))
    assert len(t.answers) <= 2 + data.count(b"\0")  # each request has a length, so a zero
    assert t.conversation.waiting_bytes <= max(0, len(data))
    if t.closed:
        assert t.conversation.waiting_bytes == 0
    if secret:
        assert not any(isinstance(one, Messages) for one in t.answers)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=40), st.text(max_size=40))
def test_any_filter_compiles_or_is_refused(text: str, name: str) -> None:
    from tidemill.canal.conversation.filters import NameFilter

    try:
        made = NameFilter(text)
    except FilterError:
        return
    assert isinstance(made.matches(name), bool)


REQUESTS = (
    ClientAuth("", net_read_timeout=5000, net_write_timeout=5000),
    ClientRollback("d", "1001"),
    SUBSCRIBE,
    Get("d", "1001", 3, -1, 2),
    ClientAck("d", "1001", 1),
    Get("d", "1001", 3, -1, 2),
    ClientRollback("d", "1001", 2),
    Get("d", "1001", 1000, 100, 2),
    ClientAck("d", "1001", 9),
    Unsubscription("d", "1001"),
)
HEADS: list[dict[str, int]] = [
    *({"magic_number": number} for number in (0, 17, -1, 2**31 - 1)),
    *({"version": number} for number in (0, 1, 2, 99, -1)),
    *({"compression": number} for number in (0, 1, 2, 3, 4, 5, -1)),
    {"magic_number": 1, "version": 7, "compression": 4},
]


def with_head(body: Body, head: dict[str, int], compress: Callable[[bytes], bytes] = bytes) -> bytes:
    packet = pb.Packet()
    packet.ParseFromString(write_packet(body))
    return frame(pb.Packet(type=packet.type, body=compress(packet.body), **head).SerializeToString())


def answered(packets: Sequence[bytes]) -> tuple[list[Body], str]:
    t = talk(SOME, Destination("d", items=True), login=False)
    for packet in packets:
        t.do(t.conversation.receive(packet))
    return t.answers, t.closed


@pytest.mark.parametrize("head", HEADS, ids=str)
def test_a_server_looks_at_nothing_in_the_head_but_the_type(head: dict[str, int]) -> None:
    """As Canal's: its decoder takes type and body."""
    plain = answered([frame(write_packet(body)) for body in REQUESTS])
    assert [one for one in plain[0] if isinstance(one, Messages)], "the requests come to something"
    assert answered([with_head(body, head) for body in REQUESTS]) == plain
    for kind in (1, 3, 7, 9, 10, 11, 13, 99):
        made, same = (pb.Packet(type=kind, body=b"\xff", **more).SerializeToString() for more in (head, {}))
        assert answered([frame(write_packet(AUTH)), frame(made)]) == answered([frame(write_packet(AUTH)), frame(same)])


@pytest.mark.parametrize(("named", "compress"), [(2, zlib.compress), (3, gzip.compress), (2, gzip.compress), (3, zlib.compress)])
def test_what_really_is_compressed_is_expanded(named: int, compress: Callable[[bytes], bytes]) -> None:
    plain = answered([frame(write_packet(body)) for body in REQUESTS])
    assert answered([with_head(body, {"compression": named}, compress) for body in REQUESTS]) == plain


def test_what_expands_to_more_than_a_frame_is_not_kept() -> None:
    bomb = zlib.compress(bytes(LARGEST_FRAME + 1))
    packets = [frame(write_packet(AUTH)), frame(pb.Packet(type=6, body=bomb, compression=2).SerializeToString())]
    (_, refused), closed = answered(packets)
    assert (isinstance(refused, Ack) and refused.error_code, closed) == (400, "")
    cut = zlib.compress(write_packet(SUBSCRIBE))[:-6]
    (_, refused), _ = answered([packets[0], frame(pb.Packet(type=4, body=cut, compression=2).SerializeToString())])
    assert isinstance(refused, Ack)
    assert refused.error_code == 400
