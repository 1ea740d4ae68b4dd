"""Events of a simulated cluster, and between it and its capture, chosen by a seed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random

from tests.support.simulation.simulator import Simulator
from tidemill.capture.tikv.receive.ingest import Options as ReceiverOptions
from tidemill.errors import UpstreamError
from tidemill.playground.store.cluster import Pending
from tidemill.playground.store.feed import region_not_found
from tidemill.playground.store.mvcc import LockKind
from tidemill.playground.workload.mixed import Mixed, Options
from tidemill.wire import cdcpb_pb2 as cdcpb


class World:
    """Random events of the cluster, and between it and the capture."""

    def __init__(self, sim: Simulator, random: Random) -> None:
        self.sim, self.random = sim, random
        options = Options(ddl_every=random.choice((0, 15)), region_every=random.choice((3, 20)), lock_every=0, rows=random.choice((2, 8)))
        self.workload = Mixed(sim.database, random.randrange(1 << 30), options)
        self.pending: list[Pending] = []
        faults = sim.faults
        faults.stale_pd, faults.hole, faults.no_leader = (random.choice((0.0, 0.3)) for _ in range(3))
        faults.pd_down, faults.no_stream, faults.cut = 0.05, 0.1, random.choice((0.0, 0.5, 1.0))
        faults.old_server, faults.lag, faults.gc = random.random() < 0.2, random.choice((0.0, 0.3)), random.random() < 0.3
        always = (
            (30, self.work), (8, sim.cluster.tick), (12, lambda: sim.pass_time(random.random() * 0.5)), (6, sim.seal),
            (3, sim.begin_seal), (1, self.collect), (2, self.keep_history),
        )  # fmt: skip
        trouble = (
            (4, self.split), (3, self.merge), (3, self.transfer), (3, self.lock), (3, self.unlock), (2, self.break_stream),
            (2, self.fail_region), (2, self.freeze), (1, self.busy), (2, self.congest), (2, self.protocol), (2, self.renew),
            (2, self.garble), (1, self.store_down), (2, self.lose_and_merge), (0.4, self.kill), (3, self.lock_only),
        )  # fmt: skip
        share = random.choice((0.2, 0.5, 1.0))  # of these in one round: everything at once keeps a capture from ever getting anywhere
        self.acts = (*always, *(pair for pair in trouble if random.random() < share))

    def act(self) -> None:
        """One thing of the world, and what is under way goes on by some steps, in any order."""
        weights = [w for w, _ in self.acts]
        self.random.choices([act for _, act in self.acts], weights)[0]()
        for _ in range(self.random.choice((0, 1, 4, 40))):
            waiting = self.sim.todo()
            if not waiting:
                return
            step = self.random.choice(waiting)
            self.sim.trace.note(step.func.__name__)
            step()
            self.sim.check()

    def work(self) -> None:
        while self.pending and self.workload.ddl_runs:
            self.unlock()
        self.workload.act()
        self.sim.note_regions()

    def split(self) -> None:
        key = self.workload.random.choice(self.workload.actors).some_key()
        if key is not None:
            self.sim.cluster.split([key[: self.random.randint(9, len(key))]])

    def merge(self) -> None:
        regions = list(self.sim.cluster.regions)
        i = self.random.randrange(len(regions))
        if i + 1 < len(regions):
            pair = [regions[i].id, regions[i + 1].id]
            self.random.shuffle(pair)
            self.sim.cluster.merge(*pair)

    def transfer(self) -> None:
        region = self.random.choice(list(self.sim.cluster.regions))
        self.sim.cluster.transfer_leader(region.id, self.random.choice(region.peers).store_id)

    def lock(self) -> None:
        """A transaction prewrites and its client is not heard of for a while."""
        key = self.random.choice(self.workload.actors).some_key()
        cluster = self.sim.cluster
        newest = cluster.mvcc.tablet(key).newest(key) if key is not None else None
        if key is None or newest is None or newest[2] is None or key in cluster.mvcc.locks or self.workload.ddl_runs:
            return
        if self.random.random() < 0.5:  # never in the way
            kind = self.random.choice((LockKind.PESSIMISTIC, LockKind.LOCK))
            self.pending.append(cluster.prewrite([(key, newest[2])], kind=kind))
        else:
            self.pending.append(cluster.prewrite([(key, self.random.choice((newest[2], None)))]))

    def lock_only(self) -> None:
        """A transaction locks a key of a region, and commits without a change: the subscriptions of the whole region see an empty row."""
        region = self.random.choice(list(self.sim.cluster.regions))
        self.sim.cluster.feeds.lock_only(region, self.random.choice((1, 3)))

    def unlock(self) -> None:
        if self.pending:
            pending = self.pending.pop(self.random.randrange(len(self.pending)))
            (self.sim.cluster.commit if self.random.random() < 0.7 else self.sim.cluster.rollback)(pending)

    def break_stream(self) -> None:
        if self.sim.connections:
            self.sim.break_stream(self.random.choice(list(self.sim.connections.values())))

    def garble(self) -> None:
        if self.sim.connections:
            self.sim.garble(self.random.choice(list(self.sim.connections.values())))

    def lose_and_merge(self) -> None:
        """What two neighbours have sent is lost with their stream while one of them goes on, and then they are merged."""
        self.work()
        regions = list(self.sim.cluster.regions)
        i = self.random.randrange(len(regions))
        if i + 1 < len(regions):
            self.sim.frozen ^= {regions[i].id}
            self.sim.cluster.tick()
            self.break_stream()
            self.sim.cluster.merge(regions[i].id, regions[i + 1].id)

    def store_down(self) -> None:
        """A store goes away with all its streams, or comes back; PD may still name its peers as leaders."""
        sim = self.sim
        store = self.random.choice(sorted(sim.cluster.stores))
        if sim.faults.down or self.random.random() < 0.5:
            sim.faults.down.clear()
            return
        sim.faults.down.add(store)
        for connection in list(sim.connections.values()):
            if connection.server.store_id == store:
                sim.break_stream(connection)

    def collect(self) -> None:
        """TiDB collects garbage, as far as allowed."""
        if self.sim.faults.gc:
            self.sim.cluster.collect_garbage(0)

    def keep_history(self) -> None:
        """Move the GC barrier at PD with the log, if PD can be reached."""
        self.sim.pd.down = self.random.random() < 0.3
        with suppress(UpstreamError):
            self.sim.keep_history()
        self.sim.pd.down = False

    def fail_region(self) -> None:
        region = self.random.choice(list(self.sim.cluster.regions))
        self.sim.cluster.feeds.fail_region(region.id, region_not_found(region.id))

    def freeze(self) -> None:
        """Some regions send no resolved ts for a while."""
        regions = [r.id for r in self.sim.cluster.regions]
        self.sim.frozen = set(self.random.sample(regions, self.random.choice((0, 0, 1, min(3, len(regions)), len(regions)))))

    def busy(self) -> None:
        self.sim.cluster.feeds.limits.pending_scans = self.random.choice((0, 2, 10_000))

    def congest(self) -> None:
        region = self.random.choice(list(self.sim.cluster.regions))
        self.sim.cluster.feeds.fail_region(region.id, cdcpb.Error(congested=cdcpb.Congested(region_id=region.id)))

    def protocol(self) -> None:
        """A store loses a PREWRITE, so its COMMIT comes alone: the region must be subscribed again."""
        for connection in self.sim.connections.values():
            if connection.server.outbox and b"PREWRITE" not in connection.server.outbox[-1][1] and self.random.random() < 0.3:
                subscriptions = list(connection.server.subscriptions.values())
                if subscriptions:
                    chosen = self.random.choice(subscriptions)
                    row = cdcpb.Event.Row(
                        start_ts=1, commit_ts=self.sim.cluster.oracle.last + 5, type=2, op_type=1, key=chosen.start + b"?"
                    )
                    event = cdcpb.Event(region_id=chosen.region_id, request_id=chosen.request_id)
                    event.entries.entries.append(row)
                    connection.server.send_event(event.SerializeToString())
                    return

    def renew(self) -> None:
        """The watchdog ends a region's subscription."""
        sub_ranges = list(self.sim.receiver._sub_of)
        if sub_ranges:
            self.sim.receiver.renew(self.random.choice(sub_ranges))

    def kill(self) -> None:
        self.sim.kill()
        self.sim.start()

    def heal(self) -> None:
        """End all faults."""
        sim = self.sim
        old = sim.faults.old_server
        sim.faults = type(sim.faults)(old_server=old, cut=sim.faults.cut, gc=sim.faults.gc)
        sim.frozen, sim.cluster.feeds.limits.pending_scans = set(), 10_000
        self.workload.settle()
        while self.pending:
            self.unlock()


def begin(folder: Path, seed: int) -> tuple[World, Random]:
    """A world with a capture that has just begun."""
    random = Random(seed)
    budgets = [
        ReceiverOptions(),
        *(ReceiverOptions(prewrite_budget=1 << n, row_budget=1 << n + 2, most_runs=4, fan_in=3) for n in (9, 11, 14)),
    ]
    options = random.choice((budgets[0], random.choice(budgets)))
    sim = Simulator(folder, seed, stores=random.choice((1, 3)), partitions=random.choice((1, 3)), options=options)
    world = World(sim, random)
    world.workload.prepare()
    sim.begin()
    return world, random


def trace_of(folder: Path, seed: int, steps: int) -> tuple[list[str], int]:
    """All that a seed's run does and the log that it leaves; how many scratch files it wrote."""
    world, _ = begin(folder, seed)
    for _ in range(steps):
        world.act()
    world.heal()
    world.sim.catch_up()
    world.sim.kill()
    world.sim.trace.note_log(folder / "log")
    return world.sim.trace.notes, world.sim.spills
