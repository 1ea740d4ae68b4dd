"""The table of what TiKV's change feed can send: nothing of the messages is missing, and the matcher does what each entry says."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor

from tests.support.capture.eventfeeds import Row, committed, failure, message
from tests.support.changelog.logs import row_key
from tidemill.capture.tikv.feed.store_errors import parse_store_error
from tidemill.capture.tikv.model import End
from tidemill.capture.tikv.receive.decode import Scanner
from tidemill.capture.tikv.receive.kinds import FIELDS, ROWS, Use
from tidemill.capture.tikv.receive.matcher import COUNTED, Control, Initialized, Matcher, RegionError, Skipped, Violation
from tidemill.capture.tikv.regions.actions import RowSeen
from tidemill.capture.tikv.regions.reactions import REACTIONS
from tidemill.kernels.receive import layout as L
from tidemill.wire import cdcpb_pb2 as cdcpb

NEW_KINDS = (6, 8, 77, 300, 2**31 - 1)
"""LogTypes that no TiKV has yet; some are numbers that the capture uses for itself."""
NAMES = {word: name for name, word in COUNTED.items()}


def test_every_kind_of_row_has_its_entry() -> None:
    known = set(cdcpb.Event.LogType.values())
    assert set(ROWS) == {(kind, keyed) for kind in (*known, L.NEWER) for keyed in (False, True)}


def test_every_field_has_its_entry() -> None:
    def fields(message: Descriptor) -> set[str]:
        return {field.name for field in message.fields}

    described = {
        "ChangeDataEvent": cdcpb.ChangeDataEvent, "ResolvedTs": cdcpb.ResolvedTs, "Event": cdcpb.Event,
        "Event.Entries": cdcpb.Event.Entries, "Event.Row": cdcpb.Event.Row,
    }  # fmt: skip
    assert {name: set(uses) for name, uses in FIELDS.items()} == {name: fields(one.DESCRIPTOR) for name, one in described.items()}


def test_every_error_has_its_reaction() -> None:
    assert {field.name for field in cdcpb.Error.DESCRIPTOR.fields} <= {end.value for end in REACTIONS}
    assert set(REACTIONS) == set(End)
    for field in cdcpb.Error.DESCRIPTOR.fields:
        error = cdcpb.Error()
        getattr(error, field.name).SetInParent()
        assert parse_store_error(error.SerializeToString()).end.value == field.name
    assert parse_store_error(b"").end is End.UNKNOWN
    assert parse_store_error(b"\x9a\x06\x02\x08\x01").end is End.UNKNOWN, "field 99, of a newer TiKV"


def row_of(kind: int, keyed: bool) -> Row:
    """A row of a kind with all that rows of its kind have."""
    key = b"k" if keyed else b""
    if kind == L.INITIALIZED:
        return Row(type=kind, key=key)  # type: ignore[arg-type]
    commit_ts = 0 if kind in (L.PREWRITE, L.ROLLBACK) or not keyed else 12
    value = b"v" if keyed else b""
    return Row(type=kind, op_type=1, key=key, start_ts=11 if keyed else 0, commit_ts=commit_ts, value=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("live", [False, True], ids=["scanning", "live"])
@pytest.mark.parametrize(("kind", "keyed"), list(ROWS), ids=lambda value: str(value))
def test_each_entry(kind: int, keyed: bool, live: bool) -> None:
    rule = ROWS[kind, keyed].live if live else ROWS[kind, keyed].scanning
    for wire_kind in NEW_KINDS if kind == L.NEWER else (kind,):
        matcher = Matcher()
        scanner = Scanner(matcher.chunks)
        sub = matcher.subscribe(0, 1, 7, 10)
        begin = [Row(type=L.INITIALIZED)] if live else []  # type: ignore[arg-type]
        prewritten = [Row(type=L.PREWRITE, op_type=1, key=b"k", start_ts=11, value=b"v")] if kind == L.COMMIT and keyed else []
        matcher.feed(scanner.scan([message(1, 7, [*begin, *prewritten])]))
        before = matcher.counts()
        controls = matcher.feed(scanner.scan([message(1, 7, [row_of(wire_kind, keyed)])]))
        counted = {name: n - before[name] for name, n in matcher.counts().items() if n != before[name]}
        check(controls, counted, rule, sub, kind)
        ended = rule == L.END
        matcher.feed(scanner.scan([message(1, 7, [Row(type=L.COMMITTED, op_type=1, key=b"z", start_ts=13, commit_ts=14, value=b"v")])]))  # type: ignore[arg-type]
        rows = [row[2] for row in committed(matcher.pending_rows())]
        assert (b"z" in rows) is not ended
        assert (b"k" in rows) is (rule == L.HANDLE and keyed and kind in (L.COMMIT, L.COMMITTED))
        assert matcher.resolved(sub) == 10


def check(controls: list[Control], counted: dict[str, int], rule: int, sub: int, kind: int) -> None:
    """What one row led to: an end of the subscription, a count, or what its kind does."""
    if rule == L.END:
        assert controls == [Violation(sub, 10, "row of a type that this version does not know", RowSeen(12, 11, b"k"))]
        assert counted == {}
    elif rule != L.HANDLE:
        assert controls == ([Skipped(sub)] if rule == L.X_SKIPPED else [])
        assert counted == {NAMES[rule]: 1}
    else:
        assert controls == ([Initialized(sub)] if kind == L.INITIALIZED else [])


def test_only_the_first_row_of_a_new_kind_is_reported() -> None:
    matcher = Matcher()
    scanner = Scanner(matcher.chunks)
    subs = [matcher.subscribe(0, region, 7, 10) for region in (1, 2)]
    rows = [row_of(77, keyed=False)] * 3
    assert matcher.feed(scanner.scan([message(1, 7, rows), message(2, 7, rows)])) == [Skipped(subs[0])]
    assert matcher.counts()["skipped_rows"] == 6


@pytest.mark.parametrize("field", ["admin", "long_txn"])
def test_events_that_are_ignored_end_nothing(field: str) -> None:
    matcher = Matcher()
    scanner = Scanner(matcher.chunks)
    sub = matcher.subscribe(0, 1, 7, 10)
    event = cdcpb.Event(region_id=1, request_id=7)
    getattr(event, field).SetInParent()
    assert matcher.feed(scanner.scan([cdcpb.ChangeDataEvent(events=[event]).SerializeToString()])) == []
    assert matcher.feed(scanner.scan([message(1, 7, [Row(type=L.INITIALIZED)])])) == [Initialized(sub)]  # type: ignore[arg-type]


def test_an_ended_subscription_takes_nothing() -> None:
    matcher = Matcher()
    scanner = Scanner(matcher.chunks)
    sub = matcher.subscribe(0, 1, 7, 10)
    (error,) = matcher.feed(scanner.scan([failure(1, 7, congested={"region_id": 1})]))
    assert isinstance(error, RegionError)
    matcher.end_subscription(sub)
    rows = [row_of(kind, keyed) for kind, keyed in ROWS]
    assert matcher.feed(scanner.scan([message(1, 7, rows)])) == []
    assert matcher.counts()["unknown_events"] == len(rows)


ROW = {"type": L.COMMITTED, "op_type": 1, "key": row_key(1, 5), "start_ts": 11, "commit_ts": 12, "value": b"v", "old_value": b"o"}


def event_of(**changed: Any) -> cdcpb.ChangeDataEvent:
    """A row that is taken, with other fields."""
    event: dict[str, Any] = {"region_id": 1, "request_id": 7, "entries": {"entries": [{"type": L.INITIALIZED}, ROW | changed]}}
    return cdcpb.ChangeDataEvent(events=[cdcpb.Event(**event)])


def taken_of(*messages: cdcpb.ChangeDataEvent) -> tuple[Any, ...]:
    """All that a receiver of the regions 1 and 2 makes of messages."""
    matcher = Matcher()
    scanner = Scanner(matcher.chunks)
    subs = [matcher.subscribe(0, region, 7, 10) for region in (1, 2)]
    controls, imports = [], []
    for one in messages:
        batch = scanner.scan([one.SerializeToString()])
        imports.append(batch.imports)
        controls.append(matcher.feed(batch))
    return controls, committed(matcher.pending_rows()), imports, matcher.counts(), [matcher.resolved(sub) for sub in subs]


ROW_CHANGED: dict[str, Any] = {
    "start_ts": 10, "commit_ts": 13, "type": L.PREWRITE, "op_type": 2, "key": b"other", "value": b"w", "old_value": b"p",
    "expire_ts_unix_secs": 99, "txn_source": 1 << 16, "generation": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in FIELDS["Event.Row"] if name != "generation"])
def test_each_field_of_a_row(name: str) -> None:
    same = taken_of(event_of()) == taken_of(event_of(**{name: ROW_CHANGED[name]}))
    assert same == (FIELDS["Event.Row"][name] is Use.IGNORED)


def test_the_generation_of_a_row() -> None:
    """Of two prewrites of a transaction the later one counts, in whichever order they come."""
    assert FIELDS["Event.Row"]["generation"] is Use.TAKEN
    found = []
    for first, second in ((1, 2), (2, 1)):
        messages = [event_of(type=L.PREWRITE, commit_ts=0, generation=n, value=b"%d" % n) for n in (first, second)]
        _, rows, *_ = taken_of(*messages, event_of(type=L.COMMIT, value=b"", old_value=b""))
        found += [row[4] for row in rows]
    assert found == [b"2", b"2"]


EVENTS: dict[str, tuple[cdcpb.ChangeDataEvent, cdcpb.ChangeDataEvent]] = {}
"""Field → a message, and the same with another value in that field."""
for _name, _value in {"region_id": 2, "request_id": 8, "index": 5}.items():
    _other = event_of()
    setattr(_other.events[0], _name, _value)
    EVENTS["Event." + _name] = event_of(), _other
EVENTS["Event.entries"] = event_of(), cdcpb.ChangeDataEvent(events=[cdcpb.Event(region_id=1, request_id=7)])


def event(**fields: Any) -> cdcpb.Event:
    return cdcpb.Event(**{"region_id": 1, "request_id": 7, **fields})


BEGINS = event(entries={"entries": [{"type": L.INITIALIZED}]})
for _name, _event in {
    "admin": event(admin={}),
    "long_txn": event(long_txn={"txn_info": [{"start_ts": 3, "primary": b"p"}]}),
    "error": event(error={"congested": {"region_id": 1}}),
    "resolved_ts": event(resolved_ts=40),
}.items():
    EVENTS["Event." + _name] = cdcpb.ChangeDataEvent(events=[BEGINS]), cdcpb.ChangeDataEvent(events=[BEGINS, _event])


@pytest.mark.parametrize("name", [f"Event.{name}" for name in FIELDS["Event"]])
def test_each_field_of_an_event(name: str) -> None:
    use = FIELDS["Event"][name.removeprefix("Event.")]
    before, after = map(taken_of, EVENTS[name])
    assert (before == after) == (use is Use.IGNORED)
    ends = [one for controls in after[0] for one in controls if isinstance(one, RegionError)]
    assert bool(ends) == (use is Use.ENDS)


@pytest.mark.parametrize(
    ("changed", "resolved"), [({}, [40, 40]), ({"regions": [2]}, [10, 40]), ({"ts": 41}, [41, 41]), ({"request_id": 8}, [10, 10])]
)
def test_each_field_of_a_batch_of_resolved_ts(changed: dict[str, Any], resolved: list[int]) -> None:
    assert {*changed} <= FIELDS["ResolvedTs"].keys()
    begun = cdcpb.ChangeDataEvent(events=[BEGINS, event(region_id=2, entries=BEGINS.entries)])
    batch: dict[str, Any] = {"regions": [1, 2], "ts": 40, "request_id": 7} | changed
    assert taken_of(begun, cdcpb.ChangeDataEvent(resolved_ts=cdcpb.ResolvedTs(**batch)))[4] == resolved


@pytest.mark.parametrize("field", [field.name for field in cdcpb.Error.DESCRIPTOR.fields])
def test_each_error_ends_its_subscription_and_no_other(field: str) -> None:
    error = cdcpb.Error()
    getattr(error, field).SetInParent()
    failed = cdcpb.ChangeDataEvent(events=[BEGINS, event(error=error)])
    controls, *_ = taken_of(failed, cdcpb.ChangeDataEvent(events=[event(region_id=2, entries=BEGINS.entries)]))
    ((_, ended), (other,)) = controls
    assert isinstance(ended, RegionError)
    assert parse_store_error(ended.error).end.value == field
    assert isinstance(other, Initialized)
