"""Captures an upstream into the change log.

In: TiKV's change feed and TiDB's schema. Out: segments of the change log, complete up to a resolved ts. `capture.py` is the process,
`worker.py` pulls partitions, `groups/` divides them among processes, `tikv/` talks to PD and TiKV. Read `capture.py` first, then `tikv/`.
"""

import os

# gRPC's fork handlers print warnings to stderr while its threads run. No child process here uses its parent's channels, so they are
# switched off. gRPC reads this when it is loaded, which happens only in modules below this one.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
