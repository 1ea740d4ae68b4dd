"""Table descriptions (TiDB's TableInfo as JSON) from definitions, and their parts: columns, indexes, partitions."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

from tidemill.errors import SqlError
from tidemill.playground.sql.parse import ast
from tidemill.playground.sql.parse.expressions import Scope, evaluate, text_of, to_text
from tidemill.playground.sql.rows.values import default_text
from tidemill.playground.sql.schema.coltypes import charset_of, field_type
from tidemill.tidb.schema.codes import ColumnFlag, MySQLType, PartitionType, SchemaState
from tidemill.tidb.schema.model import ColumnInfo

Json = dict[str, Any]

COLUMN_VERSION = 2
TABLE_VERSION = 5
_INTEGER_TYPES = (MySQLType.TINY, MySQLType.SHORT, MySQLType.INT24, MySQLType.LONG, MySQLType.LONGLONG)
_PARTITION_TYPES = {"range": PartitionType.RANGE, "hash": PartitionType.HASH, "list": PartitionType.LIST, "key": PartitionType.KEY}


def ci_name(name: str) -> Json:
    """A name with its lower-case form."""
    return {"O": name, "L": name.lower()}


# Columns


def column_json(definition: ast.ColumnDef, column_id: int, offset: int, inherited: tuple[str, str], now: str) -> Json:
    """A public column. `now` is the moment that CURRENT_TIMESTAMP stands for in an origin default.

    Raises SqlError.
    """
    kind = field_type(definition.type, inherited)
    flags = kind["Flag"]
    if definition.not_null or definition.auto_random:
        flags |= ColumnFlag.NOT_NULL
    if definition.primary:
        flags |= ColumnFlag.NOT_NULL | ColumnFlag.PRIMARY_KEY
    if definition.unique:
        flags |= ColumnFlag.UNIQUE_KEY
    if definition.auto_increment:
        flags |= ColumnFlag.AUTO_INCREMENT
    if definition.on_update_now:
        flags |= ColumnFlag.ON_UPDATE_NOW
    if definition.default is None and flags & ColumnFlag.NOT_NULL and not definition.auto_increment:
        flags |= ColumnFlag.NO_DEFAULT_VALUE
    kind["Flag"] = int(flags)
    column: Json = {
        "id": column_id, "name": ci_name(definition.name), "offset": offset, "origin_default": None, "origin_default_bit": None,
        "default": None, "default_bit": None, "default_is_expr": False,
        "generated_expr_string": "" if definition.generated is None else to_text(definition.generated),
        "generated_stored": definition.stored,
        "dependences": None if definition.generated is None else {name: {} for name in columns_in(definition.generated)},
        "type": kind, "state": int(SchemaState.PUBLIC), "comment": definition.comment, "hidden": False, "change_state_info": None,
        "version": COLUMN_VERSION,
    }  # fmt: skip
    set_default(column, definition.default, now)
    return column


def set_default(column: Json, default: ast.Expr | None, now: str) -> None:
    """Give a column its DEFAULT, checked against its type. Raises SqlError."""
    column["default"] = column["default_bit"] = None
    if default is None:
        return
    if isinstance(default, ast.Call) and default.name == "now":
        column["default"] = "CURRENT_TIMESTAMP"
        return
    value = evaluate(default, Scope({}, now))
    if value is None:
        return
    info = ColumnInfo.from_json(column)
    if info.tp == MySQLType.BIT:
        data = value if isinstance(value, bytes) else int(text_of(value)).to_bytes((info.flen + 7) // 8, "big")
        column["default"] = data.decode("latin-1")
        column["default_bit"] = base64.b64encode(data).decode()
        return
    column["default"] = default_text(info, value)


def origin_default(column: Json, now: str) -> None:
    """Give an added column the value that older rows have. `now` is the statement's moment in UTC."""
    if column["default"] == "CURRENT_TIMESTAMP":
        column["origin_default"] = now[: column["type"]["Flen"]]
    elif column["default"] is not None:
        column["origin_default"], column["origin_default_bit"] = column["default"], column["default_bit"]
    elif column["type"]["Flag"] & ColumnFlag.NOT_NULL:
        zero = _zero_text(ColumnInfo.from_json(column))
        if zero is not None:
            column["origin_default"] = zero


def _zero_text(info: ColumnInfo) -> str | None:
    """What TiDB notes for a NOT NULL column without default: the zero value as text, for some types."""
    match info.tp:
        case MySQLType.ENUM:
            return info.elems[0]
        case MySQLType.DATE | MySQLType.NEWDATE:
            return "0000-00-00"
        case MySQLType.DATETIME | MySQLType.TIMESTAMP:
            return "0000-00-00 00:00:00"
        case MySQLType.DURATION:
            return "00:00:00"
        case MySQLType.STRING | MySQLType.VARCHAR | MySQLType.SET:
            return ""
        case MySQLType.JSON | MySQLType.VECTOR | MySQLType.BIT:
            return None
        case MySQLType.TINY_BLOB | MySQLType.BLOB | MySQLType.MEDIUM_BLOB | MySQLType.LONG_BLOB:
            return ""
    return "0"


def columns_in(expr: ast.Expr) -> list[str]:
    """Lower-case names of the columns that an expression reads."""
    match expr:
        case ast.ColumnRef(name):
            return [name.lower()]
        case ast.Unary(_, operand) | ast.IsNull(operand):
            return columns_in(operand)
        case ast.Binary(_, left, right):
            return columns_in(left) + columns_in(right)
        case ast.Call(_, arguments):
            return [name for argument in arguments for name in columns_in(argument)]
        case ast.InList(operand, values):
            return columns_in(operand) + [name for value in values for name in columns_in(value)]
    return []


# Indexes


def index_json(key: ast.KeyDef, index_id: int, name: str, columns: Sequence[Json], state: SchemaState = SchemaState.PUBLIC) -> Json:
    """An index over columns of a table. Raises SqlError for an unknown column."""
    parts = []
    for column_name, length in key.columns:
        column = find_column(columns, column_name)
        whole = length < 0 or (length >= column["type"]["Flen"] and column["type"]["Tp"] in (MySQLType.VARCHAR, MySQLType.STRING))
        parts.append({"name": dict(column["name"]), "offset": column["offset"], "length": -1 if whole else length})
    return {
        "id": index_id, "idx_name": ci_name(name), "tbl_name": ci_name(""), "idx_cols": parts, "state": int(state), "backfill_state": 0,
        "comment": "", "index_type": 1, "is_unique": key.kind is not ast.KeyKind.INDEX, "is_primary": key.kind is ast.KeyKind.PRIMARY,
        "is_invisible": False, "is_global": False, "mv_index": False, "vector_index": None,
    }  # fmt: skip


def index_name(key: ast.KeyDef, taken: set[str]) -> str:
    """The name of an index: as given, else of its first column, with a number if that is taken."""
    if key.kind is ast.KeyKind.PRIMARY:
        return "PRIMARY"
    if key.name:
        return key.name
    base = name = key.columns[0][0]
    number = 2
    while name.lower() in taken:
        name, number = f"{base}_{number}", number + 1
    return name


def find_column(columns: Sequence[Json], name: str) -> Json:
    """A column by its name. Raises SqlError."""
    for column in columns:
        if column["name"]["L"] == name.lower():
            return column
    raise SqlError(f"unknown column {name}")


def mark_keys(columns: Sequence[Json], indices: Sequence[Json]) -> None:
    """Set the columns' key flags from the indexes."""
    for column in columns:
        column["type"]["Flag"] &= ~int(ColumnFlag.UNIQUE_KEY | ColumnFlag.MULTIPLE_KEY)
    by_offset = {column["offset"]: column for column in columns}
    for index in indices:
        parts = index["idx_cols"]
        if index["is_primary"]:
            for part in parts:
                flags = by_offset[part["offset"]]["type"]["Flag"] | ColumnFlag.PRIMARY_KEY | ColumnFlag.NOT_NULL
                if by_offset[part["offset"]]["default"] is None and not flags & ColumnFlag.AUTO_INCREMENT:
                    flags |= ColumnFlag.NO_DEFAULT_VALUE
                by_offset[part["offset"]]["type"]["Flag"] = int(flags)
            continue
        alone = index["is_unique"] and len(parts) == 1
        by_offset[parts[0]["offset"]]["type"]["Flag"] |= int(ColumnFlag.UNIQUE_KEY if alone else ColumnFlag.MULTIPLE_KEY)


# Partitions


def definition_json(definition: ast.PartitionDef, partition_id: int) -> Json:
    """One partition."""
    less_than = [("MAXVALUE" if bound is None else _bound_text(bound)) for bound in definition.less_than] or None
    in_values = [[_bound_text(v) for v in values] for values in definition.in_values] or None
    return {"id": partition_id, "name": ci_name(definition.name), "less_than": less_than, "in_values": in_values, "policy_ref_info": None}


def _bound_text(expr: ast.Expr) -> str:
    value = evaluate(expr, Scope({}))
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return "NULL" if value is None else text_of(value)


def partition_json(partition: ast.PartitionBy, columns: Sequence[Json], allocate: Callable[[], int]) -> Json:
    """How a table is partitioned, with fresh ids for its partitions. Raises SqlError."""
    definitions = partition.definitions or tuple(ast.PartitionDef(f"p{n}") for n in range(partition.count))
    names = [find_column(columns, name)["name"] for name in partition.columns]
    expr = "" if partition.expr is None else to_text(partition.expr)
    return {
        "type": int(_PARTITION_TYPES[partition.kind]), "expr": expr, "columns": [dict(n) for n in names] or None, "enable": True,
        "is_empty_columns": False, "definitions": [definition_json(d, allocate()) for d in definitions], "adding_definitions": None,
        "dropping_definitions": None, "states": None, "num": len(definitions), "ddl_state": 0,
    }  # fmt: skip


# Tables


def table_json(statement: ast.CreateTable, table_id: int, inherited: tuple[str, str], allocate: Callable[[], int], now: str) -> Json:
    """The description of a new table. Raises SqlError."""
    charset, collate = charset_of(statement.charset, statement.collate, inherited)
    columns = [column_json(c, i + 1, i, (charset, collate), now) for i, c in enumerate(statement.columns)]
    if len({c["name"]["L"] for c in columns}) < len(columns):
        raise SqlError(f"table {statement.table.name} names a column twice")
    keys = [*_column_keys(statement.columns), *statement.keys]
    primary = next((k for k in keys if k.kind is ast.KeyKind.PRIMARY), None)
    table = _blank(table_id, statement.table.name, charset, collate, columns)
    indices: list[Json] = []
    if primary is not None and primary.clustered is not False:
        if _is_int_handle(primary, columns):
            table["pk_is_handle"] = True
            keys = [k for k in keys if k is not primary]
        else:
            table["is_common_handle"], table["common_handle_version"] = True, 1
            keys = [primary, *(k for k in keys if k is not primary)]
    taken: set[str] = set()
    for key in keys:
        name = index_name(key, taken)
        taken.add(name.lower())
        indices.append(index_json(key, len(indices) + 1, name, columns))
    mark_keys(columns, indices)
    if table["pk_is_handle"] and primary is not None:
        column = find_column(columns, primary.columns[0][0])
        flags = column["type"]["Flag"] | ColumnFlag.PRIMARY_KEY | ColumnFlag.NOT_NULL
        column["type"]["Flag"] = int(flags | (0 if flags & ColumnFlag.AUTO_INCREMENT else ColumnFlag.NO_DEFAULT_VALUE))
    table["index_info"] = indices or None
    table["max_idx_id"] = len(indices)
    table["comment"] = statement.comment
    random = next((c.auto_random for c in statement.columns if c.auto_random), 0)
    table["auto_random_bits"], table["auto_random_range_bits"] = random, 64 if random else 0
    if statement.partition is not None:
        table["partition"] = partition_json(statement.partition, columns, allocate)
    return table


def _column_keys(columns: Sequence[ast.ColumnDef]) -> list[ast.KeyDef]:
    keys = []
    for column in columns:
        if column.primary:
            keys.append(ast.KeyDef("", ast.KeyKind.PRIMARY, ((column.name, -1),), column.clustered))
        if column.unique:
            keys.append(ast.KeyDef(column.name, ast.KeyKind.UNIQUE, ((column.name, -1),)))
    return keys


def _is_int_handle(primary: ast.KeyDef, columns: Sequence[Json]) -> bool:
    return len(primary.columns) == 1 and find_column(columns, primary.columns[0][0])["type"]["Tp"] in _INTEGER_TYPES


def _blank(table_id: int, name: str, charset: str, collate: str, columns: list[Json]) -> Json:
    return {
        "id": table_id, "name": ci_name(name), "charset": charset, "collate": collate, "cols": columns, "index_info": None,
        "constraint_info": None, "fk_info": None, "state": int(SchemaState.PUBLIC), "pk_is_handle": False, "is_common_handle": False,
        "common_handle_version": 0, "comment": "", "auto_inc_id": 0, "auto_id_cache": 0, "auto_rand_id": 0, "max_col_id": len(columns),
        "max_idx_id": 0, "max_fk_id": 0, "max_cst_id": 0, "update_timestamp": 0, "ShardRowIDBits": 0, "max_shard_row_id_bits": 0,
        "auto_random_bits": 0, "auto_random_range_bits": 0, "pre_split_regions": 0, "partition": None, "compression": "", "view": None,
        "sequence": None, "Lock": None, "version": TABLE_VERSION, "tiflash_replica": None, "is_columnar": False, "temp_table_type": 0,
        "cache_table_status": 0, "policy_ref_info": None, "stats_options": None, "exchange_partition_info": None, "ttl_info": None,
        "revision": 0,
    }  # fmt: skip


def view_json(table_id: int, name: str, select: str, columns: Sequence[str], charset: tuple[str, str]) -> Json:
    """The description of a view: its text and the names of its columns, which have no types."""
    nothing = {
        "Tp": 0,
        "Flag": 0,
        "Flen": 0,
        "Decimal": 0,
        "Charset": "",
        "Collate": "",
        "Elems": None,
        "ElemsIsBinaryLit": None,
        "Array": False,
    }
    described = [
        {"id": i + 1, "name": ci_name(c), "offset": i, "origin_default": None, "origin_default_bit": None, "default": None,
         "default_bit": None, "default_is_expr": False, "generated_expr_string": "", "generated_stored": False, "dependences": None,
         "type": dict(nothing), "state": int(SchemaState.PUBLIC), "comment": "", "hidden": False, "change_state_info": None, "version": 0}
        for i, c in enumerate(columns)
    ]  # fmt: skip
    table = _blank(table_id, name, *charset, described)
    definer = {"Username": "root", "Hostname": "%", "CurrentUser": False, "AuthUsername": "root", "AuthHostname": "%"}
    table["view"] = {
        "view_algorithm": 0, "view_definer": definer, "view_security": 0, "view_select": select, "view_checkoption": 1, "view_cols": None,
    }  # fmt: skip
    return table
