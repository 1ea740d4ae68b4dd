"""Captures an upstream into the change log.

In: TiKV's change feed and TiDB's schema. Out: segments of the change log, complete up to a resolved ts. `capture.py` is the process,
`worker.py` pulls partitions, `groups/` divides them among processes, `tikv/` talks to PD and TiKV. Read `capture.py` first, then `tikv/`.

The loop, of one process and without what can fail:

    safe_point.protect(start_ts)                         # tikv/gc.py, before anything is subscribed
    for span in spans: puller.add_span(span)             # tikv/tables.py, tikv/feed/puller.py
    while True:
        machine.wake(now)                                # tikv/regions/machine.py: a state machine, without IO
        puller.act()                                     # machine.actions(): subscribe a sub-range, open or close a stream, ask PD
        matcher.feed(receiver.inbox)                     # tikv/receive: PREWRITE + COMMIT → row; resolved ts of sub-ranges
        for p, frontier in enumerate(matcher.frontiers()):       # the lowest resolved ts of a partition's sub-ranges
            if logs[p].head < frontier:
                rows = matcher.take(p, frontier)         # all that wait at or below it
                logs[p].seal(rows, frontier)             # tikv/sort/partition.py: sorted, one segment, then the head
        safe_point.protect(min(heads))                   # what the log holds, TiDB may collect

What always holds. `tests/capture/scenarios/README.md` says which test checks it.

    INV1   Complete: every committed change of a captured table at or below a partition's head is in the log.
    INV2   Closed: no row comes at or below a head that was published.
    INV3   Once: no row is in the log twice.
    INV4   In order: sorted by (commit_ts, start_ts, table_id, key), with the old value where the row had one.
    INV5   A resolved ts never goes back, and is never above what stores have sent for all keys of its range; sub-ranges cover their spans
           without overlap, and nothing is read from a stream that has ended.
    INV6   The schemas in the log decode each row as of its commit_ts; a row is in the partition of its table at that ts.
    INV7   A DDL is at the ts of the first meta change that is public, in order.
    INV8   A crash at any moment loses and repeats nothing: what was not published is captured again, as the same rows.
    INV9   It goes on: after any fault the heads reach the cluster's time in bounded rounds, with bounded requests.
    INV10  Memory is bounded, whatever the size of a transaction and the speed of the disk: rows are spilled, then streams stop reading.
    INV11  The GC barrier is at or below the log's resolved ts, from before the first subscription on.
"""

import os

# gRPC's fork handlers print warnings to stderr while its threads run. No child process here uses its parent's channels, so they are
# switched off. gRPC reads this when it is loaded, which happens only in modules below this one.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
