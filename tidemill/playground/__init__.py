"""An embedded TiDB upstream for the demo and the tests: PD and TiKV over gRPC, a SQL subset, seeded workloads."""

from tidemill.playground.server import Playground, PlaygroundThread

__all__ = ["Playground", "PlaygroundThread"]
