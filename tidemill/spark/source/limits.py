"""How many rows a batch has: `maxRowsPerTrigger`, and whether there are any. Reads two columns of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tidemill.delivery.task.reader import Sources, commits
from tidemill.kernels.flow import layout as f
from tidemill.spark.source.slices import Slice

Times = npt.NDArray[np.uint64]


def _times(one: Slice) -> Iterator[Iterator[Times]]:
    """For each sorted source of a slice the commit_ts of its rows, batch by batch."""
    wanted = np.array(sorted(one.physical_ids()), np.int64)
    sources = Sources(one.chains, one.from_ts, one.to_ts)
    for number in range(len(sources)):
        yield _of_source(sources, number, wanted)


def _of_source(sources: Sources, number: int, wanted: npt.NDArray[np.int64]) -> Iterator[Times]:
    words = sources.words[number]
    while words[f.S_MORE]:
        sources.begin_chunk()
        sources.advance(number)
        batch, begin, end = sources.all[number].batch, int(words[f.S_POS]), int(words[f.S_END])
        if batch is not None and end > begin:
            ids = batch.column("table_id").to_numpy(zero_copy_only=True)[begin:end]
            yield commits(batch)[begin:end][np.isin(ids, wanted)]


def end_by_rows(pieces: Iterable[Slice], to_ts: int, max_rows: int) -> int:
    """Return the last ts up to which the slices have at most `max_rows` changes; to_ts if they have no more in all. If the first
    transaction alone has more, it is read as a whole."""
    found: list[Times] = []
    for piece in pieces:
        for source in _times(piece):
            first: list[Times] = []
            count = 0
            for times in source:
                first.append(times[: max_rows + 1 - count])
                count += len(first[-1])
                if count > max_rows:
                    break
            found += first
    every = np.sort(np.concatenate([*found, np.empty(0, np.uint64)]))
    if len(every) <= max_rows:
        return to_ts
    fits = every[: np.searchsorted(every, every[max_rows], "left")]
    return int(fits[-1]) if len(fits) else int(every[0])


def holds_rows(pieces: Iterable[Slice], *, look: bool) -> bool:
    """Return whether the slices have a row. Without `look`: whether they have a file."""
    for piece in pieces:
        if not look and piece.chains:
            return True
        if any(len(times) for source in _times(piece) for times in source):
            return True
    return False


def any_row(chains: Sequence[Sequence[str]], from_ts: int, to_ts: int) -> bool:
    """Return whether the files have a row of (from_ts, to_ts], of whatever table, by the ends of their batches alone."""
    sources = Sources(chains, from_ts, to_ts)
    for number in range(len(sources)):
        words = sources.words[number]
        while words[f.S_MORE]:
            sources.begin_chunk()
            sources.advance(number)
            if words[f.S_END] > words[f.S_POS]:
                return True
    return False
