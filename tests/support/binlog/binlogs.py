"""Recorded binlogs: what a TiDB wrote and what a real Pump gave to Drainers; and stores that are driven in a test."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tidemill.binlog.messages import Binlog, BinlogType
from tidemill.binlog.pump.pulling import Puller
from tidemill.binlog.pump.store import VALUE_FOLDER, Store
from tidemill.wire import pump_pb2

GOLDEN = Path(__file__).parents[2] / "golden" / "binlog"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A case: the payloads of its WriteBinlog calls, and the answers of PullBinlogs by commit_ts."""

    name: str
    writes: tuple[bytes, ...]
    pulls: dict[int, bytes]


def lines(name: str) -> list[dict[str, Any]]:
    """The objects of a recorded file."""
    with gzip.open(GOLDEN / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@cache
def cases() -> tuple[Recorded, ...]:
    """All cases whose bytes were recorded as a whole."""
    found = []
    for line in lines("cases"):
        requests = [call["req"] for call in line["write_binlog"]]
        pulls = line["pull_binlogs"] or []
        if all(isinstance(one, str) for one in (*requests, *(pull["resp"] for pull in pulls))):
            writes = tuple(pump_pb2.WriteBinlogReq.FromString(bytes.fromhex(one)).payload for one in requests)
            found.append(Recorded(line["case"], writes, {pull["meta"]["commit_ts"]: bytes.fromhex(pull["resp"]) for pull in pulls}))
    return tuple(found)


def prewrite(start_ts: int, value: bytes = b"\x08\x01", key: bytes = b"m key") -> bytes:
    """A Prewrite."""
    return Binlog(BinlogType.PREWRITE, start_ts, 0, key, value).encode()


def commit(start_ts: int, commit_ts: int, key: bytes = b"m key") -> bytes:
    """A Commit."""
    return Binlog(BinlogType.COMMIT, start_ts, commit_ts, key).encode()


def rollback(start_ts: int, key: bytes = b"m key") -> bytes:
    """A Rollback."""
    return Binlog(BinlogType.ROLLBACK, start_ts, 0, key).encode()


async def until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    """Let the event loop run until something is so."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


async def settled(store: Store) -> None:
    """Wait until the index and the order have all that was written."""
    await until(lambda: not store.behind and not store.waiting and len(store.order) == len(store.order.open))


def pulled(store: Store, folder: Path, after: int = 0) -> dict[int, bytes]:
    """What a Drainer would get now, by commit_ts, in the order in which it comes."""
    puller, answers, last = Puller(store.index, folder / VALUE_FOLDER), [], after
    try:
        while last < store.order.max_commit_ts:
            batch = puller.after(last, store.order.max_commit_ts)
            answers += batch.answers
            last = batch.upto
    finally:
        puller.close()
    stamps = [pump_pb2.PullBinlogResp.FromString(answer).entity.meta.commitTs for answer in answers]
    assert stamps == sorted(set(stamps))
    return dict(zip(stamps, answers, strict=True))
