"""Keys of TiDB's data in TiKV: record, index and meta keys, their ranges, keyspaces, and fixed ids.

A key has two forms. *Raw* keys stand in the events of a change feed. *Encoded* keys (`encode_bytes` of the raw key) are used by
regions, PD and subscriptions. In both, an empty end of a range means infinity. A region border need not be a valid key:
compare borders as plain bytes.
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
"""The bytes of an integer handle after `_r`. A common handle is padded to be longer."""

_ID_END = len(TABLE_PREFIX) + 8
_HANDLE_START = _ID_END + len(RECORD_SEPARATOR)

# Fixed ids and names.

DDL_JOB_TABLE_ID = (1 << 48) - 2
FIRST_RESERVED_ID = 1 << 47
"""From here on ids are those of TiDB's own tables, such as the DDL jobs'."""
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
"""Databases of TiDB and its tools, in lower case. Their rows are never delivered."""


def is_system_schema(name: str) -> bool:
    """Return whether a database belongs to TiDB or its tools; case does not matter."""
    return name.lower() in SYSTEM_SCHEMAS


# Raw and encoded keys


def to_encoded(raw: bytes) -> bytes:
    """Encode a raw key, or the start of a raw range."""
    return encode_bytes(raw)


def from_encoded(encoded: bytes) -> bytes:
    """Decode an encoded key. Raises MalformedKey, also for a region border that is not a valid key."""
    try:
        raw, end = decode_bytes(encoded)
    except MalformedBytes as error:
        raise MalformedKey(f"{_shown(encoded)} is not an encoded key: {error.message}") from None
    if end != len(encoded):
        raise MalformedKey(f"{_shown(encoded)} is not an encoded key: {len(encoded) - end} bytes follow its end")
    return raw


def encode_range(start: bytes, end: bytes) -> tuple[bytes, bytes]:
    """Encode a raw range. An empty end, infinity, stays empty."""
    return encode_bytes(start), encode_bytes(end) if end else b""


# Keyspaces


def keyspace_prefix(keyspace: int) -> bytes:
    """Return the prefix of all transactional raw keys of a keyspace (API v2): `x` and the id in three bytes."""
    if not 0 <= keyspace < 1 << 24:
        raise ValueError(f"keyspace {keyspace} is not in 0 to 2^24 - 1")
    return b"x" + keyspace.to_bytes(3, "big")


def keyspace_range(keyspace: int) -> tuple[bytes, bytes]:
    """Return the raw range of a keyspace. The range of the last keyspace ends at `y`, the next kind of keys."""
    return keyspace_prefix(keyspace), (int.from_bytes(keyspace_prefix(keyspace), "big") + 1).to_bytes(4, "big")


def strip_keyspace(key: bytes, keyspace: int) -> bytes:
    """Remove the keyspace prefix from a raw key. Raises MalformedKey for a key without this prefix."""
    prefix = keyspace_prefix(keyspace)
    if not key.startswith(prefix):
        raise MalformedKey(f"{_shown(key)} is not in keyspace {keyspace}: expected it to begin with {prefix.hex()}")
    return key[len(prefix) :]


# Record and index keys


@dataclass(frozen=True, slots=True)
class RecordKey:
    """The place of a row: its physical table id and its handle.

    An int handle is the hidden row id or the integer primary key. It is signed: an unsigned key of 2^63 or more is negative here.
    A bytes handle is the encoded primary key, with its padding.
    """

    table_id: int
    handle: int | bytes

    def __bytes__(self) -> bytes:
        return record_key(self.table_id, self.handle)


@dataclass(frozen=True, slots=True)
class IndexKey:
    """An entry of an index. `suffix` is its encoded datums; in an index that is not unique the handle follows them."""

    table_id: int
    index_id: int
    suffix: bytes


def table_prefix(table_id: int) -> bytes:
    """Return the prefix of all keys of a physical table: `t` and its id."""
    return TABLE_PREFIX + encode_int(table_id)


def record_prefix(table_id: int) -> bytes:
    """Return the prefix of all record keys of a physical table."""
    return table_prefix(table_id) + RECORD_SEPARATOR


def record_range(table_id: int) -> tuple[bytes, bytes]:
    """Return the raw range [start, end) of the record keys of a physical table."""
    return record_prefix(table_id), table_prefix(table_id) + b"_s"


def record_key(table_id: int, handle: int | bytes) -> bytes:
    """Return a raw record key. A bytes handle is padded with zeros to 9 bytes, so that it cannot be taken for an int handle."""
    return record_prefix(table_id) + (encode_int(handle) if isinstance(handle, int) else pad_handle(handle))


def pad_handle(handle: bytes) -> bytes:
    """Pad a common handle, so that it is longer than an int handle."""
    return handle.ljust(INT_HANDLE_SIZE + 1, b"\x00")


def is_of_user_table(raw: bytes) -> bool:
    """Return whether a raw key belongs to a table of a user: not to meta data, nor to a table with one of the ids that TiDB reserves."""
    return raw[:1] == TABLE_PREFIX and len(raw) >= 9 and decode_int(raw[1:9], 0)[0] < FIRST_RESERVED_ID


def index_prefix(table_id: int, index_id: int) -> bytes:
    """Return the prefix of all entries of an index."""
    return table_prefix(table_id) + INDEX_SEPARATOR + encode_int(index_id)


def signed_handle(value: int) -> int:
    """Return the handle of an integer primary key. Unsigned values of 2^63 and more keep their bits and become negative."""
    return value - 2 * SIGN if value >= SIGN else value


def unsigned_handle(handle: int) -> int:
    """Return the unsigned primary key that a handle stands for."""
    return handle + 2 * SIGN if handle < 0 else handle


def physical_table_id(key: bytes) -> int:
    """Return the table id of a raw record or index key. Raises MalformedKey."""
    if len(key) < _ID_END or not key.startswith(TABLE_PREFIX):
        raise MalformedKey(f"{_shown(key)} is not a key of a table: expected `t` and 8 bytes of table id")
    return decode_int(key, len(TABLE_PREFIX))[0]


def is_record_key(key: bytes) -> bool:
    """Return whether a raw key is a record key. Only its prefix is looked at."""
    return key.startswith(TABLE_PREFIX) and key[_ID_END:_HANDLE_START] == RECORD_SEPARATOR


def parse_record_key(key: bytes) -> RecordKey:
    """Parse a raw record key. Raises MalformedKey."""
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
    """Parse a raw index key. Raises MalformedKey."""
    table_id = physical_table_id(key)
    id_at = _ID_END + len(INDEX_SEPARATOR)
    if key[_ID_END:id_at] != INDEX_SEPARATOR:
        raise MalformedKey(f"{_shown(key)} is not an index key: expected `_i` at byte {_ID_END}, found {key[_ID_END:id_at]!r}")
    if len(key) < id_at + 8:
        raise MalformedKey(f"{_shown(key)} ends inside its index id")
    return IndexKey(table_id, decode_int(key, id_at)[0], key[id_at + 8 :])


# Meta keys


class MetaKind(enum.Enum):
    """What a meta key holds. The member's value is the flag byte after the key's name."""

    STRING = b"s"
    HASH_HEAD = b"H"  # the number of fields, written by old versions
    HASH_FIELD = b"h"
    LIST_HEAD = b"L"  # left and right index
    LIST_ITEM = b"l"


_META_KINDS = {kind.value[0]: kind for kind in MetaKind}


@dataclass(frozen=True, slots=True)
class MetaKey:
    """A key of the meta range: the name of a string, hash or list, and which field or item it is."""

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
    """Return the raw key of a string."""
    return _meta_prefix(name, MetaKind.STRING)


def meta_hash_field(name: bytes, field: bytes) -> bytes:
    """Return the raw key of a field of a hash."""
    return _meta_prefix(name, MetaKind.HASH_FIELD) + encode_bytes(field)


def meta_hash_prefix(name: bytes) -> bytes:
    """Return the prefix of the keys of all fields of a hash."""
    return _meta_prefix(name, MetaKind.HASH_FIELD)


def meta_hash_range(name: bytes) -> tuple[bytes, bytes]:
    """Return the raw range of the fields of a hash."""
    return _span(meta_hash_prefix(name))


def meta_list_range(name: bytes) -> tuple[bytes, bytes]:
    """Return the raw range of the items of a list."""
    return _span(_meta_prefix(name, MetaKind.LIST_ITEM))


def _span(prefix: bytes) -> tuple[bytes, bytes]:
    return prefix, prefix[:-1] + bytes([prefix[-1] + 1])


def parse_meta_key(key: bytes) -> MetaKey:
    """Parse a raw meta key. Raises MalformedKey."""
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
"""The hash of databases. Its fields (`DB:2`) have the names of the hashes that hold the databases' tables."""

DB_PREFIX = b"DB:"
TABLE_FIELD_PREFIX = b"Table:"
DBS_PREFIX = meta_hash_prefix(DBS)
DB_HASHES_RANGE = (META_PREFIX + DB_PREFIX, META_PREFIX + b"DB;")
"""The raw range of the hashes `DB:*`. It holds little else."""

SCHEMA_VERSION_KEY = meta_string(b"SchemaVersionKey")
BDR_ROLE_KEY = meta_string(b"BDRRole")
DDL_TABLE_VERSION_KEY = meta_string(b"DDLTableVersion")
BOOTSTRAP_KEY = meta_string(b"BootstrapKey")
NEXT_GLOBAL_ID_KEY = meta_string(b"NextGlobalID")
DDL_JOB_LIST = b"DDLJobList"
DDL_JOB_ADD_INDEX_LIST = b"DDLJobAddIdxList"
DDL_JOB_HISTORY = b"DDLJobHistory"


def db_name(schema_id: int) -> bytes:
    """Return the name of a database's hash, and of its field in `DBs`."""
    return DB_PREFIX + str(schema_id).encode()


def db_key(schema_id: int) -> bytes:
    """Return the raw key of a database's description."""
    return meta_hash_field(DBS, db_name(schema_id))


def table_key(schema_id: int, table_id: int) -> bytes:
    """Return the raw key of a table's description."""
    return meta_hash_field(db_name(schema_id), TABLE_FIELD_PREFIX + str(table_id).encode())


def schema_id_of(name: bytes) -> int | None:
    """Return the id in `DB:2`; None for another name."""
    return _number_after(DB_PREFIX, name)


def table_id_of(field: bytes) -> int | None:
    """Return the id in `Table:45`; None for another field (`TID:45`)."""
    return _number_after(TABLE_FIELD_PREFIX, field)


def _number_after(prefix: bytes, text: bytes) -> int | None:
    number = text[len(prefix) :]
    return int(number) if text.startswith(prefix) and number.isdigit() and len(number) < 20 else None


def display(key: bytes) -> str:
    """Return a raw key as people read it: `t 45 _r 1`, `m DB:2 h Table:45`, else its bytes. Never raises MalformedKey."""
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
    """Return a key for an error message. A long one is cut."""
    return f"key {key.hex()}" if len(key) <= 64 else f"key {key[:64].hex()}… of {len(key)} bytes"


def covers(ranges: Iterable[tuple[bytes, bytes]], key: bytes) -> bool:
    """Return whether a key lies in one of the ranges. An empty end is infinity. Key and ranges are both raw, or both encoded."""
    return any(start <= key and (not end or key < end) for start, end in ranges)
