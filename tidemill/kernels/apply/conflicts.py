"""Finds groups of rows that conflict, and deals them out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidemill.kernels.apply import conflict_kernel as k

Groups = npt.NDArray[np.int64]


def groups(conflicts: npt.NDArray[np.uint64]) -> Groups:
    """Return for each row the first row of its group. See `reference.groups`."""
    rows, width = conflicts.shape
    hashes = np.ascontiguousarray(conflicts)
    out = np.zeros(rows, np.int64)
    bits = max(2 * rows * width, 16).bit_length()
    slots = np.zeros(2 << bits, np.uint64)
    k.conflict_groups(rows, width, hashes.ctypes.data, out.ctypes.data, slots.ctypes.data, bits)
    return out


def deal(group: Groups, lanes: int) -> list[npt.NDArray[np.intp]]:
    """Return the rows of each lane, in order. A group is in one lane; large groups come first, each to the lane with the least to do."""
    if lanes == 1 or not len(group):
        return [np.arange(len(group))]
    firsts, place, sizes = np.unique(group, return_inverse=True, return_counts=True)
    lane_of = np.zeros(len(firsts), np.int64)
    fair = max(1, len(group) // (4 * lanes))
    large = np.flatnonzero(sizes > fair)
    loads = [0] * lanes
    for number in large[np.argsort(-sizes[large], kind="stable")].tolist():
        lane = loads.index(min(loads))
        loads[lane] += int(sizes[number])
        lane_of[number] = lane
    small = np.flatnonzero(sizes <= fair)
    room = np.maximum(0, len(group) / lanes - np.array(loads, np.float64))
    ends = np.cumsum(room)
    total = max(float(ends[-1]), 1.0)
    done = np.cumsum(sizes[small]) - sizes[small]
    lane_of[small] = np.minimum(np.searchsorted(ends, done * (total / max(int(sizes[small].sum()), 1)), side="right"), lanes - 1)
    chosen = lane_of[place]
    order = np.argsort(chosen, kind="stable")
    return [rows for rows in np.split(order, np.searchsorted(chosen[order], np.arange(1, lanes))) if len(rows)]
