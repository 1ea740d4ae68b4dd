"""An embedded TiDB upstream for the demo and the tests: PD and TiKV over gRPC, a SQL subset, seeded workloads.

In: SQL, a workload, faults. Out: answers of PD and TiKV. Read `server.py` first.
"""

from tidemill.playground.server import Playground, PlaygroundThread

__all__ = ["Playground", "PlaygroundThread"]
