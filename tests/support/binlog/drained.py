"""Recorded binlogs as a Drainer reads them: schemas made from the recorded history of DDL jobs, and what a real Drainer wrote."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass
from typing import Any

from tests.support.binlog.binlogs import lines
from tidemill.binlog.drainer.entries import Reading
from tidemill.binlog.drainer.rows.batching import ANY_VERSION
from tidemill.binlog.drainer.schemas import Schemas
from tidemill.binlog.filters import IGNORED_SCHEMAS, Filter
from tidemill.binlog.messages import Binlog, BinlogType, read_binlog
from tidemill.binlog.outputs.transactions import Entry
from tidemill.tidb import keys
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.tracking.catalog import Catalog
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.wire import pump_pb2

EVERY_TABLE = Filter(IGNORED_SCHEMAS, (), (), ())


class RecordedSchemas(Schemas):
    """Has its jobs from the recorded history, and no TiKV to look into."""

    def __init__(self, jobs: dict[int, bytes]) -> None:
        super().__init__(None, Catalog(), lambda what: None)  # type: ignore[arg-type]
        self._jobs = jobs

    async def _job(self, binlog: Binlog) -> bytes:
        return self._jobs[binlog.ddl_job_id]

    def settled(self, table_id: int) -> int:
        return ANY_VERSION

    async def _look(self, table_id: int, start_ts: int, commit_ts: int) -> TableVersion | None:
        raise AssertionError(f"table {table_id} is not known at {commit_ts}")


def history() -> dict[int, bytes]:
    """The recorded jobs by id."""
    return {line["job_id"]: line["value_text"].encode() for line in lines("tikv_schema_history") if line["kind"] == "ddl_job"}


@dataclass(frozen=True, slots=True)
class Line:
    """A case: its binlogs, and the messages of a real Drainer by sink; None: it did not run. `statements`: what a real Drainer sent to a
    MariaDB in its first five minutes."""

    name: str
    binlogs: tuple[Binlog, ...]
    outputs: dict[str, tuple[bytes, ...] | None]
    statements: tuple[bytes, ...] | None = None


def _bytes(value: Any) -> bytes | None:
    if isinstance(value, str):
        return bytes.fromhex(value)
    return zlib.decompress(base64.b64decode(value["zlib_b64"])) if "zlib_b64" in value else None


def _outputs(recorded: list[Any] | None) -> tuple[bytes, ...] | None:
    if recorded is None:
        return None
    found = [_bytes(one["value"] if isinstance(one, dict) and "value" in one else one) for one in recorded]
    return tuple(one for one in found if one is not None) if None not in found else None


def recorded() -> list[Line]:
    """The cases."""
    found = []
    for line in lines("cases"):
        answers = [_bytes(pull["resp"]) for pull in line["pull_binlogs"] or []]
        if answers and None not in answers:
            binlogs = tuple(read_binlog(pump_pb2.PullBinlogResp.FromString(a).entity.payload) for a in answers if a is not None)
            outputs = {name: _outputs(line["drainer"][name]) for name in ("file", "kafka")}
            found.append(Line(line["case"], binlogs, outputs, statements_of(line["drainer"]["mysql_safe_mode"])))
    return found


def statements_of(recorded: list[Any] | None) -> tuple[bytes, ...] | None:
    if recorded is None:
        return None
    found = [one.encode() if isinstance(one, str) else base64.b64decode(one["b64"]) if "b64" in one else _bytes(one) for one in recorded]
    return tuple(one for one in found if one is not None) if None not in found else None


def _fillers(served: set[int], jobs: dict[int, bytes]) -> list[Binlog]:
    """DDL binlogs of the jobs that no case has."""
    made = []
    for number, text in jobs.items():
        job = json.loads(text)
        finished = job["binlog"]["FinishedTS"]
        if number not in served and job["state"] == 6 and job["type"] not in (Action.CACHE_TABLE, Action.NO_CACHE_TABLE):
            query = job["query"].encode()
            made.append(Binlog(BinlogType.COMMIT, finished - 2, finished - 1, b"m", b"", query, number, int(job["schema_state"])))
    return made


def with_fillers(binlogs: list[Binlog], jobs: dict[int, bytes]) -> list[Binlog]:
    """The binlogs, and DDL binlogs of all jobs that they leave out, by commit ts."""
    fillers = _fillers({binlog.ddl_job_id for binlog in binlogs}, jobs)
    return sorted(binlogs + fillers, key=lambda one: one.commit_ts)


async def drained(cases: list[Line], *, fillers_too: bool = False, tables: Filter = EVERY_TABLE) -> dict[int, Entry]:
    """What a Drainer makes of all cases, by commit ts. `fillers_too`: also of the DDLs that no case has."""
    jobs = history()
    own = [binlog for case in cases for binlog in case.binlogs]
    fillers = _fillers({binlog.ddl_job_id for binlog in own}, jobs)
    reading = Reading(RecordedSchemas(jobs), tables, frozenset())
    found: dict[int, Entry] = {}
    for binlog in sorted(own + fillers, key=lambda one: one.commit_ts):
        entry = await reading.entry(binlog)
        if entry is not None:
            found[binlog.commit_ts] = entry
    return {ts: found[ts] for ts in found if fillers_too or ts not in {filler.commit_ts for filler in fillers}}


def meta_of(jobs: dict[int, bytes], begin: int) -> list[str]:
    """Meta keys of a cluster without databases, and its jobs as they were filed."""
    version = {"key_hex": keys.SCHEMA_VERSION_KEY.hex(), "value_text": "0", "commit_ts": begin - 10}
    filed = []
    for number, text in jobs.items():
        key = keys.meta_hash_field(keys.DDL_JOB_HISTORY, number.to_bytes(8, "big"))
        filed.append({"key_hex": key.hex(), "value_text": text.decode(), "commit_ts": begin - 5})
    return [json.dumps(version), *(json.dumps(line) for line in filed)]
