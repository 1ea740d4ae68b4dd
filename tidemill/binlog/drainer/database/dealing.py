"""Which worker writes which rows. Pure.

Rows that share a value of a unique key go to one worker, in their order; so do rows that are tied by others between them. All else may be
written side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from tidemill.binlog.outputs.writes import RowWrite
from tidemill.kernels.apply.conflicts import deal, groups


def dealt(rows: Sequence[RowWrite], workers: int, batch: int) -> list[list[RowWrite]]:
    """Return the rows of each worker, in order. There are at most `workers`, and no more than `batch` rows each need."""
    most = min(workers, -(-len(rows) // batch))
    if most <= 1:
        return [list(rows)] if rows else []
    hashes = np.array(list(zip(*zip_longest(*(row.hashes for row in rows), fillvalue=0), strict=True)), np.uint64)
    return [[rows[place] for place in places.tolist()] for places in deal(groups(hashes), most)]
