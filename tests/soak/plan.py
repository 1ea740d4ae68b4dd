"""What one soak is like: everything that its seed decides before anything starts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from random import Random

FAULTS: dict[str, float] = {
    "kill": 3, "worker": 2, "stop": 0.7, "wire": 6, "streams": 2, "store": 2, "pd": 1.5, "pds": 0.5, "pd leader": 1.5,
    "split": 5, "merge": 4, "leader": 5, "region": 4, "mute": 1, "busy": 1.5, "pace": 1, "gc": 2, "calm": 2, "sleep": 1,
}  # fmt: skip
"""What may happen, with its weight."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Flags of the upstream and of the capture. The order of faults comes from the same seed."""

    seed: int
    stores: int
    pds: int
    tls: str  # "", tls, mutual
    transport: str
    old_feed: bool
    gc_barriers: bool
    partitions: int
    quota: str
    compression: str
    from_the_beginning: bool
    resolved_interval: float
    rate: int
    ddl_every: int
    region_every: int
    orphan_every: int
    large_rows: int
    large_bytes: int
    workers: int
    snapshot: bool

    @classmethod
    def of(cls, seed: int) -> Plan:
        """The plan of a seed."""
        random = Random(seed)
        tiny = random.random() < 0.4
        quota = "2MiB" if tiny else random.choice(("64MiB", "1GiB"))
        partitions = random.choice((1, 2, 4))
        beginning = random.random() < 0.5
        workers = random.choice((1, 2)) if quota == "1GiB" and partitions > 1 else 1  # each needs 64 MiB and a partition
        return cls(
            seed=seed,
            stores=random.choice((1, 3, 3)),
            pds=random.choice((1, 3)),
            tls=random.choice(("", "", "tls", "mutual")),
            transport=random.choice(("h2", "h2", "grpc")),
            old_feed=random.random() < 0.25,
            gc_barriers=random.random() < 0.5,
            partitions=partitions,
            quota=quota,
            compression=random.choice(("none", "none", "lz4", "zstd")),
            from_the_beginning=beginning,
            resolved_interval=random.choice((0.1, 0.3)),
            rate=random.choice((30, 60)),
            ddl_every=random.choice((6, 12, 25)),
            region_every=random.choice((8, 40)),
            orphan_every=random.choice((25, 60)),
            large_rows=random.choice((400, 2000)),
            large_bytes=4000 if tiny else 500,
            workers=workers,
            snapshot=random.random() < 0.25 and not beginning and workers == 1,
        )

    @property
    def upstream(self) -> list[str]:
        """Flags of `tidemill playground`, but for those of TLS."""
        flags = {
            "workload": "soak", "seed": self.seed, "stores": self.stores, "pds": self.pds, "resolved-interval": self.resolved_interval,
            "rate": self.rate, "ddl-every": self.ddl_every, "region-every": self.region_every, "orphan-every": self.orphan_every,
            "large-every": 150, "large-rows": self.large_rows, "large-bytes": self.large_bytes,
        }  # fmt: skip
        switches = [f"--{name}" for name, on in (("gates", True), ("old-feed", self.old_feed), ("gc-barriers", self.gc_barriers)) if on]
        return [*(part for name, value in flags.items() for part in (f"--{name}", str(value))), *switches]

    @property
    def capture(self) -> list[str]:
        """Flags of `tidemill capture`, but for addresses, places and TLS."""
        flags = {
            "log-partitions": self.partitions, "transport": self.transport, "memory-quota": self.quota, "log-compression": self.compression,
            "stuck-after": "5s", "workers": self.workers,
        }  # fmt: skip
        initial = ["--snapshot", "--master", "local[1]"] if self.snapshot else []
        return [*(part for name, value in flags.items() for part in (f"--{name}", str(value))), *initial]

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in asdict(self).items())
