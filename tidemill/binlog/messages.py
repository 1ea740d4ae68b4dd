"""A binlog: one message of a transaction or DDL, as TiDB writes it and Pump keeps it.

A transaction is a Prewrite with its rows, and then a Commit, or a Rollback. A DDL has both too, with its query and no rows.
Encoded bytes are equal to those of the real programs: every number is written, even 0, and of the bytes only what there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from google.protobuf.message import DecodeError

from tidemill.errors import MalformedBytes, MalformedMessage
from tidemill.tidb.codec import decode_uvarint
from tidemill.wire import binlog_pb2


class BinlogType(IntEnum):
    """What a binlog tells."""

    PREWRITE = binlog_pb2.Prewrite
    COMMIT = binlog_pb2.Commit
    ROLLBACK = binlog_pb2.Rollback


class MutationType(IntEnum):
    """The kind of one row change, in the order of a transaction's statements."""

    INSERT = binlog_pb2.Insert
    UPDATE = binlog_pb2.Update
    DELETE_ROW = binlog_pb2.DeleteRow


class SchemaState(IntEnum):
    """How far a DDL is in its binlog. Most DDLs write one binlog, when they are done; DROP COLUMN writes a delete-only one before it."""

    NONE = 0
    DELETE_ONLY = 1
    WRITE_ONLY = 2
    WRITE_REORGANIZATION = 3
    DELETE_REORGANIZATION = 4
    PUBLIC = 5


@dataclass(frozen=True, slots=True)
class Binlog:
    """`prewrite_value`: an encoded `Prewritten`. `ddl_job_id` is 0 for rows."""

    tp: BinlogType
    start_ts: int
    commit_ts: int = 0
    prewrite_key: bytes = b""
    prewrite_value: bytes = b""
    ddl_query: bytes = b""
    ddl_job_id: int = 0
    ddl_schema_state: int = 0

    @property
    def is_fake(self) -> bool:
        """Whether Pump made it of PD's time, so that Drainers can go on without writes."""
        return self.tp is BinlogType.ROLLBACK and self.start_ts == self.commit_ts and not self.prewrite_key

    def encode(self) -> bytes:
        """Return the bytes that the real programs write."""
        message = binlog_pb2.Binlog(
            tp=int(self.tp),  # type: ignore[arg-type]
            start_ts=self.start_ts,
            commit_ts=self.commit_ts,
            prewrite_key=self.prewrite_key or None,
            prewrite_value=self.prewrite_value or None,
            ddl_query=self.ddl_query or None,
            ddl_job_id=self.ddl_job_id,
            ddl_schema_state=self.ddl_schema_state,
        )
        return message.SerializeToString()


def fake(ts: int) -> Binlog:
    """Return the binlog by which a Pump without writes tells that it has nothing at or below `ts`."""
    return Binlog(BinlogType.ROLLBACK, ts, ts)


def read_binlog(payload: bytes) -> Binlog:
    """Decode a binlog. Raises MalformedMessage."""
    message = _parsed(payload)
    return Binlog(
        BinlogType(message.tp),
        message.start_ts,
        message.commit_ts,
        message.prewrite_key,
        message.prewrite_value,
        message.ddl_query,
        message.ddl_job_id,
        message.ddl_schema_state,
    )


def _parsed(payload: bytes) -> binlog_pb2.Binlog:
    message = binlog_pb2.Binlog()
    try:
        message.ParseFromString(payload)
    except DecodeError as error:
        raise MalformedMessage(f"{len(payload)} bytes are not a binlog: {error}") from None
    if not message.HasField("tp") or message.tp > BinlogType.ROLLBACK:
        raise MalformedMessage(f"a binlog of {len(payload)} bytes has no type that is known")
    if message.start_ts < 0 or message.commit_ts < 0 or not message.HasField("start_ts"):
        raise MalformedMessage(f"a binlog of {len(payload)} bytes has start_ts {message.start_ts} and commit_ts {message.commit_ts}")
    return message


@dataclass(frozen=True, slots=True)
class TableMutation:
    """The rows that a transaction changed in one table (of a partitioned table: the logical one).

    `sequence` says in which order: each entry takes the next row of its kind. The row bytes are those of `tidemill.tidb` datums.
    """

    table_id: int
    inserted: tuple[bytes, ...] = ()
    updated: tuple[bytes, ...] = ()
    deleted: tuple[bytes, ...] = ()
    sequence: tuple[MutationType, ...] = ()


@dataclass(frozen=True, slots=True)
class Prewritten:
    """The rows of a transaction: the content of `Binlog.prewrite_value`."""

    schema_version: int
    mutations: tuple[TableMutation, ...] = ()

    def encode(self) -> bytes:
        """Return the bytes that TiDB writes."""
        message = binlog_pb2.PrewriteValue(schema_version=self.schema_version)
        for one in self.mutations:
            message.mutations.add(
                table_id=one.table_id,
                inserted_rows=one.inserted,
                updated_rows=one.updated,
                deleted_rows=one.deleted,
                sequence=[int(kind) for kind in one.sequence],
            )
        return message.SerializeToString()


_MUTATIONS = {int(kind): kind for kind in MutationType}
_ROWS = {MutationType.INSERT: "inserted", MutationType.UPDATE: "updated", MutationType.DELETE_ROW: "deleted"}


def read_prewritten(value: bytes) -> Prewritten:
    """Decode the rows of a transaction. Raises MalformedMessage, also when the sequence and the rows do not fit."""
    message = binlog_pb2.PrewriteValue()
    try:
        message.ParseFromString(value)
    except DecodeError as error:
        raise MalformedMessage(f"{len(value)} bytes are not a PrewriteValue: {error}") from None
    return Prewritten(message.schema_version, tuple(_mutation(one) for one in message.mutations))


def read_version(value: bytes) -> int:
    """Return the schema version of a transaction; of what TiDB writes, without decoding the rows. Raises MalformedMessage."""
    if value[:1] != b"\x08":
        return read_prewritten(value).schema_version
    try:
        return decode_uvarint(value, 1)[0]
    except MalformedBytes as error:
        raise MalformedMessage(f"{len(value)} bytes are not a PrewriteValue: {error.message}") from None


def _mutation(message: binlog_pb2.TableMutation) -> TableMutation:
    where = f"the mutations of table {message.table_id}"
    try:
        sequence = tuple(_MUTATIONS[kind] for kind in message.sequence)
    except KeyError as error:
        raise MalformedMessage(f"{where} have a kind that is not known: {error}") from None
    rows = tuple(message.inserted_rows), tuple(message.updated_rows), tuple(message.deleted_rows)
    found = TableMutation(message.table_id, *rows, sequence)
    for kind, name in _ROWS.items():
        told, there = sequence.count(kind), len(getattr(found, name))
        if told != there:
            raise MalformedMessage(f"{where} have {there} {name} rows, but {told} in their sequence")
    return found


@dataclass(frozen=True, slots=True)
class Head:
    """What the order of binlogs needs to know of one."""

    tp: BinlogType
    start_ts: int
    commit_ts: int


def read_head(payload: bytes) -> Head:
    """Decode a binlog as far as `Head` goes; all of it is checked. Raises MalformedMessage."""
    message = _parsed(payload)
    return Head(BinlogType(message.tp), message.start_ts, message.commit_ts)


def join(commit: bytes, prewrite: bytes) -> bytes:
    """Return what a Drainer gets of a transaction or DDL: its Commit with the rows or the query of its Prewrite.

    Raises MalformedMessage.
    """
    whole, first = _parsed(commit), _parsed(prewrite)
    for name in ("prewrite_value", "ddl_query"):
        if first.HasField(name):
            setattr(whole, name, getattr(first, name))
        else:
            whole.ClearField(name)
    whole.ddl_job_id, whole.ddl_schema_state = first.ddl_job_id, first.ddl_schema_state
    return whole.SerializeToString()
