"""The workloads of a playground, by name."""

from __future__ import annotations

from tidemill.errors import SqlError
from tidemill.playground.sql.session import Database
from tidemill.playground.workload.mixed import Append, Bank, Idle, Mixed, Options, Workload
from tidemill.playground.workload.soak import Soak

WORKLOADS: dict[str, type[Workload]] = {"mixed": Mixed, "bank": Bank, "append": Append, "soak": Soak, "none": Idle}


def make_workload(name: str, database: Database, seed: int, options: Options) -> Workload:
    """A workload by name. Raises SqlError."""
    kind = WORKLOADS.get(name)
    if kind is None:
        raise SqlError(f"there is no workload {name}", hint="Workloads: " + ", ".join(WORKLOADS))
    return kind(database, seed, options)
