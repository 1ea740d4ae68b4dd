"""Reads TiKV at one timestamp: gets and scans that handle region changes and wait for locks."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TypeVar

import grpc

from tidemill.capture.tikv.client.channels import Backoff
from tidemill.capture.tikv.client.pd import CALL_TIMEOUT, REFUSALS, PdClient, refused, region_of
from tidemill.capture.tikv.client.region_calls import context
from tidemill.capture.tikv.model import Region
from tidemill.capture.tikv.read.pages import AnswerTooLarge, PageSize
from tidemill.errors import MalformedKey, StartTsBeforeGc, UpstreamError, UpstreamUnavailable
from tidemill.tidb.codec import decode_bytes, encode_bytes
from tidemill.tidb.keys import physical_table_id
from tidemill.tso import describe
from tidemill.wire import errorpb_pb2, kvrpcpb_pb2

_SCAN = "/tikvpb.Tikv/KvScan"
_T = TypeVar("_T")

PAGE = 256
"""Pairs in one answer."""


class KeyLocked(UpstreamUnavailable):
    """A key cannot be read at the ts, because a transaction that may commit below it has locked the key. `key` is raw."""

    key = b""


class Snapshot:
    """The cluster as of `ts`. Keys are raw (decoded) on both sides.

    Nothing protects `ts` from garbage collection here: hold a service safe point below it while reading. `retry_s`: seconds that one page
    may take with all its retries, and for which a lock is waited for.
    """

    yields = False
    """Whether its reads make way for others at TiKV: low priority, and nothing for TiKV's cache."""

    def __init__(self, pd: PdClient, ts: int, retry_s: float = 60.0) -> None:
        self.pd, self.ts, self.retry_s = pd, ts, retry_s
        self._regions: list[Region] = []  # in key order
        self._addresses: dict[int, str] = {}

    async def get(self, key: bytes) -> bytes | None:
        """Return the value of one key."""
        async for found, value in self.scan(key, key + b"\0"):
            if found == key:
                return value
        return None

    async def scan(self, start: bytes, end: bytes, page: int = PAGE) -> AsyncIterator[tuple[bytes, bytes]]:
        """Yield the pairs of the raw range [start, end) in key order; an empty end is open.

        Raises UpstreamUnavailable, StartTsBeforeGc, UpstreamError.
        """
        at = start
        size = PageSize(page)
        while True:
            pairs, after = await self._page(at, end, size, self._ask)
            size.came(sum(len(key) + len(value) for key, value in pairs))
            for pair in pairs:
                yield pair
            if after is None or (end and after >= end):
                return
            at = after

    async def _page(self, at: bytes, end: bytes, size: PageSize, ask: Callable[[Region, bytes, bytes, int], Awaitable[_T]]) -> _T:
        """Call `ask(region, at, end, rows)` with as many rows as fit into a message. Raises UpstreamError if a single row does not."""
        while True:
            try:
                return await self._located(at, partial(_asked, ask, at, end, size.rows))
            except AnswerTooLarge as e:
                if not size.failed():
                    raise UpstreamError(
                        f"a row of {_table(at)} at or after key {at.hex()} cannot be read at {describe(self.ts)}: {e.message}",
                        hint="A single row is larger than a gRPC message may be. Make it smaller, or leave the table out.",
                    ) from None

    async def _located(self, key: bytes, ask: Callable[[Region], Awaitable[_T]]) -> _T:
        """Call `ask` with the region of a raw key; retry while that may help. Raises UpstreamUnavailable, and what `ask` raises."""
        until = time.monotonic() + self.retry_s
        backoff = Backoff()
        reason = ""
        while True:
            region = await self._locate(key)
            if region is None:
                reason = f"PD knows no region with a leader for key {key.hex()}"
            else:
                try:
                    return await ask(region)
                except UpstreamUnavailable as e:
                    reason = e.message
                    self._forget(region)
            wait = backoff.next()
            if time.monotonic() + wait > until:
                raise UpstreamUnavailable(f"cannot read at {describe(self.ts)}: {reason}")
            await asyncio.sleep(wait)

    async def _ask(self, region: Region, start: bytes, end: bytes, page: int) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """Return some pairs from `start` on, and the key to continue from; None: the range ends here."""
        request, behind = self._request(region, start, end, page)
        pairs = self._pairs(region, await self._call(region, request, kvrpcpb_pb2.ScanResponse.FromString))
        return pairs, pairs[-1][0] + b"\0" if len(pairs) >= page else behind

    def _request(self, region: Region, start: bytes, end: bytes, page: int) -> tuple[kvrpcpb_pb2.ScanRequest, bytes | None]:
        """Return a scan of the part of [start, end) in a region, and where the next region begins; None: there is none."""
        region_end = decode_bytes(region.end)[0] if region.end else b""
        stop = min(end, region_end) if end and region_end else end or region_end
        where = context(region, yields=self.yields)
        request = kvrpcpb_pb2.ScanRequest(context=where, start_key=start, end_key=stop, limit=page, version=self.ts)
        return request, region_end or None

    def _pairs(self, region: Region, answer: kvrpcpb_pb2.ScanResponse) -> list[tuple[bytes, bytes]]:
        """Return the pairs of an answer. Raises the error that it has instead."""
        if answer.HasField("region_error"):
            raise self._region_error(region, answer.region_error)
        if answer.HasField("error"):
            raise self._key_error(answer.error)
        for pair in answer.pairs:
            if pair.HasField("error"):
                raise self._key_error(pair.error)
        return [(pair.key, pair.value) for pair in answer.pairs]

    async def _call(self, region: Region, request: kvrpcpb_pb2.ScanRequest, read: Callable[[bytes], _T]) -> _T:
        assert region.leader is not None
        address = await self._address(region.leader.store_id)
        call = self.pd.channels.get(address).unary_unary(_SCAN, kvrpcpb_pb2.ScanRequest.SerializeToString, read)
        try:
            answer: _T = await call(request, timeout=10 * CALL_TIMEOUT)
        except grpc.aio.AioRpcError as e:
            self._addresses.pop(region.leader.store_id, None)
            if e.code() in REFUSALS:
                raise refused(f"TiKV {address}", f"{e.code().name} {e.details()}") from None
            if e.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in (e.details() or ""):
                raise AnswerTooLarge(f"TiKV {address}: {e.details()}") from None
            raise UpstreamUnavailable(f"TiKV {address}: {e.code().name} {e.details()}") from None
        return answer

    # ------------------------------------------------------------------ regions

    async def _locate(self, key: bytes) -> Region | None:
        encoded = encode_bytes(key) if key else b""
        at = bisect_right(self._regions, encoded, key=lambda r: r.start) - 1
        if at >= 0 and (not self._regions[at].end or encoded < self._regions[at].end):
            return self._regions[at]
        self._regions = [r for r in await self.pd.scan_regions(encoded, b"", 64) if r.leader]
        if self._regions and self._regions[0].start <= encoded:
            return self._regions[0]
        return None

    def _forget(self, region: Region) -> None:
        self._regions = [r for r in self._regions if r.id != region.id]

    async def _address(self, store_id: int) -> str:
        if store_id not in self._addresses:
            store = await self.pd.store(store_id)
            if store is None or store.tombstone:
                raise UpstreamUnavailable(f"store {store_id} is gone")
            self._addresses[store_id] = store.address
        return self._addresses[store_id]

    # ------------------------------------------------------------------ errors

    def _region_error(self, region: Region, error: errorpb_pb2.Error) -> UpstreamUnavailable:
        """Return a retryable error: for every region error, another try asks PD (or the region named in the error) again."""
        if error.HasField("epoch_not_match"):
            told = [region_of(r) for r in error.epoch_not_match.current_regions]
            self._regions = [r for r in self._regions if r.id not in {t.id for t in told}]
        kind = next((f.name for f, _ in error.ListFields() if f.name != "message"), "region error")
        return UpstreamUnavailable(f"region {region.id}: {kind} {error.message}".rstrip())

    def _key_error(self, error: kvrpcpb_pb2.KeyError) -> UpstreamError:
        if error.HasField("locked"):
            lock = error.locked
            locked = KeyLocked(
                f"key {lock.key.hex()} is locked by the transaction with start_ts {describe(lock.lock_version)}, "
                f"primary key {lock.primary_lock.hex()}"
            )
            locked.key = lock.key
            return locked
        text = error.abort or error.retryable or str(error).strip()
        if "GC life time" in text or "safe point" in text:
            return StartTsBeforeGc(f"the state at {describe(self.ts)} has been collected: {text}")
        if error.retryable:
            return UpstreamUnavailable(f"TiKV asks to try again: {text}")
        return UpstreamError(f"TiKV refuses to read at {describe(self.ts)}: {text}")


async def _asked(ask: Callable[[Region, bytes, bytes, int], Awaitable[_T]], at: bytes, end: bytes, rows: int, region: Region) -> _T:
    return await ask(region, at, end, rows)


def _table(key: bytes) -> str:
    try:
        return f"table {physical_table_id(key)}"
    except MalformedKey:
        return "the schema"
