"""What a client does over several connections, carried out against a model of Canal's server that loses connections, answers and itself."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.support.thorough import few_of
from tidemill.canal.client.batches import Batch
from tidemill.canal.client.faults import CanalBroken, CanalMisuse, CanalRefused, CanalUnavailable, Fault
from tidemill.canal.client.session import MOST_KEPT, Open, Pause, Read, Send, Session, Shut, Step, Steps, T
from tidemill.canal.client.settings import Backoff, Settings, Unit
from tidemill.protocols.canal import packets as p


class Model:
    """One client id on a Canal server: it counts batches from 1 since it was started, takes acknowledgements in order, tells only of those
    that are wrong, and goes back to what is not acknowledged at a rollback."""

    def __init__(self, entries: int, content: bytes | None = None) -> None:
        """`content`: what all entries are; None: their numbers."""
        self.entries, self.content = entries, content
        self.acknowledged = 0
        self.on_ack: Callable[[int, int], None] = lambda begin, end: None
        self.restart()

    def restart(self) -> None:
        self.batches: dict[int, tuple[int, int]] = {}
        self.read, self.next = self.acknowledged, 1
        self.subscribed = False

    def answer(self, body: p.Body) -> list[p.Body]:
        match body:
            case p.ClientAuth() | p.Unsubscription():
                return [p.Ack()]
            case p.Subscription():
                self.subscribed = True
                return [p.Ack()]
            case p.Get():
                return [self.get(body.fetch_size)] if self.subscribed else [p.Ack(400, "should subscribe first")]
            case p.ClientAck():
                return self.ack(body.batch_id)
            case p.ClientRollback():
                assert body.batch_id == 0
                self.batches.clear()
                self.read = self.acknowledged
                return []
        raise AssertionError(body)

    def get(self, size: int) -> p.Body:
        end = min(self.read + size, self.entries)
        if end == self.read:
            return p.Messages(-1)
        begin, self.read = self.read, end
        self.batches[self.next] = (begin, end)
        self.next += 1
        return p.Messages(self.next - 1, tuple(self.content or b"%d" % i for i in range(begin, end)))

    def ack(self, batch_id: int) -> list[p.Body]:
        if not self.batches or batch_id != min(self.batches):
            return [p.Ack(400, f"batchId:{batch_id} is not the firstly")]
        begin, end = self.batches.pop(batch_id)
        self.on_ack(begin, end)
        self.acknowledged = end
        return []


class Wire:
    """Carries out steps against a model. `fault(step)`: "" or what happens to it."""

    def __init__(self, model: Model, fault: Callable[[Step], str] = lambda step: "") -> None:
        self.model, self.fault = model, fault
        self.incoming: bytearray | None = None
        self.steps: list[Step] = []

    def do(self, step: Step) -> bytes:
        self.steps.append(step)
        fault = self.fault(step)
        if fault == "restart":
            self.model.restart()
        if isinstance(step, Pause):
            return b""
        if isinstance(step, Shut):
            self.incoming = None
            return b""
        if isinstance(step, Open):
            if fault:
                raise CanalUnavailable("nobody listens")
            self.incoming = bytearray(p.frame(p.write_packet(p.Handshake(b"12345678"))))
            return b""
        assert self.incoming is not None
        if fault in ("lost", "restart"):
            self.incoming = None
            raise CanalUnavailable("connection reset")
        if isinstance(step, Send):
            packet, end = p.take_frame(step.data) or (b"", 0)
            assert end == len(step.data)
            for body in self.model.answer(p.parse_packet(packet)):
                self.incoming += p.frame(p.write_packet(body))
            if fault == "lost later":
                self.incoming = bytearray()
            return b""
        assert isinstance(step, Read)
        size = 7 if len(self.incoming) < 1000 else len(self.incoming)
        taken, self.incoming = bytes(self.incoming[:size]), self.incoming[size:]
        return taken

    def run(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                try:
                    answer = self.do(step)
                except CanalUnavailable as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result


def session(**options: object) -> Session:
    return Session(Settings("h", 11111, "d", **({"lazy": True, "filter": ""} | options)))  # type: ignore[arg-type]


def sent(wire: Wire) -> list[p.Body]:
    return [p.parse_packet(step.data[4:]) for step in wire.steps if isinstance(step, Send)]


def test_a_connection_logs_in_subscribes_and_rolls_back() -> None:
    wire = Wire(Model(0))
    wire.run(session(user="u", password="", filter="a\\..*", client_id=7, idle_timeout=5.0).connect())
    auth, subscription, rollback = sent(wire)
    assert isinstance(auth, p.ClientAuth)
    assert (auth.username, len(auth.password), auth.net_read_timeout, auth.net_write_timeout) == ("u", 40, 5000, 5000)
    assert subscription == p.Subscription("d", "7", "a\\..*")
    assert rollback == p.ClientRollback("d", "7", 0)


def test_without_password_and_rollback() -> None:
    wire = Wire(Model(0))
    wire.run(session(rollback_on_connect=False).connect())
    auth, subscription = sent(wire)
    assert isinstance(auth, p.ClientAuth)
    assert auth.password == b""
    assert isinstance(subscription, p.Subscription)


@pytest.mark.parametrize(
    ("asked", "unit", "size", "timeout", "waits"),
    [
        ((1000, None), Unit.MILLISECONDS, 1000, -1, 0.0),
        ((0, 0), Unit.SECONDS, 1000, -1, 0.0),
        ((-3, -7), Unit.SECONDS, 1000, -1, 0.0),
        ((5, 20), Unit.MILLISECONDS, 5, 20, 0.02),
        ((5, 2), Unit.MINUTES, 5, 2, 120.0),
        ((1 << 40, 1 << 70), Unit.NANOSECONDS, (1 << 31) - 1, (1 << 63) - 1, 9223372036.854775807),
    ],
)
def test_what_a_get_asks_for(asked: tuple[int, int | None], unit: Unit, size: int, timeout: int, waits: float) -> None:
    """Timeouts for which Canal's server waits without end are never sent."""
    wire, client = Wire(Model(0)), session(answer_timeout=60.0)
    assert wire.run(client.get_without_ack(*asked, unit)).empty
    assert sent(wire)[-1] == p.Get("d", "1001", size, timeout, int(unit), False)
    step = wire.steps[-1]
    assert isinstance(step, Read)
    assert step.seconds == pytest.approx(waits + 60.0)


def test_batches_are_acknowledged_in_order() -> None:
    wire, client = Wire(Model(10)), session()
    first, second = (wire.run(client.get_without_ack(3)) for _ in range(2))
    assert client.open == [1, 2]
    with pytest.raises(CanalMisuse, match="batch 2 cannot be acknowledged before batch 1"):
        wire.run(client.ack(second))
    with pytest.raises(CanalMisuse, match="batch 2 cannot be rolled back before batch 1"):
        wire.run(client.rollback(second))
    wire.run(client.ack(first))
    wire.run(client.ack(2))
    assert wire.model.acknowledged == 6
    for wrong in (1, 2, 7, 0, -5):
        with pytest.raises(CanalMisuse):
            wire.run(client.ack(wrong))
    wire.run(client.ack(-1))  # of an empty batch: nothing is sent
    assert sent(wire)[-1] == p.ClientAck("d", "1001", 2)


def test_a_rollback_of_the_oldest_gives_all_back() -> None:
    """With only the oldest one rolled back, Canal's server would hand its entries out again and lose the order of what is behind."""
    wire, client = Wire(Model(10)), session()
    first = wire.run(client.get_without_ack(3))
    wire.run(client.get_without_ack(3))
    wire.run(client.rollback(first))
    assert sent(wire)[-1] == p.ClientRollback("d", "1001", 0)
    assert client.open == []
    assert wire.run(client.get_without_ack(4)).raw == (b"0", b"1", b"2", b"3")
    wire.run(client.rollback())
    assert wire.run(client.get(2)).raw == (b"0", b"1")
    assert wire.model.acknowledged == 2


def test_ids_of_another_process_are_the_servers_to_judge() -> None:
    model = Model(4)
    other = Wire(model), session()
    other[0].run(other[1].get_without_ack(3))
    wire, client = Wire(model), session(rollback_on_connect=False)
    wire.run(client.connect())
    wire.run(client.ack(1))
    assert model.acknowledged == 3


def test_a_refused_acknowledgement_closes_the_connection() -> None:
    wire, client = Wire(Model(4)), session(rollback_on_connect=False)
    wire.run(client.connect())
    wire.run(client.ack(9))
    with pytest.raises(CanalRefused, match="to acknowledge batch 9, or a GET after it: 400 batchId:9 is not the firstly") as raised:
        wire.run(client.get_without_ack(3))
    assert raised.value.fault is Fault.CALLER
    assert raised.value.number == 400
    assert isinstance(wire.steps[-1], Shut)
    assert not client.connected
    assert wire.run(client.get_without_ack(3)).raw == (b"0", b"1", b"2")


def test_a_batch_of_a_lost_connection_cannot_be_acknowledged() -> None:
    """A server that was started again counts from 1: the old batch 1 is not its batch 1."""
    faults = ["restart"]
    wire = Wire(Model(10), lambda step: faults.pop() if isinstance(step, Send) and len(wire.steps) > 20 and faults else "")
    client = session()
    old = wire.run(client.get_without_ack(2))
    while faults:
        new = wire.run(client.get_without_ack(5))
    assert client.connections == 2
    assert new.id == 1
    with pytest.raises(CanalMisuse, match="a connection that is lost"):
        wire.run(client.ack(old))
    with pytest.raises(CanalMisuse, match="a connection that is lost"):
        wire.run(client.rollback(old))
    assert not client.holds(old)
    assert client.holds(new)
    wire.run(client.ack(new))
    assert wire.model.acknowledged == 5


def test_attempts_end_as_the_settings_say() -> None:
    down = False
    wire = Wire(Model(10), lambda step: "lost" if down else "")
    client = session(reconnect=Backoff(first=1.0, factor=3.0, longest=20.0, tries=5))
    wire.run(client.connect())
    down = True
    with pytest.raises(CanalUnavailable, match="nobody listens"):
        wire.run(client.get_without_ack())
    assert [step.seconds for step in wire.steps if isinstance(step, Pause)] == [1.0, 3.0, 9.0, 20.0, 20.0]
    down = False
    assert wire.run(client.get_without_ack(2)).id == 1


def test_without_reconnect_the_caller_decides() -> None:
    down = False
    wire = Wire(Model(10), lambda step: "lost" if down else "")
    client = session(reconnect=None)
    wire.run(client.connect())
    down = True
    with pytest.raises(CanalUnavailable):
        wire.run(client.get_without_ack())
    assert not any(isinstance(step, Pause) for step in wire.steps)
    assert not client.connected
    with pytest.raises(CanalUnavailable, match="come again under new ids"):
        wire.run(client.ack(1))
    wire.run(client.rollback())  # there is nothing to give back any more
    down = False
    wire.run(client.reconnect())
    assert wire.run(client.get_without_ack(2)).id == 1


def test_the_first_connection_is_tried_once() -> None:
    wire = Wire(Model(1), lambda step: "lost")
    with pytest.raises(CanalUnavailable):
        wire.run(session().get_without_ack())
    assert not any(isinstance(step, Pause) for step in wire.steps)


def test_no_get_without_a_subscription() -> None:
    wire, client = Wire(Model(1)), session(filter=None)
    wire.run(client.connect())
    with pytest.raises(CanalMisuse, match="no subscription"):
        wire.run(client.get_without_ack())
    wire.run(client.subscribe("a"))
    wire.run(client.subscribe("b"))
    assert [type(body) for body in sent(wire)] == [p.ClientAuth, p.Subscription, p.ClientRollback, p.Subscription]
    wire.run(client.unsubscribe())
    with pytest.raises(CanalMisuse, match="no subscription"):
        wire.run(client.get_without_ack())


def test_a_broken_entry_leaves_the_batch_open() -> None:
    wire, client = Wire(Model(3)), session(lazy=False)
    with pytest.raises(CanalBroken, match="entry 0 of batch 1"):
        wire.run(client.get_without_ack(1))
    assert client.open == [1]
    wire.run(client.ack(1))
    assert wire.model.acknowledged == 1


def test_headers_of_a_large_batch_are_not_kept() -> None:
    """They take a hundred times the memory of the smallest entries that a server can send."""
    wire, client = Wire(Model(MOST_KEPT + 1, b"\x10\x01")), session(lazy=False)
    batch = wire.run(client.get_without_ack(MOST_KEPT + 1))
    assert len(batch) == MOST_KEPT + 1
    assert batch._entries == []
    assert batch.entries[0].type.name == "TRANSACTIONBEGIN"
    wire.run(client.rollback())
    small = wire.run(client.get_without_ack(5))
    assert len(small._entries) == 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", few_of(range(150), 20, "the first twenty seeds have all kinds of faults"))
def test_nothing_is_lost_and_nothing_skipped(seed: int) -> None:
    """Under lost connections, lost answers and servers that are started again: what is acknowledged was processed, and all is processed."""
    chance = random.Random(seed)
    model = Model(60)
    often = chance.choice((0.02, 0.1, 0.25))

    def fault(step: Step) -> str:
        if isinstance(step, Pause | Shut) or chance.random() > often:
            return ""
        return chance.choice(("lost", "lost later", "restart") if isinstance(step, Send) else ("lost", "restart"))

    wire = Wire(model, fault)
    client = session(reconnect=chance.choice((None, Backoff(), Backoff())))
    processed: list[int] = []

    def check(begin: int, end: int) -> None:
        assert set(range(begin, end)) <= set(processed)

    model.on_ack = check
    held: list[Batch] = []
    for _ in range(5000):
        if model.acknowledged == model.entries:
            break
        try:
            if held and chance.random() < 0.5:
                batch = held.pop(0)
                if client.holds(batch):
                    wire.run(client.ack(batch))
            elif chance.random() < 0.1:
                held.clear()
                wire.run(client.rollback())
            else:
                batch = wire.run(client.get_without_ack(chance.randint(1, 9)))
                processed += map(int, batch.raw)
                if not batch.empty:
                    held.append(batch)
        except CanalUnavailable:
            held.clear()
    assert model.acknowledged == model.entries
    assert list(dict.fromkeys(processed)) == list(range(model.entries))
