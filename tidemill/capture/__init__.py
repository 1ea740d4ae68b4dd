"""From an upstream to the change log.

In: TiKV's change feed and TiDB's schema. Out: segments of the change log, complete up to a resolved ts. `capture.py` is the process,
`worker.py` pulls partitions, `groups/` divides them among processes, `tikv/` speaks to the cluster. Read `capture.py` first, then `tikv/`.
"""

import os

# gRPC's handlers around a fork do nothing while its threads run but tell so on stderr, and no child here goes on with a parent's channels.
# Read when gRPC is loaded, which only modules below this one do.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
