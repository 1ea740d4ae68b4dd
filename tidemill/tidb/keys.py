"""Keys of TiDB's data in TiKV: record, index and meta keys, their ranges, keyspaces, and ids that are fixed.

A key has two spellings. *Raw* is what rows and key-values of a feed carry. *Encoded* (`encode_bytes` of the whole) is what
regions, PD and subscriptions use. Empty bytes as the end of a range mean infinity in both. Region borders need not be keys at
all: compare them as plain bytes.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from tidemill.errors import MalformedBytes, MalformedKey
from tidemill.tidb.codec import SIGN, decode_bytes, decode_int, decode_uint, encode_bytes, encode_int, encode_uint

TABLE_PREFIX = b"t"
META_PREFIX = b"m"
RECORD_SEPARATOR = b"_r"
INDEX_SEPARATOR = b"_i"

INT_HANDLE_SIZE = 8
"""A record key with exactly so many bytes after `_r` has an integer handle; a common handle is padded to be longer."""

_ID_END = len(TABLE_PREFIX) + 8
_HANDLE_START = _ID_END + len(RECORD_SEPARATOR)

# Fixed ids and names.

DDL_JOB_TABLE_ID = (1 << 48) - 2
DDL_REORG_TABLE_ID = (1 << 48) - 3
DDL_HISTORY_TABLE_ID = (1 << 48) - 4
MDL_INFO_TABLE_ID = (1 << 48) - 5

SYSTEM_SCHEMAS = frozenset(
    {
        "mysql",
        "information_schema",
        "performance_schema",
        "metrics_schema",
        "inspection_schema",
        "sys",
        "tidb_cdc",
        "lightning_task_info",
        "workload_schema",
    }
)
"""Databases whose rows are nobody's data, in lower case."""


def is_system_schema(name: str) -> bool:
    """Whether a database belongs to TiDB or its tools; case does not matter."""
    return name.lower() in SYSTEM_SCHEMAS


# The two spellings


def to_encoded(raw: bytes) -> bytes:
    """The encoded spelling of a key or of a start of a range."""
    return encode_bytes(raw)


def from_encoded(encoded: bytes) -> bytes:
    """The raw spelling of an encoded key. Raises MalformedKey, also for region borders that are not encoded key."""
    try:
        raw, end = decode_bytes(encoded)
    except MalformedBytes as error:
        raise MalformedKey(f"{_shown(encoded)} is not an encoded key: {error.message}") from None
    if end != len(encoded):
        raise MalformedKey(f"{_shown(encoded)} is not an encoded key: {len(encoded) - end} bytes follow its end")
    return raw


def encode_range(start: bytes, end: bytes) -> tuple[bytes, bytes]:
    """The encoded spelling of a raw range; an empty end stays empty: infinity."""
    return encode_bytes(start), encode_bytes(end) if end else b""


# Keyspaces


def keyspace_prefix(keyspace: int) -> bytes:
    """What stands before every transactional raw key of a keyspace (API v2): `x` and the id in three bytes."""
    if not 0 <= keyspace < 1 << 24:
        raise ValueError(f"keyspace {keyspace} is not in 0 to 2^24 - 1")
    return b"x" + keyspace.to_bytes(3, "big")


def keyspace_range(keyspace: int) -> tuple[bytes, bytes]:
    """The raw range of a keyspace. The last one ends where raw keys of the next kind (`y`) would begin."""
    return keyspace_prefix(keyspace), (int.from_bytes(keyspace_prefix(keyspace), "big") + 1).to_bytes(4, "big")


def strip_keyspace(key: bytes, keyspace: int) -> bytes:
    """The raw key without its keyspace prefix. Raises MalformedKey when it has another one or none."""
    prefix = keyspace_prefix(keyspace)
    if not key.startswith(prefix):
        raise MalformedKey(f"{_shown(key)} is not in keyspace {keyspace}: expected it to begin with {prefix.hex()}")
    return key[len(prefix) :]


# Record and index keys


@dataclass(frozen=True, slots=True)
class RecordKey:
    """Where a row is stored: the physical table id and the handle.

    An int handle is the integer primary key (by bit pattern, so an unsigned one of 2^63 and more is negative here) or the hidden
    row id. A bytes handle is the encoded primary key, with its padding.
    """

    table_id: int
    handle: int | bytes

    def __bytes__(self) -> bytes:
        return record_key(self.table_id, self.handle)


@dataclass(frozen=True, slots=True)
class IndexKey:
    """An entry of an index. `suffix` is its encoded datums, with the handle at the end where the index is not unique."""

    table_id: int
    index_id: int
    suffix: bytes


def table_prefix(table_id: int) -> bytes:
    """What all keys of a physical table begin with: `t` and its id."""
    return TABLE_PREFIX + encode_int(table_id)


def record_prefix(table_id: int) -> bytes:
    """What all record keys of a physical table begin with."""
    return table_prefix(table_id) + RECORD_SEPARATOR


def record_range(table_id: int) -> tuple[bytes, bytes]:
    """The raw range [start, end) of the record keys of a physical table."""
    return record_prefix(table_id), table_prefix(table_id) + b"_s"


def record_key(table_id: int, handle: int | bytes) -> bytes:
    """A raw record key. A bytes handle is padded with zeros to 9 bytes, so that it cannot be taken for an int handle."""
    return record_prefix(table_id) + (encode_int(handle) if isinstance(handle, int) else pad_handle(handle))


def pad_handle(handle: bytes) -> bytes:
    """A common handle, at least one byte longer than an int handle."""
    return handle.ljust(INT_HANDLE_SIZE + 1, b"\x00")


def index_prefix(table_id: int, index_id: int) -> bytes:
    """What all entries of an index begin with."""
    return table_prefix(table_id) + INDEX_SEPARATOR + encode_int(index_id)


def signed_handle(value: int) -> int:
    """The handle of an integer primary key: unsigned values of 2^63 and more are stored by their bit pattern."""
    return value - 2 * SIGN if value >= SIGN else value


def unsigned_handle(handle: int) -> int:
    """The unsigned primary key of a handle."""
    return handle + 2 * SIGN if handle < 0 else handle


def physical_table_id(key: bytes) -> int:
    """The table id of a raw record or index key. Raises MalformedKey."""
    if len(key) < _ID_END or not key.startswith(TABLE_PREFIX):
        raise MalformedKey(f"{_shown(key)} is not a key of a table: expected `t` and 8 bytes of table id")
    return decode_int(key, len(TABLE_PREFIX))[0]


def is_record_key(key: bytes) -> bool:
    """Whether a raw key is a row's, by its prefix alone."""
    return key.startswith(TABLE_PREFIX) and key[_ID_END:_HANDLE_START] == RECORD_SEPARATOR


def parse_record_key(key: bytes) -> RecordKey:
    """The parts of a raw record key. Raises MalformedKey."""
    table_id = physical_table_id(key)
    if not is_record_key(key):
        raise MalformedKey(f"{_shown(key)} is not a record key: expected `_r` at byte {_ID_END}, found {key[_ID_END:_HANDLE_START]!r}")
    handle = key[_HANDLE_START:]
    if len(handle) < INT_HANDLE_SIZE:
        raise MalformedKey(
            f"{_shown(key)} has a handle of {len(handle)} bytes at byte {_HANDLE_START}: expected 8, or more for a common one"
        )
    if len(handle) == INT_HANDLE_SIZE:
        return RecordKey(table_id, decode_int(handle)[0])
    return RecordKey(table_id, handle)


def parse_index_key(key: bytes) -> IndexKey:
    """The parts of a raw index key. Raises MalformedKey."""
    table_id = physical_table_id(key)
    id_at = _ID_END + len(INDEX_SEPARATOR)
    if key[_ID_END:id_at] != INDEX_SEPARATOR:
        raise MalformedKey(f"{_shown(key)} is not an index key: expected `_i` at byte {_ID_END}, found {key[_ID_END:id_at]!r}")
    if len(key) < id_at + 8:
        raise MalformedKey(f"{_shown(key)} ends inside its index id")
    return IndexKey(table_id, decode_int(key, id_at)[0], key[id_at + 8 :])


# Meta keys


class MetaKind(enum.Enum):
    """What a meta key stands for; the value is the flag after its name."""

    STRING = b"s"
    HASH_HEAD = b"H"  # of old versions: how many fields
    HASH_FIELD = b"h"
    LIST_HEAD = b"L"  # left and right index
    LIST_ITEM = b"l"


_META_KINDS = {kind.value[0]: kind for kind in MetaKind}


@dataclass(frozen=True, slots=True)
class MetaKey:
    """A key of the meta range: a string, a field of a hash, or an item of a list, under a name."""

    kind: MetaKind
    name: bytes
    field: bytes = b""  # of a HASH_FIELD
    index: int = 0  # of a LIST_ITEM

    def __bytes__(self) -> bytes:
        head = _meta_prefix(self.name, self.kind)
        if self.kind is MetaKind.HASH_FIELD:
            return head + encode_bytes(self.field)
        return head + encode_int(self.index) if self.kind is MetaKind.LIST_ITEM else head


def _meta_prefix(name: bytes, kind: MetaKind) -> bytes:
    return META_PREFIX + encode_bytes(name) + encode_uint(kind.value[0])


def meta_string(name: bytes) -> bytes:
    """The raw key of a string."""
    return _meta_prefix(name, MetaKind.STRING)


def meta_hash_field(name: bytes, field: bytes) -> bytes:
    """The raw key of a field of a hash."""
    return _meta_prefix(name, MetaKind.HASH_FIELD) + encode_bytes(field)


def meta_hash_prefix(name: bytes) -> bytes:
    """What the keys of all fields of a hash begin with."""
    return _meta_prefix(name, MetaKind.HASH_FIELD)


def meta_hash_range(name: bytes) -> tuple[bytes, bytes]:
    """The raw range of the fields of a hash."""
    return _span(meta_hash_prefix(name))


def meta_list_range(name: bytes) -> tuple[bytes, bytes]:
    """The raw range of the items of a list."""
    return _span(_meta_prefix(name, MetaKind.LIST_ITEM))


def _span(prefix: bytes) -> tuple[bytes, bytes]:
    return prefix, prefix[:-1] + bytes([prefix[-1] + 1])


def parse_meta_key(key: bytes) -> MetaKey:
    """The parts of a raw meta key. Raises MalformedKey."""
    if not key.startswith(META_PREFIX):
        raise MalformedKey(f"{_shown(key)} is not a meta key: expected `m`")
    try:
        name, pos = decode_bytes(key, len(META_PREFIX))
        flag, pos = decode_uint(key, pos)
        kind = _META_KINDS.get(flag)
        if kind is None:
            raise MalformedBytes(f"the kind at byte {pos - 8} is {flag:#x}, expected s, h, H, l or L")
        field, index = b"", 0
        if kind is MetaKind.HASH_FIELD:
            field, pos = decode_bytes(key, pos)
        elif kind is MetaKind.LIST_ITEM:
            index, pos = decode_int(key, pos)
        if pos != len(key):
            raise MalformedBytes(f"{len(key) - pos} bytes follow its end at byte {pos}")
    except MalformedBytes as error:
        raise MalformedKey(f"{_shown(key)} is not a meta key: {error.message}") from None
    return MetaKey(kind, name, field, index)


META_RANGE = (META_PREFIX, b"n")
DBS = b"DBs"
"""The hash of databases; its fields are named as the hashes of their tables are: `DB:2`."""

DB_PREFIX = b"DB:"
TABLE_FIELD_PREFIX = b"Table:"
DBS_PREFIX = meta_hash_prefix(DBS)
DB_HASHES_RANGE = (META_PREFIX + DB_PREFIX, META_PREFIX + b"DB;")
"""The raw range in which the hashes `DB:*` lie, and little else."""

SCHEMA_VERSION_KEY = meta_string(b"SchemaVersionKey")
BDR_ROLE_KEY = meta_string(b"BDRRole")
DDL_TABLE_VERSION_KEY = meta_string(b"DDLTableVersion")
BOOTSTRAP_KEY = meta_string(b"BootstrapKey")
NEXT_GLOBAL_ID_KEY = meta_string(b"NextGlobalID")
DDL_JOB_LIST = b"DDLJobList"
DDL_JOB_ADD_INDEX_LIST = b"DDLJobAddIdxList"
DDL_JOB_HISTORY = b"DDLJobHistory"


def db_name(schema_id: int) -> bytes:
    """The name of a database's hash, and of its field in `DBs`."""
    return DB_PREFIX + str(schema_id).encode()


def db_key(schema_id: int) -> bytes:
    """The raw key of a database's description."""
    return meta_hash_field(DBS, db_name(schema_id))


def table_key(schema_id: int, table_id: int) -> bytes:
    """The raw key of a table's description."""
    return meta_hash_field(db_name(schema_id), TABLE_FIELD_PREFIX + str(table_id).encode())


def schema_id_of(name: bytes) -> int | None:
    """The id in `DB:2`; None for another name."""
    return _number_after(DB_PREFIX, name)


def table_id_of(field: bytes) -> int | None:
    """The id in `Table:45`; None for another field (`TID:45`)."""
    return _number_after(TABLE_FIELD_PREFIX, field)


def _number_after(prefix: bytes, text: bytes) -> int | None:
    number = text[len(prefix) :]
    return int(number) if text.startswith(prefix) and number.isdigit() and len(number) < 20 else None


def display(key: bytes) -> str:
    """A raw key for people: `t 45 _r 1`, `m DB:2 h Table:45`, else its bytes. Never raises MalformedKey."""
    for parse in (_display_record, _display_index, _display_meta):
        try:
            return parse(key)
        except MalformedKey:
            continue
    return _shown(key)


def _display_record(key: bytes) -> str:
    record = parse_record_key(key)
    return f"t {record.table_id} _r {record.handle if isinstance(record.handle, int) else record.handle.hex()}"


def _display_index(key: bytes) -> str:
    index = parse_index_key(key)
    return f"t {index.table_id} _i {index.index_id} {index.suffix.hex()}"


def _display_meta(key: bytes) -> str:
    meta = parse_meta_key(key)
    head = f"m {_text(meta.name)} {meta.kind.value.decode()}"
    if meta.kind is MetaKind.HASH_FIELD:
        return f"{head} {_text(meta.field)}"
    return f"{head} {meta.index}" if meta.kind is MetaKind.LIST_ITEM else head


def _text(name: bytes) -> str:
    return name.decode() if name.isascii() and name.decode().isprintable() else name.hex()


def _shown(key: bytes) -> str:
    """A key inside a message, cut when it is long."""
    return f"key {key.hex()}" if len(key) <= 64 else f"key {key[:64].hex()}… of {len(key)} bytes"


def covers(ranges: Iterable[tuple[bytes, bytes]], key: bytes) -> bool:
    """Whether a key lies in one of the ranges, where an empty end is infinity. Both sides in the same spelling."""
    return any(start <= key and (not end or key < end) for start, end in ranges)
