"""Readable scenario files: blocks of commands with their expected output, after the example of etcd's raft.

    # C-1 A split goes on from the resolved ts.
    pd 1:[-,-)v1@1
    span a z 10
    from 1 I T(20)
    ----
    subscribe 1 [a,z) from 10 at store 1
    res(20)

A block ends at an empty line. Events of a store are written P(key,start,value,old) PREWRITE of a PUT, Pd(key,start,old) of a DELETE,
C and Cd(key,start,commit) COMMIT, R(key,start) ROLLBACK, X(key,start,commit,value,old) and Xd(key,start,commit,old) COMMITTED,
U(key,start,commit) a row of a type that nobody knows, I INITIALIZED, T(ts) resolved ts; `-` is an empty value, `gen=3` a generation.
Events in braces come in any order. What comes out: put(key,commit,value,old), del(key,commit,old), res(ts).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

from tests.support.capture.eventfeeds import Emitted, Row, committed, message, resolved
from tests.support.capture.region_driver import asked_for
from tests.support.simulation.invariants import Witness, check_waiting
from tests.support.simulation.scenario_notation import parse_events, parse_region
from tidemill.capture.tikv.feed.store_errors import parse_store_error
from tidemill.capture.tikv.model import Peer, Region
from tidemill.capture.tikv.receive.ingest import (
    Event,
    ProtocolBroken,
    Receiver,
    RowLost,
    ScanDone,
    StreamLost,
    SubRangeFailed,
    SubRangeFrozen,
)
from tidemill.capture.tikv.regions import actions as A
from tidemill.capture.tikv.regions.machine import RegionMachine
from tidemill.kernels.receive.layout import DELETE, INITIALIZED
from tidemill.wire import cdcpb_pb2 as cdcpb

MANY = 100


@dataclass(frozen=True, slots=True)
class Block:
    """Commands and what they print, of one scenario."""

    name: str
    line: int
    commands: tuple[str, ...]
    expected: tuple[str, ...]


def blocks(path: Path) -> list[Block]:
    """The blocks of a scenario file. Blocks without a name of their own go on with the scenario before."""
    found: list[Block] = []
    commands: list[str] = []
    expected: list[str] = []
    name, line, below = "", 0, False
    for number, text in enumerate([*path.read_text().splitlines(), ""], 1):
        if not text.strip():
            if commands:
                found.append(Block(name, line, tuple(commands), tuple(expected)))
            commands, expected, below = [], [], False
        elif text == "----":
            below = True
        elif below:
            expected.append(text)
        elif text.startswith("#"):
            head = re.match(r"# ([A-Z]-\d+[a-z]?|W-\S+)\b", text)
            name = head[1] if head else name
        else:
            line = line if commands else number
            commands.append(text)
    return found


def scenarios(path: Path) -> dict[str, list[Block]]:
    """The blocks by scenario."""
    found: dict[str, list[Block]] = {}
    for block in blocks(path):
        found.setdefault(block.name, []).append(block)
    return found


def rewrite(path: Path, outputs: dict[int, list[str]]) -> None:
    """Put what came out (by the line of a block's first command) in the place of what was expected."""
    lines, skipping, at = [], False, 0
    for number, text in enumerate(path.read_text().splitlines(), 1):
        if number in outputs:
            at = number
        if not text.strip():
            if at and not skipping:
                lines += ["----", *outputs[at]]
            at, skipping = 0, False
        elif text == "----":
            lines += ["----", *outputs[at]]
            skipping = True
            continue
        if not skipping:
            lines.append(text)
    if at and not skipping:
        lines += ["----", *outputs[at]]
    path.write_text("\n".join(lines) + "\n")


@dataclass
class Wire:
    """Region machine and receiver (without sealing) against scripted stores and a scripted PD."""

    random: Random
    cut: str = "whole"  # how messages are cut: whole, single (a row a message) or random
    machine: RegionMachine = field(default_factory=lambda: RegionMachine(2))
    now: float = 0.0
    pd: list[Region] = field(default_factory=list)
    pd_down: bool = False
    dead_stores: set[int] = field(default_factory=set)
    old_stores: set[int] = field(default_factory=set)
    out: list[str] = field(default_factory=list)
    loads: list[A.LoadRegions] = field(default_factory=list)
    opens: list[A.OpenStream] = field(default_factory=list)
    subscriptions: list[A.Subscribe] = field(default_factory=list)
    stores: dict[int, int] = field(default_factory=dict)  # slot -> store, while the stream is up
    multiplexed: dict[int, bool] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    resolved: int = 0
    asked: int = 0
    registers: int = 0
    spans: int = 0
    quiet: bool = False
    full: bool = False
    steps: int = 0
    wanted: dict[int, A.Span] = field(default_factory=dict)
    witness: Witness = field(default_factory=Witness)

    def __post_init__(self) -> None:
        self.receiver = Receiver([self, self], Path("/nowhere"), self.heard)  # type: ignore[list-item]
        self.receiver._next_seal = float("inf")

    def run(self, block: Block) -> list[str]:
        """What a block's commands print."""
        self.out = []
        for text in block.commands:
            name, _, rest = text.partition(" ")
            command: Callable[[str], None] = getattr(self, f"do_{name.replace('-', '_')}")
            command(rest)
        return self.out

    # commands

    def do_pd(self, text: str) -> None:
        """What PD knows from now on; `down`: it does not answer."""
        self.pd_down = text == "down"
        if not self.pd_down:
            self.pd = sorted((parse_region(t) for t in text.split()), key=lambda r: r.start)

    def do_many(self, text: str) -> None:
        """PD knows this many regions of [a, z), on this many stores in turn."""
        count, stores = (int(t) for t in text.split())
        borders = [b"", *(b"b%06d" % i for i in range(1, count)), b""]
        leaders = [Peer(i, 1 + i % stores) for i in range(count)]
        self.pd = [Region(1 + i, a, b, 1, 1, leaders[i]) for i, (a, b) in enumerate(pairwise(borders))]

    def do_quiet(self, _: str) -> None:
        """Subscriptions are not printed from now on."""
        self.quiet = True

    def do_initialize(self, _: str) -> None:
        """Every scan ends, also those that begin meanwhile."""
        done = 0
        while done < len(self.subscriptions):
            to = self.subscriptions[done]
            self.receive(to.slot, message(to.region.id, to.request_id, [Row(type=INITIALIZED)]))
            done += 1

    def do_shares(self, _: str) -> None:
        """How many sub-ranges each store has, and how many of all are live."""
        shares = Counter(self.stores[s.slot] for s in self.subscriptions)
        live = self.machine.counts()["live"]
        self.out += [f"store {store}: {n} subscriptions" for store, n in sorted(shares.items())] + [f"{live} live"]

    def do_span(self, text: str) -> None:
        start, end, ts = text.split()
        self.spans += 1
        span = self.wanted[self.spans] = A.Span(self.spans, start.encode(), end.encode(), 0, int(ts))
        self.witness.span(span)
        self.machine.add_span(span, self.now)
        self.go(0.0)

    def do_drop(self, text: str) -> None:
        """Stop capturing a span."""
        del self.wanted[int(text)]
        self.machine.remove_span(int(text), self.now)
        self.act()

    def do_stores(self, text: str) -> None:
        """`down 1`, `up 1`, `old 1` (no EventFeedV2)."""
        state, store = text.split()
        (self.dead_stores.add if state == "down" else self.dead_stores.discard)(int(store))
        if state == "old":
            self.old_stores.add(int(store))

    def do_from(self, text: str) -> None:
        """Messages of the newest subscription of a region."""
        region, _, events = text.partition(" ")
        self.send(self.newest(int(region)), events)

    def do_late(self, text: str) -> None:
        """Messages of the subscription before the newest one, on its own stream."""
        region, _, events = text.partition(" ")
        self.send(self.newest(int(region), 1), events)

    def do_resolved(self, text: str) -> None:
        """One batched resolved ts: `50 1 2` for regions 1 and 2."""
        ts, *regions = (int(t) for t in text.split())
        first = self.newest(regions[0])
        request = first.request_id if self.multiplexed[first.slot] else 0
        self.receive(first.slot, resolved(ts, request, *regions))

    def do_plain(self, text: str) -> None:
        """A resolved ts as an event of one region: `30 1`."""
        ts, region = (int(t) for t in text.split())
        at = self.newest(region)
        event = cdcpb.Event(region_id=region, request_id=at.request_id, resolved_ts=ts)
        self.receive(at.slot, cdcpb.ChangeDataEvent(events=[event]).SerializeToString())

    def do_streams(self, _: str) -> None:
        """The streams that are open."""
        self.out.append(f"streams to stores {sorted(self.stores.values())}")

    def do_error(self, text: str) -> None:
        """An error of a region: its name, then what it tells."""
        region, name, *more = text.split()
        error = cdcpb.Error()
        if name == "not_leader":
            error.not_leader.region_id = int(region)
            if more:
                error.not_leader.leader.id = int(region) * 10 + int(more[0])
                error.not_leader.leader.store_id = int(more[0])
        elif name == "epoch_not_match":
            error.epoch_not_match.SetInParent()
            for told in map(parse_region, more):
                error.epoch_not_match.current_regions.add(id=told.id, start_key=told.start, end_key=told.end)
        elif name == "server_is_busy":
            error.server_is_busy.backoff_ms = int(more[0]) if more else 0
            error.server_is_busy.reason = "too many pending incremental scans"
        elif name == "cluster_id_mismatch":
            error.cluster_id_mismatch.current, error.cluster_id_mismatch.request = 5, 6
        elif name == "compatibility":
            error.compatibility.required_version = "6.2.0"
        elif name != "unknown":
            getattr(error, name).region_id = int(region)
        at = self.newest(int(region))
        event = cdcpb.Event(region_id=at.region.id, request_id=at.request_id, error=error)
        self.receive(at.slot, cdcpb.ChangeDataEvent(events=[event]).SerializeToString())

    def do_break(self, text: str) -> None:
        """All streams of a store end."""
        for slot in [s for s, store in self.stores.items() if store == int(text)]:
            self.hang_up(slot)
        self.act()

    def do_wait(self, text: str) -> None:
        """Time passes; what PD and stores are asked meanwhile is answered."""
        self.go(float(text))

    def do_full(self, _: str) -> None:
        """The log accepts nothing: its head stays where it is."""
        self.full = True

    def do_room(self, _: str) -> None:
        """The log accepts what waits."""
        self.full = False
        self.look()

    def do_sub_ranges(self, _: str) -> None:
        """Print the sub-ranges of all spans."""
        for lock in self.machine._spans.values():
            for sub_range in lock:
                region = f" {sub_range.region.id}" if sub_range.region else ""
                self.out.append(f"[{_key(sub_range.start)},{_key(sub_range.end)}) {sub_range.phase.value}{region}")

    def do_counts(self, _: str) -> None:
        """Print registers and questions to PD since the last command, and the error counts."""
        errors = " ".join(f"{k}={v}" for k, v in sorted(self.machine.errors.items()))
        self.out.append(f"registers={self.registers} pd={self.asked} {errors}".rstrip())
        self.registers = self.asked = 0

    def do_pending(self, _: str) -> None:
        """Prewrites that wait."""
        self.out.append(f"pending={self.receiver.matcher.count(10)}")

    # stores

    def newest(self, region: int, back: int = 0) -> A.Subscribe:
        """The newest subscription of a region (or `back` before it)."""
        return [s for s in self.subscriptions if s.region.id == region][-1 - back]

    def send(self, to: A.Subscribe, text: str) -> None:
        """Events of one subscription, cut into messages."""
        rows: list[Row] = []
        request = to.request_id if self.multiplexed[to.slot] else 0
        for event in parse_events(text, self.random):
            if isinstance(event, int):
                self.flush(to, rows)
                self.receive(to.slot, resolved(event, request, to.region.id))
            else:
                rows.append(event)
        self.flush(to, rows)

    def flush(self, to: A.Subscribe, rows: list[Row]) -> None:
        while rows:
            n = {"whole": len(rows), "single": 1, "random": self.random.randint(1, len(rows))}[self.cut]
            self.receive(to.slot, message(to.region.id, to.request_id, rows[:n]))
            del rows[:n]

    def receive(self, slot: int, data: bytes) -> None:
        self.witness.message(slot, data)
        self.receiver.step([slot], [data])
        self.look()
        self.handle()
        self.check()

    def hang_up(self, slot: int, unimplemented: bool = False) -> None:
        self.stores.pop(slot, None)
        self.machine.stream_ended(slot, self.now, unimplemented=unimplemented)
        self.receiver.call(lambda: self.receiver.end_stream(slot, "broken"))

    # the capture

    @property
    def head(self) -> int:
        """Of the log, as the receiver asks for it."""
        return self.resolved

    def heard(self, events: list[Event]) -> None:
        self.witness.events(events)
        self.events.extend(events)

    def check(self) -> None:
        """INV2 and INV5 (and a bound for INV10), after every step; of a thousand regions now and then."""
        self.steps += 1
        if len(self.receiver._sub_of) > MANY and self.steps % MANY:
            return
        self.witness.check(self.machine, self.receiver, self.wanted)
        check_waiting(self.receiver, [self.resolved])
        assert self.receiver.matcher.memory() < 64 << 20

    def look(self) -> None:
        """Rows come out when the frontier passes them, in order, once."""
        frontier = int(self.receiver.matcher.frontiers()[0])
        if self.machine._spans and self.resolved < frontier < 1 << 62 and not self.full:
            rows = sorted(set(committed(self.receiver.matcher.take(0, frontier))))
            self.out += [_row(r) for r in rows]
            self.out.append(f"res({frontier})")
            self.resolved = frontier
        assert frontier >= self.resolved, "the frontier went back"

    def handle(self) -> None:
        while self.events:
            match self.events.pop(0):
                case ScanDone(sub_range):
                    self.machine.scan_done(sub_range, self.now)
                case SubRangeFailed(sub_range, ts, error):
                    self.machine.failed(sub_range, ts, parse_store_error(error), self.now)
                case ProtocolBroken(sub_range, ts, cause):
                    self.out.append(f"violation: {cause}")
                    self.machine.broken(sub_range, ts, self.now, cause)
                case RowLost(sub_range, region, cause, row, head):
                    self.machine.lost(sub_range, region, cause, row, head)
                case SubRangeFrozen(sub_range, ts):
                    self.machine.frozen(sub_range, ts, self.now)
                case StreamLost(stream, lost, _, _):
                    self.machine.stream_lost(stream, lost, self.now)
            self.act()

    def act(self) -> None:
        for action in self.machine.actions():
            self.witness.act(action, self.machine)
            self.do_action(action)
        self.receiver.step([], [])
        self.handle()
        if not self.events:
            self.check()

    def do_action(self, action: A.Action) -> None:
        receiver = self.receiver
        match action:
            case A.HoldFrontier(sub_range, resolved_ts, partition):
                receiver.call(lambda: receiver.place(sub_range, resolved_ts, partition))
            case A.ReleaseFrontier(sub_ranges):
                receiver.call(lambda: receiver.drop(sub_ranges))
            case A.LoadRegions():
                self.loads.append(action)
            case A.OpenStream():
                self.opens.append(action)
            case A.CloseStream(slot):
                self.out.append(f"close the stream to store {self.stores[slot]}")
                self.hang_up(slot)
            case A.Subscribe():
                self.subscribe(action)
            case A.Deregister(_, region_id, _):
                self.out.append(f"deregister {region_id}")
            case A.Fail(error):
                self.out.append(f"fatal {error.code}: {error.message}")

    def subscribe(self, action: A.Subscribe) -> None:
        self.registers += 1
        self.subscriptions.append(action)
        self.receiver.call(
            lambda: self.receiver.subscribe(
                action.sub_range,
                action.slot,
                action.region.id,
                action.request_id,
                action.checkpoint,
                action.start,
                action.end,
                action.partition,
                action.since,
            )
        )
        where = f"[{_key(action.start)},{_key(action.end)}) from {action.checkpoint} at store {self.stores.get(action.slot)}"
        if not self.quiet:
            self.out.append(f"subscribe {action.region.id} {where}")

    def go(self, seconds: float) -> None:
        """Let time pass: PD answers, streams open, timers run out."""
        until = self.now + seconds
        self.machine.wake(self.now)
        self.act()
        while True:
            while self.loads or self.opens:
                while self.loads:
                    self.answer(self.loads.pop(0))
                while self.opens:
                    self.open(self.opens.pop(0))
            due = self.machine.next_time()
            if due is None or due > until:
                break
            self.now = max(self.now, due)
            self.machine.wake(self.now)
            self.act()
        self.now = until
        self.look()

    def answer(self, load: A.LoadRegions) -> None:
        self.asked += 1
        if self.pd_down:
            self.machine.load_failed(load.load, self.now)
        else:
            found = asked_for(load, self.pd)
            self.machine.loaded(load.load, found, True, self.now)
        self.act()

    def open(self, wanted: A.OpenStream) -> None:
        if wanted.store_id in self.dead_stores:
            self.machine.stream_ended(wanted.slot, self.now)
        elif wanted.multiplexed and wanted.store_id in self.old_stores:
            self.out.append(f"store {wanted.store_id} does not know EventFeedV2")
            self.machine.stream_ended(wanted.slot, self.now, unimplemented=True)
        else:
            self.stores[wanted.slot] = wanted.store_id
            self.multiplexed[wanted.slot] = wanted.multiplexed
            self.witness.stream(wanted.slot, wanted.multiplexed)
            self.receiver.call(lambda: self.receiver.open_stream(wanted.slot, wanted.multiplexed))
            self.machine.stream_opened(wanted.slot, self.now)
        self.act()


def _key(key: bytes) -> str:
    return key.decode("latin-1") if key.isascii() else key.hex()


def _row(row: Emitted) -> str:
    commit_ts, _, key, op, value, old = row
    texts = [v.decode() or "-" for v in (value, old)]
    if op == DELETE:
        return f"del({key.decode()},{commit_ts},{texts[1]})"
    return f"put({key.decode()},{commit_ts},{texts[0]},{texts[1]})"
