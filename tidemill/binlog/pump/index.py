"""Pump's index: a LevelDB with the place of each binlog by its ts, and how far it has come. Written without sync.

What a crash takes from it is made again from the value log: the place of the last indexed record is written in the same batch as its key.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from tidemill import tso
from tidemill.binlog.indexkeys import (
    GC_TS,
    HANDLED,
    INDEXED,
    LONG,
    MAX_COMMIT_TS,
    POINTER_BYTES,
    Pointer,
    long_key,
    number,
    read_number,
    read_pointer,
    ts_key,
)
from tidemill.binlog.messages import BinlogType
from tidemill.binlog.order import Stored
from tidemill.binlog.pump.faults import PumpCorrupt, PumpFailed
from tidemill.changelog.storage.durable import make_folder
from tidemill.extras import extra

with extra("binlog"):
    import plyvel

LONG_MS = 600_000
"""A transaction that took longer from start_ts to commit_ts gets a key of its own for garbage collection."""

BATCH = 10_000
"""Keys that are deleted at once."""

_log = logging.getLogger(__name__)


class Index:
    """Any thread may call; batches are written in the order of calls."""

    def __init__(self, folder: Path) -> None:
        """Open the index, or make it. One that cannot be opened is made again. Raises PumpFailed."""
        make_folder(folder.parent)
        try:
            self._db = plyvel.DB(str(folder), create_if_missing=True, bloom_filter_bits=10)
        except plyvel.Error as error:
            if "lock" in str(error).lower():
                raise PumpFailed(f"another process uses {folder}: {error}") from None
            _log.error("the index %s cannot be opened, and is made again from the value log: %s", folder, error)
            self._db = self._again(folder)

    @staticmethod
    def _again(folder: Path) -> plyvel.DB:
        try:
            shutil.rmtree(folder)
            return plyvel.DB(str(folder), create_if_missing=True, bloom_filter_bits=10)
        except (plyvel.Error, OSError) as error:
            raise PumpFailed(f"the index {folder} cannot be made: {error}") from None

    def close(self) -> None:
        """Let the files go."""
        self._db.close()

    # how far it is

    def max_commit_ts(self) -> int:
        """What may be pulled, as far as was written."""
        return self._number(MAX_COMMIT_TS)

    def gc_ts(self) -> int:
        """Up to where binlogs may be gone."""
        return self._number(GC_TS)

    def _number(self, key: bytes) -> int:
        value = self._db.get(key)
        return read_number(value) if value is not None else 0

    def begin(self) -> Pointer:
        """The place from which the value log has to be read again."""
        found = [self._db.get(HANDLED), self._db.get(INDEXED)]
        return min((read_pointer(value) for value in found if value is not None), default=Pointer(0, 0)) if all(found) else Pointer(0, 0)

    # writing

    def put(self, entries: Sequence[Stored]) -> None:
        """Add binlogs. Raises PumpFailed."""
        if not entries:
            return
        try:
            with self._db.write_batch() as batch:
                for one in entries:
                    batch.put(ts_key(one.start_ts if one.tp is BinlogType.PREWRITE else one.commit_ts), one.at.encode())
                    if one.tp is BinlogType.COMMIT and tso.physical_ms(one.commit_ts) - tso.physical_ms(one.start_ts) > LONG_MS:
                        batch.put(long_key(one.commit_ts), number(one.start_ts))
                batch.put(INDEXED, entries[-1].at.encode())
        except plyvel.Error as error:
            raise PumpFailed(f"the index cannot be written: {error}") from error

    def progress(self, max_commit_ts: int, handled: Pointer | None) -> None:
        """Write how far the order is. Raises PumpFailed."""
        try:
            with self._db.write_batch() as batch:
                batch.put(MAX_COMMIT_TS, number(max_commit_ts))
                if handled is not None:
                    batch.put(HANDLED, handled.encode())
        except plyvel.Error as error:
            raise PumpFailed(f"the index cannot be written: {error}") from error

    def collect(self, ts: int, keep_from: int) -> int:
        """Note on the disk that what is below `ts` may be gone, then delete the keys below `keep_from`. Return their number.

        Raises PumpFailed.
        """
        count = 0
        try:
            self._db.put(GC_TS, number(ts), sync=True)
            for start, stop in ((ts_key(1), ts_key(max(1, keep_from))), (long_key(0), long_key(ts))):
                with self._db.iterator(start=start, stop=stop, include_value=False) as keys:
                    while batch := list(islice(keys, BATCH)):
                        count += len(batch)
                        with self._db.write_batch() as deletes:
                            for key in batch:
                                deletes.delete(key)
        except plyvel.Error as error:
            raise PumpFailed(f"the index cannot be written: {error}") from error
        return count

    # reading

    def get(self, ts: int) -> Pointer | None:
        """Where the binlog of a ts is."""
        value = self._db.get(ts_key(ts))
        return read_pointer(value) if value is not None else None

    def pointers(self, after: int, upto: int, most: int) -> tuple[list[bytes], bytes]:
        """Return the keys of the binlogs with after < ts <= upto, in order, and their pointers back to back; at most so many."""
        with self._db.iterator(start=ts_key(after + 1), stop=ts_key(upto), include_stop=True) as found:
            pairs = list(islice(found, most))
        if any(len(value) != POINTER_BYTES for _, value in pairs):
            raise PumpCorrupt(f"a place in the index between {after} and {upto} is not as Pump writes it")
        return [key for key, _ in pairs], b"".join([value for _, value in pairs])

    def oldest_start(self, after: int) -> int | None:
        """The least start_ts of the long transactions that were committed after a ts."""
        with self._db.iterator(start=long_key(after + 1), stop=LONG + b"\xff" * 9, include_key=False) as found:
            return min((read_number(value) for value in found), default=None)
