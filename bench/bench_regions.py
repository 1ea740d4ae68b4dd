"""What very many regions cost, and what memory a huge transaction takes.

    python -m bench.bench_regions regions [--count 300000] [--stores 10]
    python -m bench.bench_regions tables [--count 100000] [--stores 10] [--shared 1]
    python -m bench.bench_regions transaction [--quota-mib 64] [--times 16]

`regions` runs the region state machine and the receiver without sockets: one table of COUNT regions is divided, subscribed and
initialized; then the stores send resolved ts for all of them in TiKV's groups; then the watchdog surveys them; then a store goes down
and its share begins again. CPU and memory of each step are told. `tables` does the same with COUNT tables, of which SHARED lie in one
region each, and tells how often PD is asked and the longest that one call kept the event loop. `transaction` sends one transaction
whose prewrites are TIMES the memory quota, all of them before the first COMMIT, and tells the most memory that the process had, beside
what it had before.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench.report.figures import Figure, note
from tidemill.capture.tikv.model import Peer, Region
from tidemill.capture.tikv.receive.ingest import Event, Options, Receiver, ScanDone, StreamLost, SubRangeFailed
from tidemill.capture.tikv.regions import actions as A
from tidemill.capture.tikv.regions.machine import RegionMachine
from tidemill.capture.tikv.sort.partition import PartitionLog
from tidemill.capture.tikv.watchdog.detect import Watch
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.writer import LogWriter
from tidemill.tidb.keys import record_key
from tidemill.wire import cdcpb_pb2 as cdcpb

MIB = 1 << 20
REGIONS, TABLES = "Capture: regions, without sockets", "Capture: tables, without sockets"
AIMS = {"divide, subscribe, INITIALIZED": (10, 300)}  # CPU s, MiB at most, for 300,000 regions
LIMIT = 1024  # regions of one answer


def memory_mib() -> float:
    """Resident memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / MIB


class Step:
    """Prints what the block cost, without what making the answers of PD and the stores did."""

    def __init__(self, fleet: Fleet, stage: str, name: str) -> None:
        self.fleet, self.stage, self.name = fleet, stage, name

    def __enter__(self) -> None:
        self._begin, self._memory = time.process_time() - self.fleet.apart, memory_mib()

    def __exit__(self, *_: object) -> None:
        cpu, memory = time.process_time() - self.fleet.apart - self._begin, memory_mib() - self._memory
        print(f"{self.name:44s} {cpu:7.2f} CPU s, {memory:+7.0f} MiB resident", flush=True)
        aims = AIMS.get(self.name, (None, None)) if self.stage == REGIONS else (None, None)
        note(Figure(self.stage, self.name, cpu, "CPU s", aim=aims[0]))
        note(Figure(self.stage, f"{self.name}: memory that it took", memory, "MiB", aim=aims[1]))


# ---- regions ---------------------------------------------------------------------------------------------------------


@dataclass
class Fleet:
    """Machine and receiver, and stores that answer at once."""

    count: int
    stores: int
    machine: RegionMachine = field(default_factory=lambda: RegionMachine(2))
    events: deque[Event] = field(default_factory=deque)
    loads: deque[A.LoadRegions] = field(default_factory=deque)
    by_slot: dict[int, list[int]] = field(default_factory=dict)  # regions; those of a stream have one request id
    request_of: dict[int, int] = field(default_factory=dict)
    waiting: list[A.Subscribe] = field(default_factory=list)
    store_of: dict[int, int] = field(default_factory=dict)
    now: float = 0.0
    most_scans: int = 0
    questions: int = 0
    longest: float = 0.0  # CPU seconds of one call into the machine, with what it asks for
    apart: float = 0.0  # CPU seconds of making what PD and the stores say

    def __post_init__(self) -> None:
        self.receiver = Receiver([None, None], Path("/"), self.events.extend)  # type: ignore[list-item]
        self.receiver._next_seal = float("inf")
        self.regions = [self.region(i) for i in range(self.count)]
        self.borders = [region.start for region in self.regions]

    def region(self, i: int) -> Region:
        """Region i of the table."""
        start, end = (b"" if k in (0, self.count) else b"t%012d" % k for k in (i, i + 1))
        return Region(i + 1, start, end, 1, 1, Peer(10 * i, 1 + i % self.stores))

    def act(self) -> None:
        receiver = self.receiver
        for action in self.machine.actions():
            match action:
                case A.HoldFrontier(sub_range, resolved_ts, partition):
                    receiver.call(partial(receiver.place, sub_range, resolved_ts, partition))
                case A.ReleaseFrontier(sub_ranges):
                    receiver.call(partial(receiver.drop, sub_ranges))
                case A.LoadRegions():
                    self.loads.append(action)
                case A.OpenStream(slot, store_id, multiplexed):
                    self.store_of[slot] = store_id
                    receiver.call(partial(receiver.open_stream, slot, multiplexed))
                    self.machine.stream_opened(slot, self.now)
                case A.Subscribe():
                    self.waiting.append(action)
                    call = partial(
                        receiver.subscribe, action.sub_range, action.slot, action.region.id, action.request_id, action.checkpoint
                    )
                    receiver.call(partial(call, action.start, action.end, action.partition))

    def run(self) -> None:
        """Until nothing is under way."""
        while True:
            begin = time.process_time()
            self.machine.wake(self.now)
            self.act()
            self.longest = max(self.longest, time.process_time() - begin)
            while self.loads or self.waiting or self.events or self.machine._actions:
                self._answer()
                self._scan()
                self.act()
            due = self.machine.next_time()
            if due is None:
                return
            self.now = max(self.now, due)

    def _answer(self) -> None:
        while self.loads:
            load = self.loads.popleft()
            self.questions += 1
            begin = time.process_time()
            found: list[Region] = []
            for start, end in load.ranges:
                low = max(bisect_right(self.borders, start) - 1, 0)
                high = bisect_left(self.borders, end, lo=low)
                found += self.regions[low + (found[-1:] == self.regions[low : low + 1]) : min(high, low + LIMIT)]
                if len(found) >= LIMIT:
                    break
            self.apart += time.process_time() - begin
            begin = time.process_time()
            self.machine.loaded(load.load, found[:LIMIT], len(found) < LIMIT, self.now)
            self.act()
            self.longest = max(self.longest, time.process_time() - begin)

    def _initialized(self, action: A.Subscribe) -> bytes:
        """The store's message that the scan of a subscription is complete."""
        self.by_slot.setdefault(action.slot, []).append(action.region.id)
        self.request_of[action.slot] = action.request_id
        event = cdcpb.Event(region_id=action.region.id, request_id=action.request_id)
        event.entries.entries.append(cdcpb.Event.Row(type=cdcpb.Event.INITIALIZED))
        return cdcpb.ChangeDataEvent(events=[event]).SerializeToString()

    def _scan(self) -> None:
        self.most_scans = max(self.most_scans, len(self.waiting))
        begun, self.waiting = self.waiting, []
        begin = time.process_time()
        said: dict[int, list[bytes]] = {}
        for action in begun:
            said.setdefault(action.slot, []).append(self._initialized(action))
        self.apart += time.process_time() - begin
        for slot, messages in said.items():  # what a store says at the same time is in the inbox together
            self.receiver.step([slot] * len(messages), list(messages))
        self.receiver.matcher.sweep()  # as before each look for what can be sealed
        while self.events:
            match self.events.popleft():
                case ScanDone(sub_range):
                    self.machine.scan_done(sub_range, self.now)
                case StreamLost(stream, sub_ranges, _, _):
                    self.machine.stream_lost(stream, sub_ranges, self.now)
                case SubRangeFailed():
                    raise AssertionError("no region fails here")

    def resolve(self, ts: int) -> None:
        """A round of resolved ts: groups of 8, 32, 128, … regions."""
        for slot, subscriptions in self.by_slot.items():
            at, size = 0, 8
            while at < len(subscriptions):
                group = subscriptions[at : at + size]
                resolved = cdcpb.ResolvedTs(regions=group, ts=ts, request_id=self.request_of[slot])
                self.receiver.step([slot], [cdcpb.ChangeDataEvent(resolved_ts=resolved).SerializeToString()])
                at, size = at + size, size * 4


def regions(count: int, stores: int) -> None:
    """See the module."""
    fleet = Fleet(count, stores)
    print(f"{count} regions of one table on {stores} stores; {memory_mib():.0f} MiB with PD's answers at hand")
    with Step(fleet, REGIONS, "divide, subscribe, INITIALIZED"):
        fleet.machine.add_span(A.Span(1, b"t", b"u", 0, 10), 0.0)
        fleet.run()
    assert fleet.machine.counts()["live"] == count
    print(f"  {fleet.questions} questions to PD, at most {fleet.most_scans} scans at a time")
    fleet.resolve(100)
    with Step(fleet, REGIONS, "a round of resolved ts"):
        fleet.resolve(101)
    with Step(fleet, REGIONS, "the frontier"):
        assert int(fleet.receiver.matcher.frontiers()[0]) == 101
    watch = Watch(2)
    watch.look(fleet.receiver.survey(), 0.0)
    with Step(fleet, REGIONS, "a round of the watchdog"):
        watch.look(fleet.receiver.survey(), 1.0)
        assert watch.stuck(1.0) == []
        assert watch.holders(1.0)[0].resolved == 101
    slot, lost = next((s, subs) for s, subs in fleet.by_slot.items())
    fleet.questions = 0
    with Step(fleet, REGIONS, f"a store goes down: {len(lost)} begin again"):
        del fleet.by_slot[slot]
        fleet.machine.stream_ended(slot, fleet.now)
        fleet.receiver.end_stream(slot, "down")
        fleet.run()
    assert fleet.machine.counts()["live"] == count
    print(f"  {fleet.questions} questions to PD")


def tables(count: int, stores: int, shared: int) -> None:
    """See the module."""
    fleet = Fleet(count // shared, stores)
    print(f"{count} tables in {count // shared} regions on {stores} stores")
    with Step(fleet, TABLES, "add all spans"):
        for i in range(count):
            key = b"t%012d" % (i // shared) + b"%04d" % (i % shared)
            fleet.machine.add_span(A.Span(i, key + b"_r", key + b"_s", i % 2, 10), 0.0)
        fleet.act()
    with Step(fleet, TABLES, "divide, subscribe, INITIALIZED"):
        fleet.run()
    assert fleet.machine.counts()["live"] == count
    print(f"  {fleet.questions} questions to PD, the longest call {1000 * fleet.longest:.0f} ms")
    slot, lost = next((s, subs) for s, subs in fleet.by_slot.items())
    fleet.questions, fleet.longest = 0, 0.0
    with Step(fleet, TABLES, f"a store goes down: {len(lost)} begin again"):
        del fleet.by_slot[slot]
        fleet.machine.stream_ended(slot, fleet.now)
        fleet.receiver.end_stream(slot, "down")
        fleet.run()
    assert fleet.machine.counts()["live"] == count
    print(f"  {fleet.questions} questions to PD, the longest call {1000 * fleet.longest:.0f} ms")


# ---- a huge transaction ------------------------------------------------------------------------------------------------


def messages(rows: int, size: int) -> Iterator[bytes]:
    """One transaction: all its prewrites, then all its commits, a thousand rows a message."""
    value = b"v" * size
    for commit in (False, True):
        for at in range(0, rows, 1000):
            event = cdcpb.Event(region_id=1, request_id=7)
            for i in range(at, min(at + 1000, rows)):
                data: dict[str, Any] = {"commit_ts": 200, "type": 2} if commit else {"value": value, "type": 1}
                event.entries.entries.append(cdcpb.Event.Row(start_ts=100, op_type=1, key=record_key(1, i), **data))
            yield cdcpb.ChangeDataEvent(events=[event]).SerializeToString()


def transaction(quota: int, times: int, size: int = 1000) -> None:
    """See the module."""
    rows = quota * times // size
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder) / "scratch"
        scratch.mkdir()
        writer = LogWriter.create(Path(folder) / "log", LogIdentity(cluster_id="1", start_ts=10, partitions=1), snapshot={})
        receiver = Receiver([PartitionLog(writer.partition(0), scratch)], scratch, lambda events: None, options=Options.of_quota(quota))
        receiver._next_seal = float("inf")
        receiver.place(1, 10, 0)
        receiver.subscribe(1, 0, 1, 7, 10, b"", b"", 0)
        initialized = cdcpb.Event(region_id=1, request_id=7)
        initialized.entries.entries.append(cdcpb.Event.Row(type=5))
        receiver.step([0], [cdcpb.ChangeDataEvent(events=[initialized]).SerializeToString()])
        before = memory_mib()
        most = decoded = 0.0
        begin = time.process_time()
        sending = 0.0
        for data in messages(rows, size):
            made = time.process_time()
            while receiver.full:
                receiver._wait_for_disks()
                receiver.step([], [])
            receiver.step([0], [data])
            sending += time.process_time() - made
            most = max(most, _private_mib())
            decoded = max(decoded, receiver.matcher.memory() / MIB)
        resolved = cdcpb.ResolvedTs(regions=[1], ts=1000, request_id=7)
        made = time.process_time()
        receiver.step([0], [cdcpb.ChangeDataEvent(resolved_ts=resolved).SerializeToString()])
        receiver._finish_spills(wait_for=True)
        receiver._seal(force=True)
        receiver._finish_seals(wait=True)
        sending += time.process_time() - made
        most = max(most, _private_mib())
        assert receiver.stats.sealed_rows == rows
        writer.close()
    print(f"one transaction of {rows} rows, {rows * size / MIB:.0f} MiB of values, quota {quota / MIB:.0f} MiB")
    print(f"slabs and records: at most {decoded:.0f} MiB; private memory: {before:.0f} MiB resident before, at most {most:.0f} MiB")
    print(f"{receiver.prewrites.written} prewrites and {receiver.stats.spilled_rows} rows went to disk")
    stage = f"Capture: one transaction of {rows * size / MIB:,.0f} MiB"
    note(Figure(stage, "slabs and records", decoded, "MiB", aim=quota / MIB))
    note(Figure(stage, "memory of the process, less what it had before", most - before, "MiB"))
    note(Figure(stage, "CPU", sending / rows * 1e6, "CPU s a million rows"))
    print(f"{sending / rows * 1e6:.2f} CPU s per million rows (of {time.process_time() - begin:.1f} s with making the messages)")


def _private_mib() -> float:
    """Anonymous memory: without the pages of mapped files, which the kernel takes back when it wants to."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return memory_mib()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["regions", "tables", "transaction"])
    parser.add_argument("--count", type=int)
    parser.add_argument("--shared", type=int, default=1)
    parser.add_argument("--stores", type=int, default=10)
    parser.add_argument("--quota-mib", type=int, default=64)
    parser.add_argument("--times", type=int, default=16)
    args = parser.parse_args()
    if args.what == "regions":
        regions(args.count or 300_000, args.stores)
    elif args.what == "tables":
        tables(args.count or 100_000, args.stores, args.shared)
    else:
        transaction(args.quota_mib * MIB, args.times)


if __name__ == "__main__":
    main()
