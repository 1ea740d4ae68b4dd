"""Wraps the encoders of a pack: leaves out rows by name, and keeps to the message limits of topics."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tidemill.delivery.inputs.table_pack import Output, Pack, PackedTable
from tidemill.protocols.common.messages import Messages
from tidemill.rules.skip import SkipRow

Rows = npt.NDArray[np.void]
Groups = npt.NDArray[np.int32]


class EncodesRows(Protocol):
    """Turns rows into messages; `slow_rows` counts those that the plain reference encoded instead of a kernel."""

    @property
    def slow_rows(self) -> int: ...

    def encode(self, rows: Rows, groups: Groups) -> Messages: ...


@runtime_checkable
class ReportsCorruption(Protocol):
    """An encoder that sends rows also if they do not fit their checksum, and counts them."""

    def take_corrupted(self) -> tuple[int, tuple[str, ...]]:
        """How many such rows came since the last call, and the names of some."""


@runtime_checkable
class WritesTransactions(Protocol):
    """An encoder that marks where transactions begin and end. A transaction may have rows in several chunks."""

    def begin(self) -> None:
        """Begin an item: forget a transaction that an earlier one left."""

    def carry_on(self, before: Any) -> None:
        """Take the place of an encoder of fewer tables."""

    def finish(self) -> Messages:
        """What ends the item's last transaction."""


def limits_of(pack: Pack) -> npt.NDArray[np.int64]:
    """The largest message of each target: max-message-bytes, or less where its topic takes less."""
    most = pack.output.encoding.max_message_bytes
    return np.array([min(most, pack.limits.get(topic, most)) for topic, _ in pack.targets] or [most], np.int64)


class LimitedEncoder:
    """One encoder for each message limit that topics have. There is nearly always one limit."""

    def __init__(self, pack: Pack, make: Callable[[Output], EncodesRows]) -> None:
        self._limits = limits_of(pack)
        output = pack.output
        self._encoders = {
            limit: make(replace(output, encoding=replace(output.encoding, max_message_bytes=limit)))
            for limit in np.unique(self._limits).tolist()
        }
        # Asked once: Python takes some microseconds to look for a protocol's methods, and a chunk has few rows.
        self._reporting = [encoder for encoder in self._encoders.values() if isinstance(encoder, ReportsCorruption)]

    @property
    def slow_rows(self) -> int:
        return sum(encoder.slow_rows for encoder in self._encoders.values())

    def take_corrupted(self) -> tuple[int, tuple[str, ...]]:
        """See `ReportsCorruption`; none if the encoder checks no checksums."""
        found = [encoder.take_corrupted() for encoder in self._reporting]
        return sum(count for count, _ in found), tuple(name for _, names in found for name in names)

    def begin(self) -> None:
        """See `WritesTransactions`."""
        for encoder in self._encoders.values():
            if isinstance(encoder, WritesTransactions):
                encoder.begin()

    def carry_on(self, before: LimitedEncoder) -> None:
        """See `WritesTransactions`."""
        for limit, encoder in self._encoders.items():
            if isinstance(encoder, WritesTransactions):
                encoder.carry_on(before._encoders[limit])

    def finish(self) -> list[Messages]:
        """See `WritesTransactions`. Each is valid until the next call of its encoder."""
        return [encoder.finish() for encoder in self._encoders.values() if isinstance(encoder, WritesTransactions)]

    def encode(self, rows: Rows, groups: Groups) -> Messages:
        """Messages of rows that are grouped by target; valid until the next call."""
        if len(self._encoders) == 1 or not len(rows):
            return next(iter(self._encoders.values())).encode(rows, groups)
        limit_of_group = self._limits[rows["target"][groups[:-1]]]
        made = []
        for limit, encoder in self._encoders.items():
            chosen = np.flatnonzero(limit_of_group == limit)
            if len(chosen):
                made.append(encoder.encode(*_groups(rows, groups, chosen)))
        return Messages(np.concatenate([m.table for m in made]), [buffer for m in made for buffer in m.buffers])


def _groups(rows: Rows, groups: Groups, chosen: npt.NDArray[np.intp]) -> tuple[Rows, Groups]:
    """Some of the groups, side by side."""
    places = [np.arange(groups[g], groups[g + 1]) for g in chosen.tolist()]
    ends = np.cumsum([0, *map(len, places)])
    return rows[np.concatenate(places)], ends.astype(np.int32)


class Skipper:
    """Leaves out the rows that `--skip-row` names. `skipped` counts them."""

    def __init__(self, rules: Sequence[SkipRow]) -> None:
        self._rules = frozenset(rules)
        self._times = np.array(sorted({rule.commit_ts for rule in rules}), np.uint64)
        self.skipped = 0

    def __bool__(self) -> bool:
        return bool(self._rules)

    def keep(self, rows: Rows, groups: Groups, tables: Sequence[PackedTable]) -> tuple[Rows, Groups]:
        """The rows that stay, grouped as before; groups without a row are gone. `tables`: by the number in the rows."""
        suspects = np.flatnonzero(np.isin(rows["commit_ts"], self._times))
        dropped = [i for i in suspects.tolist() if self._named(rows[i], tables)]
        if not dropped:
            return rows, groups
        self.skipped += len(dropped)
        kept = np.delete(np.arange(len(rows)), dropped)
        return rows[kept], np.unique(np.searchsorted(kept, groups)).astype(np.int32)

    def _named(self, row: np.void, tables: Sequence[PackedTable]) -> bool:
        version = tables[int(row["table"])].version
        key = ctypes.string_at(int(row["key"]), int(row["key_len"]))
        return SkipRow(f"{version.schema}.{version.table}", key, int(row["commit_ts"])) in self._rules
