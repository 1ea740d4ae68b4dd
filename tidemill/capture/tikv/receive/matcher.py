"""Subscriptions, and the join of PREWRITE and COMMIT: the state behind the `match` kernel. No IO.

Python objects exist per subscription event, never per row. All other state is in flat arrays of records (kernels/receive/layout.py) that
the kernels change in place. The Matcher owns, grows and recycles these arrays.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass

import numpy as np

from tidemill.capture.tikv.receive.decode import PAD, Batch
from tidemill.capture.tikv.receive.kinds import VERDICTS
from tidemill.capture.tikv.receive.memory import Array, Chunks, extend, records
from tidemill.capture.tikv.regions.actions import RowSeen
from tidemill.kernels.address import address
from tidemill.kernels.receive import layout as L
from tidemill.kernels.receive.layout import CONTROL, ROW, SUB, joined
from tidemill.kernels.receive.match import match
from tidemill.kernels.receive.pending import ROW_OVERHEAD, discard_many, rehash, spilled_add, sweep
from tidemill.kernels.receive.seal import bytes_of, moved, release, split
from tidemill.kernels.receive.spill import pack
from tidemill.kernels.receive.subs import bind, frontiers, unbind

FOREVER = (1 << 63) - 1
STREAMS = 65536
EVACUATE_ROWS = 4096  # rows moved at a time
LEAST = 4096  # rows for which a partition has room

CAUSES = {
    L.V_UNMATCHED: "COMMIT without its PREWRITE",
    L.V_LATE: "commit_ts at or below the resolved ts",
    L.V_EMPTY_PUT: "PUT without a value",
    L.V_FAKE_ONLY: "COMMIT of a PREWRITE that came without its value",
    L.V_NO_OP: "row that is neither PUT nor DELETE",
    L.V_UNKNOWN_TYPE: "row of a type that this version does not know",
}


_PADDING = bytes(PAD)
_WORD = bytes(8)  # after the bounds of a range: they are compared by words
_NOWHERE = address(_PADDING)  # the bounds of a range without a subscription: nothing is compared with them

COUNTED = {
    "matched_rows": L.X_ROWS,
    "unknown_events": L.X_UNKNOWN,
    "stale_rows": L.X_STALE,
    "rows_out_of_range": L.X_RANGE,
    "repeated_commits": L.X_DUP,
    "lock_only_rows": L.X_LOCK_ONLY,
    "skipped_rows": L.X_SKIPPED,
    "repeated_initialized": L.X_AGAIN,
    "pending_prewrites": L.X_COUNT,
    "late_commits": L.X_NLATE,
}


@dataclass(frozen=True, slots=True)
class Initialized:
    """The incremental scan of the subscription is complete."""

    sub: int


@dataclass(frozen=True, slots=True)
class RegionError:
    """The subscription ended; `error` is a serialised cdcpb.Error. Subscribe its range again from `resolved`."""

    sub: int
    resolved: int
    error: bytes


@dataclass(frozen=True, slots=True)
class Violation:
    """The store broke the protocol, as `row` shows, and the subscription was ended. The store has promised that the range is complete up to
    `resolved`, but `row` may be below it."""

    sub: int
    resolved: int
    cause: str
    row: RowSeen

    @property
    def complete(self) -> int:
        """Return up to where the range can be complete at most. A row without a commit_ts does not limit it."""
        return min(self.resolved, self.row.commit_ts - 1) if self.row.commit_ts else self.resolved


@dataclass(frozen=True, slots=True)
class Skipped:
    """The first row of a kind that this version does not know was left out. It has no key."""

    sub: int


Control = Initialized | RegionError | Violation | Skipped


class Matcher:
    """All subscriptions of one capture process, and the rows that wait to be sealed. Used by one thread."""

    # Arrays that the kernels know by address (context words X_*). A full array is replaced by a larger one.
    subs: Array
    lookup: Array
    slots: Array
    pool: Array
    parts: Array
    control: Array
    late: Array
    mux: Array
    spilled: Array

    def __init__(self, partitions: int = 1, chunks: Chunks | None = None) -> None:
        self.chunks = Chunks() if chunks is None else chunks
        self.x: Array = np.zeros(L.X_WORDS, np.int64)
        self._context = address(self.x)
        self._free_subs: list[int] = []
        self._dead: list[int] = []
        self._ranges: dict[int, bytes] = {}
        """The bounds of subscriptions, which the kernels know by address."""
        self._bound = 0
        self._spare: list[Array] = []
        self._spilled: set[int] = set()
        self._set("subs", np.zeros(1024, SUB), L.X_SUBS)
        self._set("lookup", np.zeros(4096, np.int32), L.X_LOOKUP)
        self._set("slots", np.zeros(8192, np.int64), L.X_SLOTS)
        self._set("pool", np.zeros(4096, ROW), L.X_POOL)
        self._set("parts", np.zeros((partitions, L.P_WORDS), np.int64), L.X_PARTS)
        self._set("control", np.zeros(256, CONTROL), L.X_CONTROL)
        self._set("late", np.zeros(4096, ROW), L.X_LATE)
        self._set("mux", np.ones(STREAMS, np.uint8), L.X_MUX)
        self._set("spilled", np.zeros(1, np.int64), L.X_SPILLED)
        self.x[L.X_LOOKUP_MASK] = len(self.lookup) - 1
        self.x[L.X_SLOT_MASK] = len(self.slots) - 1
        self.x[L.X_POOL_CAP] = len(self.pool)
        self.x[L.X_POOL_FREE] = -1
        self.x[L.X_CONTROL_CAP] = len(self.control)
        self.x[L.X_LATE_CAP] = len(self.late)
        self.x[L.X_KINDS] = address(VERDICTS)
        self._rows: list[Array] = [records(LEAST, ROW) for _ in range(partitions)]
        for p, rows in enumerate(self._rows):
            self.parts[p] = address(rows), 0, len(rows), 0

    def clock(self) -> int:
        """Return the milliseconds of a monotonic clock; records note in `seen` when a store last sent something."""
        return time.monotonic_ns() // 1_000_000

    def _set(self, name: str, array: Array, word: int) -> None:
        setattr(self, name, array)
        self.x[word] = address(array)

    # ------------------------------------------------------------------ subscriptions

    def subscribe(
        self,
        stream: int,
        region_id: int,
        request_id: int,
        checkpoint: int,
        lo: bytes = b"",
        hi: bytes = b"",
        partition: int = 0,
        since: int | None = None,
    ) -> int:
        """Add a subscription (before its register is sent); its resolved ts begins at `checkpoint`. Rows at or below `since` (by default
        `checkpoint`) are not wanted. A row between the two breaks the store's earlier promise.

        lo, hi: raw key range [lo, hi); an empty hi is open. request_id is 0 if the stream does not multiplex (see `set_multiplexed`).
        """
        sub = self._new_sub()
        if 2 * self._bound >= len(self.lookup):
            self._rebuild_lookup()
        self._ranges[sub] = bounds = lo + hi + _WORD
        low = address(bounds)
        range_ = len(lo), len(hi), low, low + len(lo)
        wanted = checkpoint if since is None else since
        self.subs[sub] = region_id, request_id, checkpoint, partition, L.ACTIVE, 0, -1, stream, *range_, self.clock(), 0, wanted
        if bind(self._context, sub):
            self.subs[sub]["state"] = L.FREE
            self._free_subs.append(sub)
            raise ValueError(f"region {region_id} is subscribed on stream {stream} with request {request_id}")
        self._bound += 1
        return sub

    def _new_sub(self) -> int:
        if self._free_subs:
            return self._free_subs.pop()
        sub = int(self.x[L.X_NSUBS])
        if sub == len(self.subs):
            self._set("subs", joined(self.subs, np.zeros(sub, SUB)), L.X_SUBS)
        self.x[L.X_NSUBS] = sub + 1
        return sub

    def _rebuild_lookup(self) -> None:
        """Build a larger lookup table, without the tombstones of ended subscriptions."""
        live = np.flatnonzero(self.subs["state"][: self.x[L.X_NSUBS]] == L.ACTIVE)
        size = max(4096, 1 << (4 * len(live) + 1).bit_length())
        self._set("lookup", np.zeros(size, np.int32), L.X_LOOKUP)
        self.x[L.X_LOOKUP_MASK] = size - 1
        for sub in live.tolist():
            bind(self._context, sub)
        self._bound = len(live)

    def place(self, resolved_ts: int, partition: int) -> int:
        """Add a placeholder for a range that is not subscribed yet: it holds the frontier at `resolved_ts` until `drop`."""
        sub = self._new_sub()
        self.subs[sub] = 0, 0, resolved_ts, partition, L.DEAD, 0, -1, 0, 0, 0, _NOWHERE, _NOWHERE, self.clock(), 0, 0
        return sub

    def set_multiplexed(self, stream: int, multiplexed: bool) -> None:
        """Set whether events of this stream carry request ids."""
        self.mux[stream] = multiplexed

    def end_subscription(self, sub: int) -> None:
        """End a subscription. Its range still counts for the frontier, at its resolved ts, until `drop`."""
        unbind(self._context, sub)
        self.subs[sub]["state"] = L.DEAD

    def rewind(self, sub: int, ts: int) -> None:
        """Lower an ended subscription to `ts`: its store's promise was wrong, and its range is complete only up to there."""
        self.subs[sub]["resolved"] = ts

    def drop(self, sub: int) -> None:
        """Forget a subscription: its successors, with a resolved ts <= its own, cover its range. Delivered rows stay (they are committed;
        duplicates are removed by the seal). Its pending entries are removed."""
        unbind(self._context, sub)
        self.subs[sub]["state"] = L.FREE
        self.subs[sub]["touched"] = -1
        self._dead.append(sub)

    def end_stream(self, stream: int) -> list[int]:
        """End all subscriptions of a stream, as `end_subscription` does. Returns them."""
        live = self.subs[: self.x[L.X_NSUBS]]
        gone: list[int] = np.flatnonzero((live["state"] == L.ACTIVE) & (live["stream"] == stream)).tolist()
        for sub in gone:
            self.end_subscription(sub)
        return gone

    def sweep(self) -> None:
        """Free the pending entries of dropped subscriptions. Call it now and then; ids are reused only after it."""
        if self._dead:
            self.x[L.X_REFS] = address(self.chunks.refs)
            sweep(self._context)
            for sub in self._dead:
                self._ranges.pop(sub, None)
            self._free_subs += self._dead
            self._dead = []
            self.chunks.collect()

    def resolved(self, sub: int) -> int:
        """Return the resolved ts of a subscription."""
        return int(self.subs[sub]["resolved"])

    def frontiers(self) -> Array:
        """Return the resolved ts of each partition: the smallest of its subscriptions (FOREVER without any)."""
        out = np.empty(len(self.parts), np.int64)
        frontiers(self._context, address(out), len(out))
        return out

    # ------------------------------------------------------------------ events

    def feed(self, batch: Batch) -> list[Control]:
        """Take a batch. Returns the events for the region state machine."""
        self.x[L.X_REFS] = address(self.chunks.refs)
        self.x[L.X_CLOCK] = self.clock()
        at = 0
        found: list[Control] = []
        while True:
            got = match(self._context, address(batch.entries), batch.count, at, address(batch.data), batch.chunk)
            code, at = got >> 40, got & ((1 << 40) - 1)
            if self.x[L.X_NCONTROL]:
                found += self._controls(batch)
            if code == L.OK:
                break
            self._grow(code, batch.count - at)
        if batch.error is None:  # else the messages after the malformed one are still to be decoded
            self.chunks.let_go(batch.chunk)
        return found

    def _controls(self, batch: Batch) -> list[Control]:
        found: list[Control] = []
        for control in self.control[: self.x[L.X_NCONTROL]]:
            sub = int(control["sub"])
            if control["code"] == L.C_INITIALIZED:
                found.append(Initialized(sub))
            elif control["code"] == L.C_SKIPPED:
                found.append(Skipped(sub))
            elif control["code"] == L.C_ERROR:
                entry = batch.entries[control["entry"]]
                error = batch.data[entry["value"] : entry["value"] + entry["value_len"]].tobytes()
                found.append(RegionError(sub, self.resolved(sub), error))
            else:
                key = ctypes.string_at(int(control["key"]), int(control["key_len"]))
                row = RowSeen(int(control["commit_ts"]), int(control["start_ts"]), key)
                found.append(Violation(sub, self.resolved(sub), CAUSES[int(control["cause"])], row))
        self.x[L.X_NCONTROL] = 0
        return found

    def _grow(self, code: int, left: int) -> None:
        if code == L.GROW_PART:
            for p, (_, n, cap, _) in enumerate(self.parts.tolist()):
                if n == cap:
                    self._grow_part(p, max(2 * cap, n + left))
        elif code == L.GROW_POOL:
            self._grow_pool()
        elif code == L.GROW_LATE:
            self.x[L.X_LATE_CAP] *= 2
            self._set("late", joined(self.late, np.zeros(len(self.late), ROW)), L.X_LATE)

    def _grow_part(self, p: int, cap: int) -> None:
        extend(self._rows, p, cap)
        self.parts[p, L.P_ADDR], self.parts[p, L.P_CAP] = address(self._rows[p]), cap

    def _grow_pool(self) -> None:
        top = int(self.x[L.X_POOL_TOP])
        if self.x[L.X_POOL_FREE] < 0 and top == len(self.pool):
            grown = np.empty(2 * top, ROW)
            grown[:top] = self.pool
            self._set("pool", grown, L.X_POOL)
            self.x[L.X_POOL_CAP] = len(grown)
        if 2 * self.x[L.X_COUNT] > self.x[L.X_SLOT_MASK]:
            slots = np.zeros(2 * len(self.slots), np.int64)
            rehash(self._context, address(slots), len(slots) - 1)
            self.slots = slots

    # ------------------------------------------------------------------ rows

    def pending_rows(self, partition: int = 0) -> Array:
        """Return the rows that wait to be sealed (a view)."""
        return self._rows[partition][: self.parts[partition, L.P_COUNT]]

    def row_bytes(self) -> int:
        """Return the bytes of the rows that wait to be sealed."""
        return sum(self.parts[:, L.P_BYTES].tolist())

    def prewrite_bytes(self) -> int:
        """Return the bytes of the prewrites that wait for their COMMIT."""
        return int(self.x[L.X_PENDING_BYTES])

    def counts(self) -> dict[str, int]:
        """Return the kernels' counters by their names in the status."""
        return {name: int(self.x[word]) for name, word in COUNTED.items()}

    def count(self, word: int) -> int:
        """Return a counter of the context: X_UNKNOWN, X_STALE, X_RANGE, X_DUP, X_ROWS, X_COUNT, X_NLATE."""
        return int(self.x[word])

    def take(self, partition: int, limit: int) -> Array:
        """Remove and return the rows with commit_ts <= limit (ROW records; they keep holding their chunks)."""
        rows, n = self._rows[partition], int(self.parts[partition, L.P_COUNT])
        if n == 0:
            return rows[:0].copy()
        if int(rows["commit_ts"][:n].max()) <= limit:
            fresh = self._rows[partition] = self._array(n)
            self.parts[partition] = address(fresh), 0, len(fresh), 0
            return rows[:n]
        out = self._array(n)
        out = out[: split(address(rows), n, limit, address(out))]
        self.parts[partition, L.P_COUNT] = n - len(out)
        self.parts[partition, L.P_BYTES] -= size_of(out)
        return out

    def take_newest(self, partition: int, size: int) -> tuple[Array, int]:
        """Remove the rows that came last, about `size` bytes of them or all, and return them with the bytes that they cost. What a
        partition gives and gets again and again is then the same memory."""
        n, held = int(self.parts[partition, L.P_COUNT]), int(self.parts[partition, L.P_BYTES])
        some = -(-n * size // max(held, 1))
        if 3 * some >= 2 * n:  # not worth another file
            return self.take(partition, FOREVER), held
        rows = self._array(some)[:some]
        left = n - some
        taken = moved(address(self._rows[partition]) + ROW.itemsize * left, some, address(rows)) + ROW_OVERHEAD * some
        self.parts[partition, L.P_COUNT] = left
        self.parts[partition, L.P_BYTES] -= taken
        return rows, taken

    def _array(self, n: int) -> Array:
        """Return an array for n rows, from warm memory if possible."""
        for i, spare in enumerate(self._spare):
            if len(spare) >= n:
                return self._spare.pop(i)
        return records(max(LEAST, n + n // 4), ROW)

    def recycle(self, rows: Array) -> None:
        """Take back an array from `take`, for reuse."""
        whole = rows if rows.base is None else rows.base
        if isinstance(whole, np.ndarray) and whole.dtype == ROW and LEAST <= len(whole) <= 1 << 20:
            self._spare = [*self._spare[-3:], whole]

    def release(self, rows: Array) -> None:
        """Release the holds of rows from `take`: their chunks may be freed."""
        if len(rows):
            release(address(self.chunks.refs), address(rows), len(rows))
        self.chunks.collect()

    def append(self, partition: int, rows: Array) -> None:
        """Put rows (that hold their chunks already) back among the waiting ones."""
        n, cap = int(self.parts[partition, L.P_COUNT]), int(self.parts[partition, L.P_CAP])
        if n + len(rows) > cap:
            self._grow_part(partition, max(2 * cap, n + len(rows)))
        self._rows[partition][n : n + len(rows)] = rows
        self.parts[partition, L.P_COUNT] += len(rows)
        self.parts[partition, L.P_BYTES] += size_of(rows)

    # ------------------------------------------------------------------ memory

    def memory(self) -> int:
        """Return the bytes in use: slabs that records point into, and records. What waits on disk does not count."""
        return self.chunks.bytes + ROW_OVERHEAD * int(self.x[L.X_COUNT] + self.x[L.X_NLATE] + self.parts[:, L.P_COUNT].sum())

    def evacuate(self) -> int:
        """Move the bytes that are in use in mostly unused slabs to fresh slabs, and free the old ones: a single pending prewrite would keep
        16 MiB. Returns the number of freed slabs."""
        before = self.chunks.held()
        living = np.zeros(len(self.chunks.refs), np.int64)
        tables = [self.pool[: self.x[L.X_POOL_TOP]], self.late[: self.x[L.X_NLATE]], *map(self.pending_rows, range(len(self.parts)))]
        alive = [np.flatnonzero(table["flags"]) if i == 0 else np.arange(len(table)) for i, table in enumerate(tables)]
        for table, which in zip(tables, alive, strict=True):
            living += np.bincount(table["chunk"][which], weights=sizes_of(table[which]), minlength=len(living)).astype(np.int64)
        sparse = self.chunks.sparse(living)
        for table, which in zip(tables, alive, strict=True):
            moving = which[sparse[table["chunk"][which]]]
            for at in range(0, len(moving), EVACUATE_ROWS):
                self._move(table, moving[at : at + EVACUATE_ROWS])
        self.chunks.collect()
        return before - self.chunks.held()

    def _move(self, table: Array, which: Array) -> None:
        """Copy the bytes of these records of a table, and let the records point to the copies."""
        order = which.astype(np.int32)
        chunk, room = self.chunks.room(int(sizes_of(table[which]).sum()) + PAD)
        copies = np.empty(len(which), ROW)
        pack(address(table), address(order), 0, len(order), address(room), address(room), address(copies))
        old, counts = np.unique(table["chunk"][which], return_counts=True)
        self.chunks.refs[old] -= counts
        self.chunks.refs[chunk] += len(which)
        for name in ("key", "value_d", "old_d"):
            table[name][which] = copies[name]
        table["chunk"][which] = chunk

    # ------------------------------------------------------------------ prewrites on disk (runs.py)

    def victims(self, target: int) -> Array:
        """Return pool indexes of prewrites to move to disk: those of the largest transactions, `target` bytes or more."""
        pool = self.pool[: self.x[L.X_POOL_TOP]]
        which: Array = np.flatnonzero(pool["flags"] == L.F_DATA)
        if not len(which):
            return which
        start = pool["start_ts"][which]
        size = pool["key_len"][which].astype(np.int64) + pool["value_len"][which] + pool["old_len"][which] + ROW_OVERHEAD
        transactions, inverse = np.unique(start, return_inverse=True)
        total = np.bincount(inverse, weights=size)
        largest = np.argsort(-total)
        n = int(np.searchsorted(np.cumsum(total[largest]), target)) + 1
        chosen = np.zeros(len(transactions), bool)
        chosen[largest[:n]] = True
        victims: Array = which[chosen[inverse]]
        return victims

    def mark_spilled(self, start_ts: set[int]) -> None:
        """Send COMMITs of these transactions to `take_late`: the prewrites of their keys may be on disk."""
        self._spilled |= start_ts
        self._build_spilled()

    def forget_spilled(self, start_ts: set[int]) -> None:
        """Note that no prewrite of these transactions is on disk any more."""
        self._spilled -= start_ts
        self._build_spilled()

    def _build_spilled(self) -> None:
        size = 1 << (4 * len(self._spilled) + 16).bit_length()
        self._set("spilled", np.zeros(size, np.int64), L.X_SPILLED)
        self.x[L.X_NSPILLED] = size - 1 if self._spilled else 0
        for start_ts in self._spilled:
            spilled_add(self._context, start_ts)

    def discard(self, which: Array) -> None:
        """Forget pending entries by their pool indexes."""
        which = np.ascontiguousarray(which, np.int64)
        self.x[L.X_REFS] = address(self.chunks.refs)
        discard_many(self._context, address(which), len(which))
        self.chunks.collect()

    def take_late(self) -> Array:
        """Remove and return COMMITs (op 1 to 3) and ROLLBACKs (op 0) of spilled transactions. They keep their holds. Those with F_DATA have
        the data of a prewrite that was in memory."""
        n = int(self.x[L.X_NLATE])
        self.x[L.X_NLATE] = 0
        return self.late[:n].copy()

    def put_late(self, rows: Array) -> None:
        """Put back some rows of `take_late`."""
        self.late[: len(rows)] = rows
        self.x[L.X_NLATE] = len(rows)

    def late_floors(self) -> Array:
        """Return how far each partition can be complete while late COMMITs wait: just below the first of them; FOREVER without any."""
        out: Array = np.full(len(self.parts), FOREVER, np.int64)
        late = self.late[: self.x[L.X_NLATE]]
        late = late[late["op"] != 0]
        np.minimum.at(out, self.subs["partition"][late["sub"]], late["commit_ts"] - 1)
        return out


def sizes_of(rows: Array) -> Array:
    """Return the bytes of keys and values of each row."""
    sizes: Array = rows["key_len"].astype(np.int64) + rows["value_len"] + rows["old_len"]
    return sizes


def size_of(rows: Array) -> int:
    """Return the bytes that rows cost while they wait."""
    return int(bytes_of(address(rows), len(rows))) + ROW_OVERHEAD * len(rows)
