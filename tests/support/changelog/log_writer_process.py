"""A capture in small, as a process of its own that tests kill: writes what a made-up upstream holds, forever.

    python -m tests.support.changelog.log_writer_process LOG SEED

Prints a line for each step. The rows of an interval depend on the interval alone, how time is cut into intervals on the seed.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from tests.support.changelog.logs import START, Change, batch_of, order, put
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.options import LogOptions
from tidemill.changelog.reader import log_exists
from tidemill.changelog.writer import LogWriter

PARTITIONS = 2
OPTIONS = LogOptions(compact_rows=200, grace_s=0.2, low_water_bytes=0)


def upstream(partition: int, from_ts: int, to_ts: int) -> list[Change]:
    """What was committed in (from_ts, to_ts]."""
    found = []
    for ts in range(from_ts + 1, to_ts + 1):
        mixed = ts * 0x9E3779B97F4A7C15 >> 29 & 0xFFFF
        if mixed % 3:
            found += [put(70 + partition, h, ts, b"%d" % mixed) for h in range(mixed % 4)]
    return sorted(found, key=order)


def main(log: Path, seed: int) -> None:
    rng = random.Random(seed)
    writer = (
        LogWriter.open(log, options=OPTIONS)
        if log_exists(log)
        else LogWriter.create(log, LogIdentity("1", START, PARTITIONS), snapshot={}, options=OPTIONS)
    )
    step = 0
    while True:
        for p in range(PARTITIONS):
            one = writer.partition(p)
            to_ts = one.head + rng.randint(1, 40)
            rows = upstream(p, one.head, to_ts)
            if not rows:
                one.set_head(to_ts)
            elif rng.random() < 0.1:
                one.publish_parts(to_ts, [[batch_of(rows[k::2])] for k in range(2)])
            else:
                one.publish(to_ts, [batch_of([r]) for r in rows] if len(rows) < 4 else [batch_of(rows)])
        writer.schema.set_head(writer.partition(0).head)
        if step % 5 == 0:
            writer.maintain(0)
        step += 1
        sys.stdout.write(f"{step}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
