"""The join of PREWRITE and COMMIT: recorded legal sequences, the M scenarios, ranges, resolved ts, frontiers."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tests.support.capture.eventfeeds import Reference, Row, committed, failure, message, resolved, vectors
from tests.support.thorough import few_of
from tidemill.capture.tikv.receive.decode import Scanner
from tidemill.capture.tikv.receive.matcher import FOREVER, Control, Initialized, Matcher, RegionError, Violation
from tidemill.capture.tikv.regions.actions import RowSeen
from tidemill.kernels.receive.layout import COMMIT, DELETE, PREWRITE, PUT, ROLLBACK, X_COUNT, X_RANGE, X_UNKNOWN
from tidemill.wire import cdcpb_pb2 as cdcpb

TYPES = {"UNKNOWN": 0, "PREWRITE": 1, "COMMIT": 2, "ROLLBACK": 3, "COMMITTED": 4, "INITIALIZED": 5}
OPS = {"PUT": 1, "DELETE": 2}


def row(event: dict[str, Any]) -> Row:
    data = {name: event.get(name, "").encode() for name in ("key", "value", "old_value")}
    return Row(
        type=TYPES[event["type"]],
        op_type=OPS.get(event.get("op", ""), 0),
        start_ts=event.get("start_ts", 0),
        commit_ts=event.get("commit_ts", 0),
        generation=event.get("gen", 0),
        **data,
    )


def drive(matcher: Matcher, scanner: Scanner, rows: list[Row], random_: random.Random, region: int = 1, request: int = 7) -> list[Control]:
    """Send the rows in one message, each alone, or mixed; several messages per batch."""
    controls: list[Control] = []
    at = 0
    while at < len(rows):
        messages = []
        for _ in range(random_.randint(1, 3)):
            n = random_.randint(1, 4)
            messages.append(message(region, request, rows[at : at + n]))
            at += n
        batch = scanner.scan(messages)
        assert batch.error is None
        controls += matcher.feed(batch)
    return controls


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_recorded_cases(seed: int) -> None:
    """656 legal sequences: exactly the committed rows of the model, never an empty PUT, nothing left behind."""
    matcher, random_ = Matcher(), random.Random(seed)
    scanner = Scanner(matcher.chunks)
    cases = vectors("matcher_cases")
    assert len(cases) == 656
    for i, case in enumerate(cases):
        before = matcher.count(X_COUNT)
        sub = matcher.subscribe(0, 1, 7, case["checkpoint_ts"])
        events = [row(e) for e in case["events"]]
        controls = drive(matcher, scanner, events, random_)
        assert [c for c in controls if not isinstance(c, Initialized)] == []
        got = sorted(set(committed(matcher.pending_rows())))
        want = sorted(
            (e["commit_ts"], e["start_ts"], e["key"].encode(), OPS[e["op"]], e.get("value", "").encode(), e.get("old_value", "").encode())
            for e in case["committed_in_model"] or []
        )
        assert got == want, case["seed"]
        assert all(value for _, _, _, op, value, _ in got if op == PUT)
        reference = Reference(case["checkpoint_ts"])
        for event in events:
            reference.row(event)
        assert sorted(set(reference.rows)) == want
        assert matcher.count(X_COUNT) - before == len(reference.locks)
        matcher.release(matcher.take(0, FOREVER - 1))
        matcher.drop(sub)
        if i % 50 == 49:
            matcher.sweep()
    matcher.sweep()
    assert matcher.chunks.held() == 0
    assert matcher.count(X_COUNT) == 0
    assert matcher.prewrite_bytes() == 0


def prewrite(key: str, start: int, value: str = "", old: str = "", gen: int = 0) -> dict[str, Any]:
    return {"type": "PREWRITE", "op": "PUT", "key": key, "start_ts": start, "value": value, "old_value": old, "gen": gen}


def prewrite_delete(key: str, start: int, old: str = "") -> dict[str, Any]:
    return {"type": "PREWRITE", "op": "DELETE", "key": key, "start_ts": start, "old_value": old}


def commit(key: str, start: int, commit_ts: int, op: str = "PUT") -> dict[str, Any]:
    return {"type": "COMMIT", "op": op, "key": key, "start_ts": start, "commit_ts": commit_ts}


def rollback(key: str, start: int) -> dict[str, Any]:
    return {"type": "ROLLBACK", "key": key, "start_ts": start}


def complete(key: str, start: int, commit_ts: int, value: str, old: str = "", op: str = "PUT") -> dict[str, Any]:
    return {"type": "COMMITTED", "op": op, "key": key, "start_ts": start, "commit_ts": commit_ts, "value": value, "old_value": old}


P, Pd, C, R, X, I = prewrite, prewrite_delete, commit, rollback, complete, {"type": "INITIALIZED"}  # noqa: E741

V1, V2, V3 = (P("a", 11, f"v{n}", gen=n) for n in (1, 2, 3))

SCENARIOS: dict[str, tuple[list[dict[str, Any]], list[tuple[Any, ...]]]] = {
    "M-1": ([C("a", 5, 12), X("a", 5, 12, "v"), I], [(12, 5, b"a", 1, b"v", b"")]),
    "M-2": ([P("a", 11, "v"), C("a", 11, 12), I], [(12, 11, b"a", 1, b"v", b"")]),
    "M-3": ([C("a", 11, 12), P("a", 11, "v", "o"), I], [(12, 11, b"a", 1, b"v", b"o")]),
    "M-4": ([P("a", 11, "v", "o"), P("a", 11, "", "o"), I, C("a", 11, 15)], [(15, 11, b"a", 1, b"v", b"o")]),
    "M-5": ([P("a", 11, "", "o"), C("a", 11, 15), P("a", 11, "v", "o"), I], [(15, 11, b"a", 1, b"v", b"o")]),
    "M-6": ([Pd("a", 11, "o"), C("a", 11, 15, "DELETE"), I], [(15, 11, b"a", 2, b"", b"o")]),
    "M-7": ([R("a", 11), P("a", 11, "v"), I], []),
    "M-8": ([I, P("a", 11, "v"), R("a", 11), P("a", 13, "w"), C("a", 13, 14)], [(14, 13, b"a", 1, b"w", b"")]),
    "M-9": ([V1, V3, V2, I, C("a", 11, 20)], [(20, 11, b"a", 1, b"v3", b"")]),
    "M-9b": ([V1, C("a", 11, 20), V3, V2, I], [(20, 11, b"a", 1, b"v3", b"")]),
    "M-11": ([X("a", 14, 15, "v3", "v2"), X("a", 12, 13, "v2", "v1"), I],
             [(13, 12, b"a", 1, b"v2", b"v1"), (15, 14, b"a", 1, b"v3", b"v2")]),
    "M-12": ([I, X("a", 16, 17, "v", "o")], [(17, 16, b"a", 1, b"v", b"o")]),
    "M-13": ([P("a", 11, "v"), C("a", 11, 12), X("a", 11, 12, "v"), P("a", 11, "v"), I], [(12, 11, b"a", 1, b"v", b"")]),
    "M-14": ([P("a", 5, "v"), I, C("a", 5, 9)], []),
    "M-15": ([Pd("a", 11), C("a", 11, 12, "DELETE"), I], [(12, 11, b"a", 2, b"", b"")]),
    "M-20": ([I, P("a", 11, "v"), R("a", 20), C("a", 11, 20)], [(20, 11, b"a", 1, b"v", b"")]),
    "M-23": ([P("a", 13, ""), C("a", 13, 14), X("a", 13, 14, "v", "o"), I], [(14, 13, b"a", 1, b"v", b"o")]),
    "redelivered": ([P("a", 11, "v"), C("a", 11, 12), P("a", 11, "v"), I], [(12, 11, b"a", 1, b"v", b"")]),
    "commit without op": ([I, P("a", 11, "v"), {**C("a", 11, 12), "op": ""}], [(12, 11, b"a", 1, b"v", b"")]),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str) -> None:
    events, want = SCENARIOS[name]
    for seed in range(6):
        matcher = Matcher()
        scanner = Scanner(matcher.chunks)
        sub = matcher.subscribe(0, 1, 7, 10)
        assert drive(matcher, scanner, [row(e) for e in events], random.Random(seed)) == [Initialized(sub)]
        assert sorted(set(committed(matcher.pending_rows()))) == want
        assert matcher.count(X_COUNT) == 0


@pytest.mark.parametrize(
    ("events", "cause"),
    [
        ([I, C("a", 11, 12)], "COMMIT without its PREWRITE"),
        ([X("a", 11, 12, "")], "PUT without a value"),
        ([X("a", 11, 12, "v", op="")], "row that is neither PUT nor DELETE"),
        ([I, P("a", 11, ""), C("a", 11, 12)], "COMMIT of a PREWRITE that came without its value"),
        ([Pd("a", 11), C("a", 11, 12)], "PUT without a value"),
        ([I, Pd("a", 11), C("a", 11, 12)], "PUT without a value"),
        ([I, {**P("a", 11, "v"), "op": ""}, {**C("a", 11, 12), "op": ""}], "row that is neither PUT nor DELETE"),
        ([R("a", 11), C("a", 11, 12)], "COMMIT without its PREWRITE"),
        ([{**X("a", 11, 12, "v"), "type": "UNKNOWN"}], "row of a type that this version does not know"),
    ],
)
def test_violation_ends_the_subscription_only(events: list[dict[str, Any]], cause: str) -> None:
    matcher = Matcher()
    scanner = Scanner(matcher.chunks)
    sub = matcher.subscribe(0, 1, 7, 10)
    other = matcher.subscribe(0, 2, 7, 10)
    assert other != sub
    controls = drive(matcher, scanner, [row(e) for e in events] + [row(X("b", 11, 12, "v"))], random.Random(1))
    assert Violation(sub, 10, cause, RowSeen(12, 11, b"a")) in controls
    drive(matcher, scanner, [row(X("z", 11, 12, "v"))], random.Random(1), region=2)
    assert committed(matcher.pending_rows()) == [(12, 11, b"z", 1, b"v", b"")]


def test_range_resolved_and_late_messages() -> None:
    matcher = Matcher(partitions=2)
    scanner = Scanner(matcher.chunks)
    random_ = random.Random(1)
    a = matcher.subscribe(0, 1, 7, 10, b"b", b"d", partition=0)
    b = matcher.subscribe(0, 2, 7, 10, b"d", b"", partition=1)
    assert matcher.frontiers().tolist() == [10, 10]
    drive(matcher, scanner, [row(X(k, 11, 12, "v")) for k in ("a", "b", "c", "d", "cc")], random_)
    assert [r[2] for r in committed(matcher.pending_rows(0))] == [b"b", b"c", b"cc"]
    assert matcher.count(X_RANGE) == 2
    matcher.feed(scanner.scan([resolved(15, 7, 1, 2)]))
    assert matcher.frontiers().tolist() == [10, 10], "resolved ts before INITIALIZED does not count"
    drive(matcher, scanner, [row(I)], random_)
    initialized = message(2, 7, [row(I)])
    matcher.feed(scanner.scan([resolved(20, 7, 1, 2), resolved(18, 7, 1), initialized, resolved(19, 7, 2), resolved(21, 7, 9)]))
    assert matcher.frontiers().tolist() == [20, 19]
    assert drive(matcher, scanner, [row(X("c", 18, 20, "v"))], random_) == [
        Violation(a, 20, "commit_ts at or below the resolved ts", RowSeen(20, 18, b"c"))
    ]
    (error,) = matcher.feed(scanner.scan([failure(2, 7, not_leader={"region_id": 2})]))
    assert isinstance(error, RegionError)
    assert (error.sub, error.resolved) == (b, 19)
    assert cdcpb.Error.FromString(error.error).not_leader.region_id == 2
    matcher.end_subscription(b)
    assert matcher.frontiers().tolist() == [20, 19], "an ended subscription keeps the frontier until it is replaced"
    unknown = matcher.count(X_UNKNOWN)
    matcher.feed(scanner.scan([resolved(90, 7, 2), message(2, 7, [row(X("x", 30, 31, "v"))])]))
    assert matcher.count(X_UNKNOWN) == unknown + 2
    assert matcher.resolved(b) == 19
    matcher.sweep()
    n = matcher.subscribe(0, 2, 7, 19, b"d", b"", partition=1)
    assert n != b
    matcher.drop(b)
    matcher.feed(scanner.scan([message(2, 7, [row(X("x", 30, 31, "v"))])]))
    assert committed(matcher.pending_rows(1)) == [(31, 30, b"x", 1, b"v", b"")]


def anything(random_: random.Random) -> Row | int:
    """A row that may break every rule, or a resolved ts."""
    if random_.random() < 0.08:
        return random_.randint(8, 24)
    type_ = random_.choices((0, 1, 2, 3, 4, 5, 9), (3, 30, 30, 8, 20, 4, 0.3))[0]
    op = random_.choices((PUT, DELETE, 0), (60, 30, 2))[0]
    start = random_.randint(5, 20)
    generation = random_.choice((0, 0, 0, 1, 2)) if type_ == PREWRITE else 0
    return Row(
        type=type_,  # type: ignore[arg-type]
        op_type=op,  # type: ignore[arg-type]
        key=random_.choice((b"a", b"b")) if type_ else b"",
        start_ts=start,
        commit_ts=start + random_.randint(1, 6) if type_ in (2, 4) or (type_ == 9 and start % 2) else 0,
        value=random_.choice((b"v", b"w", b"w", b"")) if op == PUT and type_ in (1, 4) else b"",
        old_value=random_.choice((b"", b"o")) if type_ in (1, 4) else b"",
        generation=generation,
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", few_of(range(8), 2))
def test_what_breaks_the_rules_is_judged_as_by_the_reference(seed: int) -> None:
    random_, causes = random.Random(seed), Counter[str]()
    for _ in range(500):
        matcher = Matcher()
        scanner = Scanner(matcher.chunks)
        since, checkpoint = (random_.randint(6, 12), 12) if random_.random() < 0.5 else (10, 10)
        sub = matcher.subscribe(0, 1, 7, checkpoint, since=since)
        reference = Reference(checkpoint, since)
        controls: list[Control] = []
        for event in (anything(random_) for _ in range(random_.randint(5, 60))):
            if isinstance(event, int):
                reference.resolve(event)
                controls += matcher.feed(scanner.scan([resolved(event, 7, 1)]))
            else:
                reference.row(event)
                controls += matcher.feed(scanner.scan([message(1, 7, [event])]))
        assert sorted(committed(matcher.pending_rows())) == sorted(reference.rows)
        assert matcher.resolved(sub) == reference.resolved
        broken = [(c.cause, c.row.commit_ts, c.row.start_ts, c.row.key) for c in controls if isinstance(c, Violation)]
        assert broken == ([reference.broken] if reference.broken else [])
        assert (Initialized(sub) in controls) == reference.initialized
        causes.update(cause for cause, *_ in broken)
    assert len(causes) >= 5, causes


def test_a_place_holds_the_frontier() -> None:
    matcher = Matcher(partitions=2)
    place = matcher.place(5, 1)
    assert matcher.frontiers().tolist() == [FOREVER, 5]
    sub = matcher.subscribe(0, 1, 7, 6, partition=1)
    assert matcher.frontiers().tolist() == [FOREVER, 5]
    matcher.drop(place)
    assert matcher.frontiers().tolist() == [FOREVER, 6]
    matcher.drop(sub)
    matcher.sweep()
    assert matcher.frontiers().tolist() == [FOREVER, FOREVER]
    assert {matcher.place(1, 0), matcher.place(1, 0)} == {place, sub}, "ids are used again"


def test_a_broken_stream_ends_its_subscriptions_and_no_other() -> None:
    matcher = Matcher()
    scanner = Scanner(matcher.chunks)
    first, second = matcher.subscribe(0, 1, 7, 10), matcher.subscribe(1, 1, 7, 12)
    assert matcher.end_stream(0) == [first]
    batch = scanner.scan([message(1, 7, [row(I), row(X("a", 20, 21, "v"))])] * 2, [0, 1])
    assert matcher.feed(batch) == [Initialized(second)]
    assert len(matcher.pending_rows()) == 1
    assert matcher.frontiers().tolist() == [10]


def test_without_multiplexing_request_ids_do_not_matter() -> None:
    matcher = Matcher()
    scanner = Scanner(matcher.chunks)
    matcher.set_multiplexed(3, False)
    matcher.subscribe(3, 1, 0, 10)
    matcher.feed(scanner.scan([message(1, 5, [row(I)]), resolved(20, 0, 1)], 3))
    assert matcher.frontiers().tolist() == [20]


def test_many_pending_entries_and_churn() -> None:
    """Growth of every table, random interleaving, against the reference."""
    random_ = random.Random(5)
    matcher = Matcher()
    scanner = Scanner(matcher.chunks)
    references = {region: Reference(10) for region in range(1, 41)}
    for region in references:
        matcher.subscribe(0, region, 7, 10)
    events = list(_churn(random_))
    messages = [message(region, 7, [event]) for region, event in events]
    for at in range(0, len(messages), 777):
        for control in matcher.feed(scanner.scan(messages[at : at + 777])):
            assert isinstance(control, Initialized)
    for region, event in events:
        references[region].row(event)
    want = sorted(x for r in references.values() for x in r.rows)
    assert sorted(committed(matcher.pending_rows())) == want
    assert len(want) > 10000


def _churn(random_: random.Random) -> list[tuple[int, Row]]:
    open_: list[tuple[int, bytes, int, int]] = []
    events: list[tuple[int, Row]] = []
    for i in range(30000):
        region, key, start = random_.randint(1, 40), b"key%09d" % random_.randint(0, 10**6), 100 + i
        op = PUT if random_.random() < 0.8 else DELETE
        value = b"v%d" % i if op == PUT else b""
        lock = Row(type=PREWRITE, op_type=op, start_ts=start, key=key, value=value, old_value=b"o" * random_.randint(0, 40))
        events.append((region, lock))
        open_.append((region, key, start, op))
        while len(open_) > 12000 or (open_ and random_.random() < 0.45):
            region, key, start, op = open_.pop(random_.randrange(len(open_)))
            if random_.random() < 0.9:
                events.append((region, Row(type=COMMIT, op_type=op, start_ts=start, commit_ts=10**6 + i, key=key)))
            else:
                events.append((region, Row(type=ROLLBACK, start_ts=start, key=key)))
        if i in (7000, 9000, 20000):
            events += [(r, Row(type=5)) for r in range(1 + 13 * (i // 9000), 14 + 13 * (i // 9000))]
    events.append((40, Row(type=5)))
    return events
