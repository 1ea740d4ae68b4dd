"""A recorded TiDB session as transactions, and what happens to regions while they are written."""

from __future__ import annotations

import functools
import gzip
import json
import random
from itertools import groupby
from pathlib import Path

from tidemill.playground.server import Playground
from tidemill.tidb.keys import record_key

GOLDEN = Path(__file__).parents[2] / "golden"
Mutation = tuple[bytes, bytes | None]


@functools.cache
def session() -> tuple[list[Mutation], list[list[Mutation]]]:
    """A recorded TiDB session: its store at the beginning, and its transactions: 899 writes with DDLs of 31 kinds between."""
    with gzip.open(GOLDEN / "tidb" / "stream.json.gz") as file:
        data = json.load(file)
    snapshot: list[Mutation] = [(bytes.fromhex(p["k"]), bytes.fromhex(p["v"])) for p in data["snapshot"]]
    ordered = sorted(data["writes"], key=lambda w: (w["commit_ts"], w["start_ts"]))
    transactions: list[list[Mutation]] = [
        [(bytes.fromhex(w["k"]), bytes.fromhex(w["v"]) if w["op"] == "Put" else None) for w in writes]
        for _, writes in groupby(ordered, key=lambda w: (w["commit_ts"], w["start_ts"]))
    ]
    return snapshot, transactions


def churn(playground: Playground, random_: random.Random) -> None:
    """Something happens to the regions."""
    cluster = playground.cluster
    regions = list(cluster.regions)
    kind = random_.choice(("split", "merge", "leader"))
    if kind == "split":
        cluster.split([record_key(random_.randint(45, 200), random_.randint(0, 100))])
    elif kind == "merge" and len(regions) > 1:
        i = random_.randrange(len(regions) - 1)
        cluster.merge(regions[i].id, regions[i + 1].id)
    elif kind == "leader":
        cluster.transfer_leader(random_.choice(regions).id, random_.choice(sorted(cluster.stores)))
