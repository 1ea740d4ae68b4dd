"""SHOW CREATE TABLE: prints a table's statement from its description as TiDB does.

There are two differences. The table's name is qualified with its schema. The counters of AUTO_INCREMENT and AUTO_RANDOM are left out: the
description lacks them, and consumers of a changefeed do not allocate ids. The tests compare with texts of a real TiDB:
tests/golden/tikv/recordings/all_types.jsonl.gz.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import tzinfo

from tidemill.tidb.names import quote_name
from tidemill.tidb.schema.codes import ColumnFlag, MySQLType, PartitionType
from tidemill.tidb.schema.details import Check, ForeignKey, TableDetails, Ttl
from tidemill.tidb.schema.model import ColumnInfo, DBInfo, IndexInfo, PartitionDefinition, PartitionInfo, TableInfo
from tidemill.tidb.schema.typenames import DEFAULT_LENGTHS, attributes, type_name
from tidemill.tidb.types.times import format_datetime, in_zone, parse_datetime

UNSPECIFIED = -1
"""The length or digits of a column that states none, and the prefix length of an index over a whole column."""
_DEFAULT_COLLATE = {"utf8mb4": "utf8mb4_bin", "utf8": "utf8_bin", "ascii": "ascii_bin", "latin1": "latin1_bin", "gbk": "gbk_chinese_ci"}
_DEFAULT_COLLATE |= {"gb18030": "gb18030_chinese_ci", "binary": "binary"}
_ZERO_TIME = "0000-00-00 00:00:00"
_ALL_BITS = 64  # of AUTO_RANDOM's range

_TEXTS = frozenset({
    MySQLType.STRING, MySQLType.VARCHAR, MySQLType.VAR_STRING, MySQLType.TINY_BLOB, MySQLType.BLOB, MySQLType.MEDIUM_BLOB,
    MySQLType.LONG_BLOB,
})  # fmt: skip
_INTEGERS = frozenset({MySQLType.TINY, MySQLType.SHORT, MySQLType.INT24, MySQLType.LONG, MySQLType.LONGLONG})
_FRACTIONAL = frozenset({MySQLType.TIMESTAMP, MySQLType.DATETIME, MySQLType.DURATION})
_MOMENTS = frozenset({MySQLType.TIMESTAMP, MySQLType.DATETIME, MySQLType.DATE, MySQLType.NEWDATE})
"""Types whose default may be CURRENT_TIMESTAMP. In a text column the same words are an ordinary text."""
_CHARS = frozenset({MySQLType.STRING, MySQLType.VARCHAR, MySQLType.VAR_STRING})
_DEFAULT_LENGTH = {**DEFAULT_LENGTHS, MySQLType.YEAR: 4, MySQLType.VAR_STRING: 255}
_DISTANCES = {"L2": "VEC_L2_DISTANCE", "COSINE": "VEC_COSINE_DISTANCE", "INNER_PRODUCT": "VEC_NEGATIVE_INNER_PRODUCT"}
_ESCAPES = str.maketrans({"\\": "\\\\", "'": "''", "\0": "\\0", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z"})


def create_database(database: DBInfo) -> str:
    """Return CREATE DATABASE IF NOT EXISTS with the character set."""
    charset = f" DEFAULT CHARACTER SET {database.charset}" if database.charset else ""
    collate = f" COLLATE {database.collate}" if database.collate else ""
    return f"CREATE DATABASE IF NOT EXISTS {quote_name(database.name)}" + (f" /*!40100{charset}{collate} */" if charset or collate else "")


def create_table(schema: str, info: TableInfo, zone: tzinfo, *, if_not_exists: bool = False) -> str:
    """Return the statement of a base table. Defaults of TIMESTAMP columns are written in `zone`; TiDB uses the session's zone."""
    lines = [_column(c, info, zone) for c in info.public_columns if not c.hidden]
    if info.pk_column is not None:
        lines.append(f"PRIMARY KEY ({quote_name(info.pk_column.name)}) /*T![clustered_index] CLUSTERED */")
    lines += [_index(index, info) for index in info.public_indices]
    lines += [_foreign_key(key) for key in info.details.foreign_keys]
    lines += [_check(check) for check in info.details.checks]
    head = f"CREATE TABLE {'IF NOT EXISTS ' if if_not_exists else ''}{quote_name(schema)}.{quote_name(info.name)} (\n"
    return head + ",\n".join(f"  {line}" for line in lines) + "\n)" + "".join(f" {o}" for o in _options(info)) + _partitions(info.partition)


def add_column(schema: str, info: TableInfo, column: ColumnInfo, zone: tzinfo) -> str:
    """Return the statement that adds a column to a table that lacks it."""
    return f"ALTER TABLE {quote_name(schema)}.{quote_name(info.name)} ADD COLUMN {_column(column, info, zone)}"


def quoted(text: str) -> str:
    """Return a string as SHOW CREATE TABLE prints it."""
    return f"'{text.translate(_ESCAPES)}'"


def type_text(column: ColumnInfo) -> str:
    """Return the type with its length, without character set."""
    return type_name(column) + _length(column) + attributes(column)


def _length(column: ColumnInfo) -> str:
    tp, decimal = column.tp, column.decimal
    length = _DEFAULT_LENGTH.get(tp, UNSPECIFIED) if column.flen == UNSPECIFIED else column.flen
    if tp in (MySQLType.ENUM, MySQLType.SET):
        return "(" + ",".join(map(quoted, column.elems)) + ")"
    if tp in _FRACTIONAL:
        return f"({decimal})" if decimal > 0 else ""
    if tp in (MySQLType.FLOAT, MySQLType.DOUBLE):
        return f"({length},{decimal})" if decimal > 0 else ""
    if tp == MySQLType.NEWDECIMAL:
        return f"({length},{max(decimal, 0)})"
    if tp in _INTEGERS:  # widths mean nothing but for zeros in front, and for TINYINT(1), which clients take for a boolean
        return f"({length})" if column.zerofill or (tp == MySQLType.TINY and length == 1) else ""
    if tp in _CHARS or tp in (MySQLType.BIT, MySQLType.YEAR):
        return f"({length})"
    return f"({column.flen})" if tp == MySQLType.VECTOR and column.flen != UNSPECIFIED else ""


def _column(column: ColumnInfo, info: TableInfo, zone: tzinfo) -> str:
    words = [quote_name(column.name), type_text(column), *_character_set(column, info)]
    if column.is_generated:
        words.append(f"GENERATED ALWAYS AS ({column.generated_expr}) {'STORED' if column.generated_stored else 'VIRTUAL'}")
    if column.flag & ColumnFlag.AUTO_INCREMENT:
        words.append("NOT NULL AUTO_INCREMENT")
    else:
        words += ["NOT NULL"] if column.not_null else []
        words += _default(column, zone)
        if column.flag & ColumnFlag.ON_UPDATE_NOW:
            words.append("ON UPDATE CURRENT_TIMESTAMP" + (f"({column.decimal})" if column.decimal > 0 else ""))
    words += _auto_random(column, info)
    words += [f"COMMENT {quoted(column.comment)}"] if column.comment else []
    return " ".join(words)


def _character_set(column: ColumnInfo, info: TableInfo) -> Iterator[str]:
    """Yield the column's character set if the table has another, and its collation if that is not the default of the character set."""
    if (column.tp not in _TEXTS and column.tp not in (MySQLType.ENUM, MySQLType.SET)) or column.is_binary:
        return
    charset = info.charset or "utf8mb4"
    collate = info.collate or _DEFAULT_COLLATE.get(charset, "")
    if column.charset != charset:
        yield f"CHARACTER SET {column.charset}"
    if column.collate not in (collate, "") or column.collate not in (_DEFAULT_COLLATE.get(column.charset, column.collate), ""):
        yield f"COLLATE {column.collate}"


def _default(column: ColumnInfo, zone: tzinfo) -> Iterator[str]:
    if column.flag & ColumnFlag.NO_DEFAULT_VALUE or column.is_generated:
        return
    value = column.default_bit if column.tp == MySQLType.BIT and column.default_bit is not None else column.default
    digits = f"({column.decimal})" if column.decimal > 0 else ""
    if value is None:
        if not column.not_null:
            yield "NULL DEFAULT NULL" if column.tp == MySQLType.TIMESTAMP else "DEFAULT NULL"
    elif isinstance(value, bytes):
        yield f"DEFAULT b'{int.from_bytes(value, 'big'):b}'"
    elif value == "CURRENT_TIMESTAMP" and column.tp in _MOMENTS and not column.default_is_expr:
        yield f"DEFAULT CURRENT_TIMESTAMP{digits}"
    elif value == "CURRENT_DATE" and column.tp in _MOMENTS and not column.default_is_expr:
        yield f"DEFAULT (CURRENT_DATE{digits})"
    elif column.default_is_expr:
        yield f"DEFAULT ({value})"
    else:
        yield f"DEFAULT {quoted(_default_text(column, value, zone))}"


def _default_text(column: ColumnInfo, value: object, zone: tzinfo) -> str:
    text = str(value)
    if column.tp != MySQLType.TIMESTAMP or text.startswith(_ZERO_TIME) or column.version < 1:
        return text
    return format_datetime(in_zone(parse_datetime(text), zone), max(column.decimal, 0))  # kept in UTC


def _auto_random(column: ColumnInfo, info: TableInfo) -> Iterator[str]:
    bits, of = info.details.auto_random_bits, info.details.auto_random_range_bits
    first = info.primary_index.columns[0].offset if info.is_common_handle and info.primary_index is not None else None
    if bits and (column is info.pk_column or column.offset == first):
        yield f"/*T![auto_rand] AUTO_RANDOM({bits}{f', {of}' if of not in (0, _ALL_BITS) else ''}) */"


def _index(index: IndexInfo, info: TableInfo) -> str:
    parts = []
    for part in index.columns:
        column = info.columns[part.offset]
        length = f"({part.length})" if part.length != UNSPECIFIED else ""
        parts.append(f"({column.generated_expr})" if column.hidden else quote_name(part.name) + length)
    inside = ",".join(parts)
    if index.distance:
        inside = f"({_DISTANCES.get(index.distance, index.distance)}({inside}))"
    words = [_kind(index), f"({inside})"]
    words += [f"WHERE {index.condition}"] if index.condition else []
    words += ["/*!80000 INVISIBLE */"] if index.invisible else []
    words += [f"COMMENT {quoted(index.comment)}"] if index.comment else []
    if index.primary:
        words.append(f"/*T![clustered_index] {'CLUSTERED' if info.is_common_handle or info.pk_is_handle else 'NONCLUSTERED'} */")
    words += ["/*T![global_index] GLOBAL */"] if index.is_global else []
    return " ".join(words)


def _kind(index: IndexInfo) -> str:
    if index.primary:
        return "PRIMARY KEY"
    kind = "VECTOR INDEX" if index.distance else "UNIQUE KEY" if index.unique else "KEY"
    return f"{kind} {quote_name(index.name)}"


def _foreign_key(key: ForeignKey) -> str:
    table = ".".join(quote_name(name) for name in (key.schema, key.table) if name)
    text = f"CONSTRAINT {quote_name(key.name)} FOREIGN KEY ({_names(key.columns)}) REFERENCES {table} ({_names(key.references)})"
    text += f" ON DELETE {key.on_delete}" if key.on_delete else ""
    return text + (f" ON UPDATE {key.on_update}" if key.on_update else "")


def _check(check: Check) -> str:
    return f"CONSTRAINT {quote_name(check.name)} CHECK (({check.expr}))" + ("" if check.enforced else " /*!80016 NOT ENFORCED */")


def _names(names: Iterable[str]) -> str:
    return ",".join(map(quote_name, names))


def _options(info: TableInfo) -> Iterator[str]:
    charset, details = info.charset or "utf8mb4", info.details
    collate = info.collate or _DEFAULT_COLLATE.get(charset, "")
    yield "ENGINE=InnoDB"
    yield f"DEFAULT CHARSET={charset}" + (f" COLLATE={collate}" if collate not in ("", "binary") else "")
    if details.compression:
        yield f"COMPRESSION='{details.compression}'"
    if details.auto_id_cache:
        yield f"/*T![auto_id_cache] AUTO_ID_CACHE={details.auto_id_cache} */"
    yield from _sharding(details)
    if info.comment:
        yield f"COMMENT={quoted(info.comment)}"
    if details.placement_policy:
        yield _placement(details.placement_policy)
    if details.ttl is not None:
        yield from _ttl(details.ttl)


def _sharding(details: TableDetails) -> Iterator[str]:
    split = f"PRE_SPLIT_REGIONS={details.pre_split_regions} " if details.pre_split_regions else ""
    if details.shard_row_id_bits:
        yield f"/*T! SHARD_ROW_ID_BITS={details.shard_row_id_bits} {split}*/"
    elif details.auto_random_bits and split:
        yield f"/*T! {split}*/"


def _ttl(ttl: Ttl) -> Iterator[str]:
    yield f"/*T![ttl] TTL={quote_name(ttl.column)} + INTERVAL {ttl.interval} {ttl.unit} */"
    yield f"/*T![ttl] TTL_ENABLE='{'ON' if ttl.enabled else 'OFF'}' */"
    if ttl.job_interval:
        yield f"/*T![ttl] TTL_JOB_INTERVAL='{ttl.job_interval}' */"


def _placement(policy: str) -> str:
    return f"/*T![placement] PLACEMENT POLICY={quote_name(policy)} */"


# Partitions


def _partitions(partition: PartitionInfo | None) -> str:
    if partition is None:
        return ""
    kind = partition.type.name if isinstance(partition.type, PartitionType) else str(partition.type)
    by = f"({partition.expr})"
    if partition.columns or partition.type == PartitionType.KEY:
        by = f"{'' if partition.type == PartitionType.KEY else 'COLUMNS'}({_names(partition.columns)})"
    head = f"\nPARTITION BY {kind} {by}"
    if partition.type in (PartitionType.HASH, PartitionType.KEY) and _are_numbered(partition.definitions):
        return f"{head} PARTITIONS {len(partition.definitions)}"
    return f"{head}\n(" + ",\n ".join(_definition(d, partition) for d in partition.definitions) + ")"


def _are_numbered(definitions: Sequence[PartitionDefinition]) -> bool:
    """Return whether the definitions are those that TiDB makes for `PARTITIONS n`."""
    return all(d.name == f"p{i}" and not d.comment and not d.placement_policy for i, d in enumerate(definitions))


def _definition(definition: PartitionDefinition, partition: PartitionInfo) -> str:
    words = [f"PARTITION {quote_name(definition.name)}"]
    if partition.type == PartitionType.RANGE:
        words.append(f"VALUES LESS THAN ({','.join(map(_literal, definition.less_than))})")
    elif partition.type == PartitionType.LIST:
        words.append(_in_values(definition.in_values))
    words += [f"COMMENT {quoted(definition.comment)}"] if definition.comment else []
    words += [_placement(definition.placement_policy)] if definition.placement_policy else []
    return " ".join(words)


def _in_values(rows: Sequence[Sequence[str]]) -> str:
    if not rows or (len(rows) == 1 and [value.upper() for value in rows[0]] == ["DEFAULT"]):
        return "DEFAULT"
    texts = [",".join(map(_literal, row)) for row in rows]
    return "VALUES IN (" + ",".join(f"({text})" if len(row) > 1 else text for row, text in zip(rows, texts, strict=True)) + ")"


def _literal(text: str) -> str:
    """Return a literal as the description has it, or as a hexadecimal number where it cannot be printed."""
    if text.isprintable() or not text.startswith("'"):
        return text
    return "0x" + text[1:-1].replace("''", "'").encode().hex()
