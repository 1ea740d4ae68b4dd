"""A capture in groups, without stores: how partitions are divided, what the connections carry, what the coordinator decides."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.captures import until
from tests.support.loops import run
from tests.support.table_changes import N, change, version
from tidemill.capture.config import DEFAULT_PARTITIONS, CaptureConfig
from tidemill.capture.groups.connection import Wire
from tidemill.capture.groups.credentials import Credentials, new_token
from tidemill.capture.groups.divide import divide
from tidemill.capture.groups.group import Group, Outcome
from tidemill.capture.groups.messages import (
    Assignment,
    Challenge,
    Ended,
    Head,
    Hello,
    Message,
    Refused,
    Report,
    Stop,
    decode,
    encode,
    is_proof,
    proof,
)
from tidemill.capture.groups.plan import address_for, groups_of
from tidemill.capture.groups.scheduler import (
    COMES_WITHIN_S,
    FAILURES_IN_A_ROW,
    TRANSITIONS,
    Action,
    Assign,
    Event,
    Fail,
    Kill,
    Launch,
    Order,
    Phase,
    Refuse,
    Say,
    Scheduler,
    Who,
    pause_after,
)
from tidemill.capture.groups.server import Control
from tidemill.capture.status import CaptureStatus, Section
from tidemill.capture.tikv.regions.actions import Span
from tidemill.capture.tikv.tables import Moved, TableSpans, partition_of
from tidemill.cli.status import summary
from tidemill.errors import ConfigError, LogError, LogFenced, LogLocked, MalformedMessage
from tidemill.metrics.samples import Sample
from tidemill.process.places import host_for, is_here, local_cores

# ---- dividing


@given(st.integers(1, 64), st.data())
def test_partitions_are_divided_evenly_and_all_of_them(partitions: int, data: st.DataObject) -> None:
    groups = data.draw(st.integers(1, partitions))
    divided = divide(partitions, groups)
    assert len(divided) == groups
    assert sorted(itertools.chain(*divided)) == list(range(partitions))
    sizes = {len(one) for one in divided}
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("weights", "groups", "expected"),
    [
        ([10, 1, 8, 1], 2, [(0,), (1, 2, 3)]),
        ([9, 1, 9, 1], 2, [(0, 1), (2, 3)]),
        ([0, 0, 0, 0], 2, [(0, 2), (1, 3)]),
        ([5, 0, 0, 0], 4, [(0,), (1,), (2,), (3,)]),
        ([7, 0, 0, 0], 2, [(0,), (1, 2, 3)]),
    ],
)
def test_groups_have_about_as_many_tables(weights: list[int], groups: int, expected: list[tuple[int, ...]]) -> None:
    assert divide(len(weights), groups, weights) == expected


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=64), st.data())
def test_no_group_is_far_above_what_one_partition_forces(weights: list[int], data: st.DataObject) -> None:
    groups = data.draw(st.integers(1, len(weights)))
    divided = divide(len(weights), groups, weights)
    assert len(divided) == groups
    assert all(divided)
    assert sorted(itertools.chain(*divided)) == list(range(len(weights)))
    heaviest = max(sum(weights[p] for p in group) for group in divided)
    assert heaviest <= sum(weights) / groups + max(weights)


def test_a_store_without_conditional_put_is_refused_without_asking_it() -> None:
    with pytest.raises(LogError, match=r"gs://bucket/log: a capture in groups needs a log on a store with conditional PUT"):
        groups_of(CaptureConfig(pd=("h:1",), log="gs://bucket/log", workers=2))


@pytest.mark.parametrize("groups", [0, 5])
def test_more_groups_than_partitions_are_refused(groups: int) -> None:
    with pytest.raises(ConfigError, match=f"--workers {groups}: the log has 4 partitions"):
        divide(4, groups)


@pytest.mark.parametrize(
    ("master", "cores"),
    [(None, None), ("local", 1), ("local[3]", 3), ("local[3,5]", 3), ("spark://h:7077", None), ("local-cluster[2,1,1024]", None)],
)
def test_how_many_tasks_a_master_runs_here(master: str | None, cores: int | None) -> None:
    assert local_cores(master) == cores


def settings(**more: Any) -> CaptureConfig:
    return CaptureConfig(pd=("h:1",), log="/log", **more)


def test_the_number_of_workers() -> None:
    assert settings().worker_count(8) == 1
    assert settings(master="local[4]").worker_count(8) == 1, "on one machine nobody asked for more"
    assert settings(master="spark://h:7077").worker_count(8) == DEFAULT_PARTITIONS
    assert settings(master="spark://h:7077").worker_count(2) == 2
    assert settings(master="spark://h:7077", workers=1).worker_count(8) == 1
    assert settings(workers=3).worker_count(8) == 3
    for wrong in ({"workers": 0}, {"workers": 3, "master": "local[2]"}, {"workers": 20}):
        with pytest.raises(ConfigError, match="workers"):
            settings(**wrong)


def test_what_groups_are_told_of_the_settings() -> None:
    config = settings(workers=4, ca=Path("/ca.pem"), compression="zstd", row_budget=5, stuck_after=7.0)
    told = json.loads(json.dumps(config.of_group(4)))
    assert "/log" not in json.dumps(told), "the log's address may hold a password"
    theirs = CaptureConfig.from_coordinator(told, "s3://b/log", Path("/scratch"))
    assert theirs == CaptureConfig(
        pd=("h:1",), log="s3://b/log", data_dir=Path("/scratch"), ca=Path("/ca.pem"), compression="zstd", row_budget=5, stuck_after=7.0,
        memory_quota=config.memory_quota // 4,
    )  # fmt: skip
    on_cluster = replace(config, master="spark://h:7077")
    assert on_cluster.of_group(4)["memory_quota"] == config.memory_quota, "each executor has its own memory"
    with pytest.raises(ConfigError, match="another version"):
        CaptureConfig.from_coordinator({**told, "transport": "pigeon"}, "", Path())


def test_where_groups_find_their_coordinator() -> None:
    assert address_for(settings(workers=2)) == ("127.0.0.1", 0)
    assert address_for(settings(control_addr="10.0.0.1:77")) == ("10.0.0.1", 77)
    assert address_for(settings(control_addr="host")) == ("host", 0)
    assert address_for(settings(control_addr="[::1]:5")) == ("::1", 5)
    assert host_for("spark://127.0.0.1:7077") == "127.0.0.1"
    assert host_for("k8s://https://127.0.0.1:6443") == "127.0.0.1"
    assert host_for("local-cluster[2,1,1024]") == "127.0.0.1"
    assert is_here(None)
    assert is_here("local[*]")
    assert not is_here("spark://localhost:7077")
    with pytest.raises(ConfigError, match="control-addr"):
        address_for(settings(control_addr="h:port"))


# ---- spans of some partitions


@dataclass
class Part:
    """The spans that one group asks for."""

    owned: tuple[int, ...]
    spans: dict[int, Span] = field(default_factory=dict)
    moves: list[Moved] = field(default_factory=list)

    def make(self) -> TableSpans:
        return TableSpans(
            N, lambda s: self.spans.update({s.id: s}), lambda i: self.spans.pop(i) and None, self.moves.append, owned=self.owned
        )


def test_groups_together_capture_what_one_process_does_and_each_sees_a_move_from_its_side() -> None:
    parts = [Part((0, 2)), Part((1,)), Part((3,))]
    whole = Part(tuple(range(N)))
    everybody = [(part, part.make()) for part in (whole, *parts)]
    table, other = version(45, 45, 100), version(48, 48)
    assert partition_of(45, N) != partition_of(48, N)
    swapped = version(45, 45, 48), version(48, 100)
    for _, spans in everybody:
        spans.follow([change(10, (), (table, other))], [5] * N)
        spans.follow([change(20, (table, other), swapped)], [10] * N)
    captured = [{(s.start, s.partition, s.checkpoint) for s in part.spans.values()} for part in parts]
    assert set().union(*captured) == {(s.start, s.partition, s.checkpoint) for s in whole.spans.values()}
    assert sum(map(len, captured)) == len(whole.spans), "nothing is captured twice"
    assert sum(len(spans) for part, spans in everybody[1:]) == len(everybody[0][1])
    for part, spans in everybody:
        ends = {(moved.old in part.owned, moved.new in part.owned) for moved in part.moves}
        assert (False, False) not in ends
        assert [m for m in whole.moves if {m.old, m.new} & set(part.owned)] == part.moves
        assert spans.label(100) == "d.t48 (100)", "a lock's table has a name, whoever captures it"


# ---- messages

EXAMPLES: list[Message] = [
    Challenge("a"),
    Hello(1, 2, 3, "host", -1, "b", "c"),
    Assignment((1, 2), "7", {"pd": ["h:1"]}, 5, 4, "proof"),
    Refused("another attempt\nhas it"),
    Head(10, 5),
    Stop(),
    Report({"heads": {"1": 2}}),
    Ended("TM:ErrLog", "what", True),
]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: type(m).__name__)
def test_a_message_is_one_line_and_reads_back(message: Message) -> None:
    line = encode(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == message


@pytest.mark.parametrize(
    "line",
    [
        b"", b"\n", b"{}", b"[]", b"7", b"\xff", b"[" * 100_000, b'{"is":"nobody"}', b'{"is":["stop"]}', b'{"is":"head","ts":1}',
        b'{"is":"head","ts":true,"last_to":1}', b'{"is":"head","ts":"1","last_to":1}',
        b'{"is":"report","section":[]}',
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(line)


def test_messages_of_another_version_are_understood() -> None:
    """During an upgrade: unknown fields are ignored, and missing fields with a default are allowed."""
    assert decode(b'{"is":"stop","more":1}') == Stop()
    assert decode(b'{"is":"head","ts":5,"last_to":4,"checksum":"x"}') == Head(5, 4)
    assert decode(b'{"is":"ended","code":"TM:ErrLog"}') == Ended("TM:ErrLog")
    told = asdict(Section({1: 5}, rows=3)) | {"heads": {"1": 5}, "of_the_future": {"a": 1}}
    del told["spilled_rows"], told["memory_bytes"]
    assert Section.from_dict(told) == Section({1: 5}, rows=3)
    assert Section.from_dict({}) == Section()


@given(st.binary())
def test_no_bytes_do_more_than_be_refused(line: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(line)


def test_a_proof_is_of_the_token_the_role_and_each_part() -> None:
    shown = proof("token", "group", "n1", "n2", 3, 4)
    assert is_proof(shown, "token", "group", "n1", "n2", 3, 4)
    others: list[tuple[Any, ...]] = [
        ("other", "group", "n1", "n2", 3, 4),
        ("token", "coordinator", "n1", "n2", 3, 4),
        ("token", "group", "n1n2", "", 3, 4),
        ("token", "group", "n1", "n2", 34, ""),
    ]
    assert not any(is_proof(shown, *other) for other in others)
    assert "token" not in repr(Hello(1, 2, 3, "h", -1, "n", "token"))
    assert "secret" not in repr(Credentials("h", 1, "s3://key:secret@b/log", "secret"))


# ---- decisions


def who(attempt: int) -> Who:
    return Who(attempt, 1000 + attempt, "h", 70 + attempt)


def scheduler(groups: int = 1, *, launches: bool = True) -> Scheduler:
    return Scheduler(divide(max(groups, 2), groups), launches=launches, silent_after=10.0)


def in_phase(phase: Phase, *, launches: bool = False) -> Scheduler:
    """A scheduler of one group, brought into this phase, at time 100."""
    one = scheduler(launches=launches)
    one.begin(0)
    if phase is Phase.WAITING:
        return one
    one.hello(0, who(0), 1)
    if phase in (Phase.PAUSED, Phase.HELD):
        one.gone(0, 0, "test", 100)
    if phase is Phase.HELD:
        one.hello(0, who(1), 100)
    if phase in (Phase.STOPPING, Phase.ENDED):
        one.stop(100)
    if phase is Phase.ENDED:
        one.gone(0, 0, "test", 100)
    assert one.members[0].phase is phase
    return one


def happen(one: Scheduler, event: Event) -> list[Action]:
    member = one.members[0]
    match event:
        case Event.CAME:
            return one.hello(0, who(member.attempt + 1), 101)
        case Event.WENT:
            return one.gone(0, member.attempt, "test", 101)
        case Event.STOP:
            return one.stop(101)
        case Event.SILENT | Event.DUE:
            return one.tick(1 + COMES_WITHIN_S if member.phase is Phase.WAITING else 101)


OF_TIME = {(Phase.WAITING, Event.SILENT), (Phase.RUNNING, Event.SILENT), (Phase.PAUSED, Event.DUE), (Phase.HELD, Event.DUE)}


@pytest.mark.parametrize(
    ("phase", "event"), [(p, e) for p in Phase for e in Event if e not in (Event.SILENT, Event.DUE) or (p, e) in OF_TIME], ids=str
)
def test_each_event_in_each_phase(phase: Phase, event: Event) -> None:
    """Every pair in the table leads to the phase given there; any other pair changes nothing."""
    assert {pair for pair in TRANSITIONS if pair[1] in (Event.SILENT, Event.DUE)} == OF_TIME
    one = in_phase(phase, launches=(phase, event) == (Phase.WAITING, Event.SILENT))
    actions = happen(one, event)
    assert one.members[0].phase is TRANSITIONS.get((phase, event), phase)
    if event is Event.CAME:
        newest = [a for a in actions if isinstance(a, Assign)]
        refused = {a.attempt for a in actions if isinstance(a, Refuse)}
        if one.members[0].phase is Phase.RUNNING:
            assert [a.attempt for a in newest] == [one.members[0].attempt]
            assert refused == ({0} if phase is Phase.RUNNING else set())
        else:
            assert not newest
        if phase in (Phase.STOPPING, Phase.ENDED):
            assert actions == [Order(0, 1)], "a task that comes late ends as well"


def test_a_process_is_started_again_with_a_pause_that_grows_until_it_gets_further() -> None:
    one = scheduler()
    assert one.begin(0) == [Launch(0, 0)]
    now, pauses = 0.0, []
    for attempt in range(4):
        assert Assign(0, attempt) in one.hello(0, who(attempt), now)
        one.report(0, attempt, Section({0: 5, 1: 5}), now)
        if attempt == 3:
            one.report(0, attempt, Section({0: 9, 1: 7}), now)
        said = one.gone(0, attempt, "its connection ended", now)
        assert isinstance(said[0], Say)
        assert one.gone(0, attempt, "its process ended", now) == [], "the second word of the same end"
        pauses.append(one.members[0].due - now)
        assert one.tick(now + pauses[-1] - 0.1) == []
        now += pauses[-1]
        assert one.tick(now) == [Kill(0, who(attempt)), Launch(0, attempt + 1)], "whatever is left of it ends before the next begins"
    assert pauses == [1.0, 2.0, 4.0, 1.0], "the last got from 5 to 7"
    assert pause_after(30) == 30.0


def test_a_process_that_never_comes_is_killed_and_started_again() -> None:
    def ticked(one: Scheduler) -> list[Action]:
        one.begin(0)
        return [action for second in range(int(COMES_WITHIN_S) + 3) for action in one.tick(second)]

    waits, lost, *others = ticked(scheduler())
    assert isinstance(waits, Say)
    assert isinstance(lost, Say)
    assert others == [Kill(0, Who(0, 0, "")), Launch(0, 1)]
    assert [type(a) for a in ticked(scheduler(launches=False))] == [Say], "a task waits for an executor"


def test_heads_stay_known_while_a_new_attempt_has_told_none() -> None:
    one = scheduler(launches=False)
    one.begin(0)
    one.hello(0, who(0), 0)
    one.report(0, 0, Section({0: 5, 1: 7}), 1)
    one.gone(0, 0, "test", 2)
    one.hello(0, who(1), 3)
    one.report(0, 1, Section(), 4)
    assert one.members[0].section == Section({0: 5, 1: 7})
    one.report(0, 1, Section({0: 6, 1: 6}), 5)
    assert one.members[0].section == Section({0: 6, 1: 7})


def test_an_attempt_that_comes_late_is_refused() -> None:
    one = scheduler(launches=False)
    one.begin(0)
    one.hello(0, who(3), 0)
    assert [type(a) for a in one.hello(0, who(2), 1)] == [Refuse]
    assert [type(a) for a in one.hello(0, who(3), 1)] == [Refuse]
    assert one.members[0].phase is Phase.RUNNING
    assert one.gone(0, 2, "late", 2) == []
    assert one.failed(0, 2, "TM:ErrLogCorrupt", "late", False) == []
    assert [type(a) for a in one.hello(7, who(1), 1)] == [Refuse]


def test_a_group_that_says_nothing_is_given_up_unless_we_were_asleep() -> None:
    one = scheduler(launches=False)
    one.begin(0)
    one.hello(0, who(0), 0)
    for now in range(1, 10):
        assert one.tick(now) == []
    one.report(0, 0, Section({0: 5, 1: 5}), 9.5)
    for now in range(10, 19):
        assert one.tick(now) == []
    assert one.tick(60) == [], "so late a tick means that we slept"
    for now in range(61, 70):
        assert one.tick(now) == []
    actions = one.tick(71)
    assert [type(a) for a in actions] == [Say, Refuse, Kill]
    assert actions[-1] == Kill(0, who(0))
    assert one.members[0].phase is Phase.PAUSED


def test_a_task_that_spark_runs_again_at_once_waits_for_its_pause() -> None:
    one = in_phase(Phase.PAUSED)
    assert [a for a in one.hello(0, who(1), 100.2) if isinstance(a, Assign)] == []
    assert one.tick(100.5) == []
    assert Assign(0, 1) in one.tick(101.1)


def test_errors_that_trying_again_does_not_mend_end_the_capture() -> None:
    one = in_phase(Phase.RUNNING)
    [fail] = one.failed(0, 0, "TM:ErrStartTsBeforeGC", "gone", False)
    assert isinstance(fail, Fail)
    assert fail.error.code == "TM:ErrStartTsBeforeGC"
    assert "group 0: gone" in str(fail.error)
    assert one.failed(0, 0, "TM:ErrUpstreamUnavailable", "away", True) == []
    for fenced in (LogFenced.code, LogLocked.code):
        assert one.failed(0, 0, fenced, "somebody else", False) == [], "another attempt is there: no reason to end"


def test_a_group_that_gets_nowhere_ends_the_capture_at_last() -> None:
    one, now = scheduler(), 0.0
    one.begin(now)
    for attempt in range(FAILURES_IN_A_ROW + 1):
        one.hello(0, who(attempt), now)
        one.failed(0, attempt, "MemoryError", "no memory", True)
        actions = one.gone(0, attempt, "it went", now)
        now = one.members[0].due
        one.tick(now)
    [fail] = actions
    assert isinstance(fail, Fail)
    assert "MemoryError" in str(fail.error)


def test_a_group_that_does_not_come_is_named_once() -> None:
    one = Scheduler(divide(4, 2), launches=False, waits_for="an executor")
    one.begin(0)
    one.hello(0, who(0), 1)
    said = [a for now in range(1, 60) for a in one.tick(now) if isinstance(a, Say) and one.report(0, 0, Section(), now) is None]
    assert [a.text for a in said if "waits" in a.text] == ["group 1 waits for an executor for 21 s"]


def test_the_end_is_ordered_and_awaited() -> None:
    one = scheduler(2, launches=False)
    one.begin(0)
    one.hello(0, who(0), 1)
    assert one.stop(2) == [Order(0, 0)]
    assert not one.is_over
    one.gone(0, 0, "it ended", 3)
    assert one.is_over
    assert one.hello(1, who(0), 4) == [Order(1, 0)], "Spark had no core for it before; its task ends too"
    held = in_phase(Phase.HELD)
    assert held.stop(101) == [Order(0, 1)]
    assert not held.is_over


@given(st.lists(st.tuples(st.sampled_from(["hello", "gone", "tick", "report"]), st.integers(0, 1), st.integers(0, 4)), max_size=60))
def test_whatever_happens_one_attempt_at_a_time_has_a_group(steps: list[tuple[str, int, int]]) -> None:
    one = scheduler(2, launches=False)
    one.begin(0)
    has: dict[int, int] = {}
    connected: set[tuple[int, int]] = set()
    for now, (kind, group, attempt) in enumerate(steps):
        if kind == "hello":
            actions = one.hello(group, who(attempt), now) if (group, attempt) not in connected else []
            connected.add((group, attempt))
        elif kind == "gone":
            connected.discard((group, attempt))
            has = {g: a for g, a in has.items() if (g, a) != (group, attempt)}
            actions = one.gone(group, attempt, "test", now)
        elif kind == "report":
            one.report(group, attempt, Section({group: now}), now)
            actions = []
        else:
            actions = one.tick(now)
        for action in actions:
            if isinstance(action, Refuse):
                connected.discard((action.group, action.attempt))
                if has.get(action.group) == action.attempt:
                    del has[action.group]
            elif isinstance(action, Assign):
                assert action.group not in has, "another attempt has it"
                assert (action.group, action.attempt) in connected
                has[action.group] = action.attempt


# ---- the connection


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


# ---- status


def test_the_status_is_of_all_parts_and_metrics_name_the_group() -> None:
    parts = [
        Section({0: 5}, tables=2, regions={"live": 3, "gap": 0}, rows=10, slowest=[{"resolved_ts": 9, "seconds": 1.0}]),
        Section(
            {1: 7},
            tables=1,
            regions={"live": 1, "gap": 1},
            rows=5,
            slowest=[{"resolved_ts": 8, "seconds": 4.0}],
            stuck=[{"resolved_ts": 8}],
        ),
    ]
    status = CaptureStatus(state="running")
    status.take(parts)
    assert (status.tables, status.rows, status.regions) == (3, 15, {"live": 4, "gap": 1})
    assert status.holding == {"resolved_ts": 8, "seconds": 4.0}
    assert len(status.stuck) == 1
    plain = {s.name: s for s in status.samples()}
    assert (plain["tidemill_capture_rows"].value, plain["tidemill_capture_rows"].labels) == (15, {})
    status.groups = [{"group": g, "state": "running", "restarts": g, "part": asdict(part)} for g, part in enumerate(parts)]
    rows: list[Sample] = [s for s in status.samples() if s.name == "tidemill_capture_rows"]
    assert [(s.labels, s.value) for s in rows] == [({"group": "0"}, 10), ({"group": "1"}, 5)]
    assert Section.from_dict(json.loads(json.dumps(asdict(parts[0])))) == parts[0]


def test_whatever_a_part_tells_is_in_status_and_metrics() -> None:
    part = Section(heads={0: 5})
    counted = [one for one in fields(Section) if one.name not in ("heads", "synced", "slowest", "stuck", "held_tables", "paused")]
    for i, one in enumerate(counted):
        setattr(part, one.name, {f"key {i}": 1000 + i} if str(one.type).startswith("dict") else 1000 + i)
    status = CaptureStatus(state="running")
    status.take([part, part])
    shown = {sample.value for sample in status.samples()}
    for i, one in enumerate(counted):
        assert getattr(status, one.name) in (2 * (1000 + i), {f"key {i}": 2 * (1000 + i)}), one.name
        assert 2 * (1000 + i) in shown, f"{one.name} is not a metric"


def test_the_status_verb_tells_of_each_group() -> None:
    running = {"group": 0, "state": "running", "since": "then", "host": "h", "pid": 7, "attempt": 2, "partitions": [0, 3],
               "heads": {"0": 470626791390707712, "3": 470626791390707713}, "error": None, "part": {"tables": 5, "rows": 88}}  # fmt: skip
    waiting = {"group": 1, "state": "waiting", "since": "then", "host": "", "pid": 0, "attempt": -1, "partitions": [1], "heads": {"1": 0},
               "error": {"code": "TM:ErrJobLost", "message": "no master"}, "part": {}}  # fmt: skip
    lines = summary({"groups": [running, waiting], "holding": {"table": "d.t", "phase": "live", "group": 0, "host": "h", "seconds": 300}})
    [first, second, held] = [line for line in lines if line.startswith(("group", "held"))]
    assert "running since then, process 7 on h, attempt 2; partitions 0, 3 up to 470626791390707712 (2026-" in first
    assert first.endswith("5 tables, 88 rows")
    assert second.endswith("TM:ErrJobLost: no master")
    assert "pulled by group 0 on h" in held
