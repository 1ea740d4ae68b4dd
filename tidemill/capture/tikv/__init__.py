"""Captures a live TiDB cluster from PD and TiKV.

In: PD's regions and TiKV's change feed. Out: sealed segments of the log's partitions. `client/` makes the calls, `regions/` decides what to
subscribe, `feed/` runs the streams, `receive/` matches rows, `sort/` seals them, `watchdog/` finds what is stuck, `read/` reads snapshots.
Read `regions/` first."""
