"""The client's side of a connection against every recorded conversation: its requests are those that Java sends, byte for byte, and it
understands all that the server said."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from tests.support.canal.golden import conversations
from tidemill.canal.client.conversation import SMALL_FRAME, Accepted, Answer, Conversation, Given, Greeting, Refusal, State
from tidemill.canal.client.faults import CanalBroken, CanalMisuse, Fault
from tidemill.canal.scramble import scramble
from tidemill.errors import TidemillError
from tidemill.protocols.canal import packets as p

REQUESTS = (p.ClientAuth, p.Subscription, p.Unsubscription, p.Get, p.ClientAck, p.ClientRollback)

UNASKED = {
    "ack_out_of_order": "to acknowledge the younger of two batches",
    "ack_unknown": "to acknowledge a batch that there is not",
    "ack_zero_minus": "to acknowledge batch 0",
    "get_before_sub": "to acknowledge without a subscription",
    "instance_starting": "to roll back on a destination that is not there yet, before the subscription, as Java does",
    "rb_unknown": "to roll back a batch that there is not",
    "resume_restart": "the same, on a server that has just been started",
    "sub_unknown_dest": "to roll back on a destination that there is not",
    "two_same_id": "to acknowledge what another client with the same id has rolled back",
}
"""Conversations with an error for a request that has no answer when it succeeds. Canal's clients take it for the answer to the next one."""

OTHER_BYTES = {"client_java_110", "client_node", "get_pipelined"}
"""Requests that their clients write in another way than Java 1.1.8: with an absent unit, in another order, several in one."""


def request_of(data: bytes, conversation: Conversation) -> tuple[p.Body, bool]:
    """What this client asks where a recorded one asked `data`, and whether it is the same. Before the login a server takes every packet for
    one; what is not a request of a client is replaced by one that has an answer."""
    try:
        taken = p.take_frame(data)
        body: p.Body = p.parse_packet(taken[0]) if taken is not None else p.Unknown(0)
    except p.PacketError:
        body = p.Unknown(0)
    if conversation.state is State.GREETED:
        return (body, True) if isinstance(body, p.ClientAuth) else (p.ClientAuth(""), False)
    if not isinstance(body, REQUESTS) or isinstance(body, p.ClientAuth):
        return p.Get("d", "1", 1), False
    return body, True


def played(recording: dict[str, Any], connection: int, seed: int) -> tuple[list[Answer], list[bytes], list[bytes]]:
    """Answers of one connection until it is over, and requests as they were and as they are written."""
    chance = random.Random(seed)
    conversation = Conversation()
    answers: list[Answer] = []
    asked: list[bytes] = []
    written: list[bytes] = []
    for number, direction, data in recording["events"]:
        if number != connection or conversation.state is State.OVER:
            continue
        if direction == "c2s":
            if not data:
                break
            if conversation.state is State.NEW:
                continue  # what a web browser sent to the port
            body, same = request_of(data, conversation)
            made = conversation.request(body)  # type: ignore[arg-type]  # only requests come out of it
            if same:
                asked.append(data)
                written.append(made)
            continue
        if not data:
            assert "closed the connection" in conversation.end().message
            break
        for piece in pieces(data, chance):
            conversation.receive(piece)
            while (answer := conversation.next_answer()) is not None:
                answers.append(answer)
    return answers, asked, written


def pieces(data: bytes, chance: random.Random) -> list[bytes]:
    cuts = sorted({0, len(data), *(chance.randint(0, len(data)) for _ in range(chance.randint(0, 3)))})
    return [data[a:b] for a, b in pairwise(cuts)]


def connections(recording: dict[str, Any]) -> list[int]:
    return sorted({number for number, _, _ in recording["events"]})


@pytest.mark.parametrize("recording", conversations(), ids=lambda recording: recording["scenario"])
def test_recorded_conversations(recording: dict[str, Any]) -> None:
    over = False
    for connection in connections(recording):
        answers, asked, written = played(recording, connection, connection)
        assert asked == written or recording["scenario"] in OTHER_BYTES
        assert not answers or isinstance(answers[0], Greeting)
        sent = [data for number, direction, data in recording["events"] if number == connection and direction == "s2c" and data]
        entries = [e for data in sent if isinstance(body := p.parse_packet(data[4:]), p.Messages) for e in body.entries]
        got = [raw for answer in answers if isinstance(answer, Given) for raw in answer.batch.raw]
        ended = bool(answers) and isinstance(answers[-1], Refusal) and bool(answers[-1].unasked)
        over |= ended
        assert len(answers) == len(sent) or ended
        assert got == entries[: len(got)]
        assert len(got) == len(entries) or ended
        for answer in answers:
            if isinstance(answer, Given):
                assert [entry.header.charset for entry in answer.batch] == ["UTF-8"] * len(answer.batch)
                list(answer.batch.events())
    assert over == (recording["scenario"] in UNASKED)


def test_passwords_of_java() -> None:
    """The token that Java made of the recorded seeds is the one that this client makes."""
    found = 0
    for recording in conversations():
        seeds = b""
        for _, _, data in recording["events"]:
            if len(data) < 5:
                continue
            try:
                body = p.parse_packet(data[4:])
            except p.PacketError:
                continue
            if isinstance(body, p.Handshake):
                seeds = body.seeds
            elif isinstance(body, p.ClientAuth) and len(body.password) == 40 and recording["client"].startswith("java"):
                password = "" if not body.username else "wrong" if recording["scenario"] == "auth_wrong_pw_java" else "Canal@123"
                if recording["scenario"] != "auth_wrong_pw_java":
                    assert body.password == scramble(password, seeds)
                    found += 1
    assert found > 10


def ready() -> Conversation:
    """A conversation after its login."""
    conversation = Conversation()
    conversation.receive(p.frame(p.write_packet(p.Handshake(b"s"))))
    assert conversation.next_answer() == Greeting(b"s")
    conversation.request(p.ClientAuth("u"))
    conversation.receive(ACK)
    assert isinstance(conversation.next_answer(), Accepted)
    return conversation


ACK = p.frame(p.write_packet(p.Ack()))
GET = p.Get("d", "1", 5)


def error(code: int = 400, text: str = "no") -> bytes:
    return p.frame(p.write_packet(p.Ack(code, text)))


def batch(number: int, *entries: bytes) -> bytes:
    return p.frame(p.write_packet(p.Messages(number, entries)))


def test_a_refused_login_can_be_tried_again() -> None:
    conversation = Conversation()
    conversation.receive(p.frame(p.write_packet(p.Handshake(b"s"))))
    conversation.next_answer()
    auth = p.ClientAuth("u", b"x")
    conversation.request(auth)
    conversation.receive(error())
    assert conversation.next_answer() == Refusal(auth, 400, "no")
    assert conversation.state is State.GREETED
    conversation.request(auth)
    conversation.receive(ACK)
    assert conversation.next_answer() == Accepted(auth)


def test_requests_on_their_way_are_answered_in_order() -> None:
    conversation = ready()
    for request in (GET, p.ClientAck("d", "1", 1), GET):
        conversation.request(request)
    conversation.receive(batch(1, b"") + batch(2, b"", b""))
    answers = [conversation.next_answer(), conversation.next_answer(), conversation.next_answer()]
    assert [answer.batch.id for answer in answers if isinstance(answer, Given)] == [1, 2]
    assert answers[2] is None
    assert not conversation.due


def test_an_error_behind_an_acknowledgement_ends_it() -> None:
    """Whether it is that of the acknowledgement or of the GET cannot be told, and the GET's own answer would be taken for a later one's."""
    conversation = ready()
    ack = p.ClientAck("d", "1", 9)
    conversation.request(ack)
    conversation.request(GET)
    conversation.receive(error(400, "batchId:9 is not exist") + batch(1, b""))
    assert conversation.next_answer() == Refusal(GET, 400, "batchId:9 is not exist", (ack,))
    assert conversation.state is State.OVER
    assert conversation.next_answer() is None
    with pytest.raises(CanalMisuse, match="over") as raised:
        conversation.request(GET)
    assert raised.value.fault is Fault.CALLER


def test_an_error_of_a_get_alone_does_not() -> None:
    conversation = ready()
    conversation.request(GET)
    conversation.receive(error(400, "should subscribe first"))
    assert conversation.next_answer() == Refusal(GET, 400, "should subscribe first")
    conversation.request(GET)
    conversation.receive(batch(-1))
    answer = conversation.next_answer()
    assert isinstance(answer, Given)
    assert answer.batch.empty


def test_what_comes_unasked_ends_it() -> None:
    conversation = ready()
    conversation.request(GET)
    conversation.receive(batch(1, b"") + batch(2, b""))
    assert isinstance(conversation.next_answer(), Given)
    assert conversation.next_answer() is None
    with pytest.raises(CanalBroken, match="no answer was due") as raised:
        conversation.request(GET)
    assert raised.value.fault is Fault.SERVER


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (bytes.fromhex("ffffffff"), "a frame of -1 bytes"),
        (bytes.fromhex("80000000"), "a frame of -2147483648 bytes"),
        (bytes.fromhex("7fffffff"), "up to 134217728"),
        (bytes.fromhex("00000003ffffff"), "read as Packet"),
        (p.frame(p.write_packet(p.Handshake(b"s"))), "expected the answer to Get, found Handshake"),
        (ACK, "an ACK without an error"),
        (batch(0, b"x"), "id 0"),
        (batch(-1, b"x"), "id -1"),
        (batch(-7), "id -7"),
        (p.frame(p.write_packet(p.Messages(1, (b"x",))) + b"\x20\x02"), "compressed"),
        (p.frame(b"\x18\x07\x2a\x05\x08\xff\xff\xff\xff"), "read as Messages"),
        (p.frame(b"\x18\x0b"), "found Unknown"),
    ],
)
def test_what_no_server_sends(data: bytes, said: str) -> None:
    conversation = ready()
    conversation.request(GET)
    conversation.receive(data)
    with pytest.raises(CanalBroken, match=said):
        conversation.next_answer()
    assert conversation.state is State.OVER
    assert conversation.waiting_bytes == 0


def test_requests_at_the_wrong_time() -> None:
    with pytest.raises(CanalMisuse, match="handshake"):
        Conversation().request(GET)
    with pytest.raises(CanalMisuse, match="logged in"):
        ready().request(p.ClientAuth(""))


@pytest.mark.parametrize("seed", range(300))
def test_hostile_bytes(seed: int) -> None:
    """Recorded answers with bytes changed, cut, repeated: errors of the client, or answers; what is kept stays below the limit."""
    chance = random.Random(seed)
    limit = 1 << 12
    recording = chance.choice(FUZZED)
    conversation = Conversation(limit)
    try:
        for _, direction, data in recording["events"]:
            if direction == "c2s":
                if conversation.state is not State.NEW:
                    conversation.request(request_of(data, conversation)[0])  # type: ignore[arg-type]
                continue
            for piece in pieces(mangled(data, chance), chance):
                conversation.receive(piece)
                while (answer := conversation.next_answer()) is not None:
                    if isinstance(answer, Given):
                        list(answer.batch.events())
                assert conversation.waiting_bytes <= limit + 4 + len(piece)
    except TidemillError:
        pass


FUZZED = [one for one in conversations() if sum(len(data) for _, _, data in one["events"]) < 1 << 14]

MAXIMAL = b"\xff" * 9 + b"\x01"


def mangled(data: bytes, chance: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(chance.choice((0, 0, 1, 2, 5))):
        at = chance.randrange(len(made) + 1)
        kind = chance.randrange(5)
        if kind == 0 and made:
            made[at % len(made)] = chance.randrange(256)
        elif kind == 1:
            del made[at : at + chance.randint(1, 9)]
        elif kind == 2:
            made[at:at] = MAXIMAL
        elif kind == 3:
            made[at:at] = made[: chance.randint(0, len(made))]
        else:
            made = made[:at]
    if len(made) >= 4 and chance.random() < 0.7:
        made[:4] = (len(made) - 4).to_bytes(4, "big")
    return bytes(made)


def test_a_large_packet_is_waited_for_only_as_a_batch() -> None:
    """A server that announces more before it was asked for rows would be read until all of it is in memory."""
    head = (SMALL_FRAME + 1).to_bytes(4, "big")
    fresh, waiting, asked = Conversation(), ready(), ready()
    waiting.request(p.Subscription("d", "1", ""))
    for conversation in (fresh, waiting):
        conversation.receive(head)
        with pytest.raises(CanalBroken):
            conversation.next_answer()
    asked.request(GET)
    asked.receive(head)
    assert asked.next_answer() is None
