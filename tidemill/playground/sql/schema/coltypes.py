"""Column types: from a type as written to TiDB's field type (type code, flags, lengths, charset), as its table descriptions hold it."""

from __future__ import annotations

from typing import Any

from tidemill.errors import SqlError
from tidemill.playground.sql.parse.ast import TypeSpec
from tidemill.tidb.schema.codes import ColumnFlag, MySQLType

Json = dict[str, Any]

DEFAULT_CHARSET = "utf8mb4"
DEFAULT_COLLATIONS = {
    "utf8mb4": "utf8mb4_bin",
    "utf8": "utf8_bin",
    "latin1": "latin1_bin",
    "ascii": "ascii_bin",
    "gbk": "gbk_chinese_ci",
    "binary": "binary",
}
UNSPECIFIED = -1

_INTEGERS = {  # type, length, length when unsigned
    "tinyint": (MySQLType.TINY, 4, 3),
    "smallint": (MySQLType.SHORT, 6, 5),
    "mediumint": (MySQLType.INT24, 9, 8),
    "int": (MySQLType.LONG, 11, 10),
    "bigint": (MySQLType.LONGLONG, 20, 20),
}
_TIMES = {
    "date": (MySQLType.DATE, 10),
    "datetime": (MySQLType.DATETIME, 19),
    "timestamp": (MySQLType.TIMESTAMP, 19),
    "time": (MySQLType.DURATION, 10),
}
_TEXTS = {
    "tinytext": (MySQLType.TINY_BLOB, 255), "text": (MySQLType.BLOB, 65535),
    "mediumtext": (MySQLType.MEDIUM_BLOB, 16777215), "longtext": (MySQLType.LONG_BLOB, 4294967295),
}  # fmt: skip
_BLOBS = {name.replace("text", "blob"): kind for name, kind in _TEXTS.items()}


def charset_of(charset: str, collate: str, inherited: tuple[str, str]) -> tuple[str, str]:
    """Charset and collation from what is given (empty: not given) and what is inherited. Raises SqlError."""
    if collate and not charset:
        charset = "binary" if collate == "binary" else collate.partition("_")[0]
    if not charset:
        return inherited
    charset = {"utf8mb3": "utf8"}.get(charset, charset)
    if charset not in DEFAULT_COLLATIONS:
        raise SqlError(f"unknown character set {charset}")
    return charset, collate or DEFAULT_COLLATIONS[charset]


def field_type(spec: TypeSpec, inherited: tuple[str, str]) -> Json:
    """The field type of a column, without the flags of its keys and options. `inherited` is the table's charset and collation.

    Raises SqlError for an unknown type.
    """
    name, arguments = spec.name, spec.arguments
    if name in _INTEGERS:
        code, signed, unsigned = _INTEGERS[name]
        return _numeric(spec, code, arguments[0] if arguments else (unsigned if spec.unsigned else signed), 0)
    if name == "boolean":
        return _numeric(spec, MySQLType.TINY, 1, 0)
    if name in ("float", "double"):
        code = MySQLType.FLOAT if name == "float" and not (arguments and len(arguments) == 1 and arguments[0] > 24) else MySQLType.DOUBLE
        length, decimal = arguments if len(arguments) == 2 else (12 if code == MySQLType.FLOAT else 22, UNSPECIFIED)
        return _numeric(spec, code, length, decimal)
    if name == "decimal":
        length, decimal = (*arguments, 0)[:2] if arguments else (10, 0)
        return _numeric(spec, MySQLType.NEWDECIMAL, length, decimal)
    if name == "bit":
        return _field(MySQLType.BIT, ColumnFlag.UNSIGNED, arguments[0] if arguments else 1, 0)
    if name == "year":
        return _field(MySQLType.YEAR, ColumnFlag.UNSIGNED | ColumnFlag.ZEROFILL, 4, 0)
    if name in _TIMES:
        code, length = _TIMES[name]
        fsp = arguments[0] if arguments else 0
        return _field(code, ColumnFlag.BINARY, length + (fsp + 1 if fsp else 0), fsp)
    if name == "json":
        return _field(MySQLType.JSON, ColumnFlag.BINARY, 4294967295, 0)
    if name == "vector":
        return _field(MySQLType.VECTOR, ColumnFlag.BINARY, arguments[0] if arguments else UNSPECIFIED, 0)
    if name in ("binary", "varbinary"):
        return _field(MySQLType.STRING if name == "binary" else MySQLType.VARCHAR, ColumnFlag.BINARY, arguments[0] if arguments else 1, 0)
    if name in _BLOBS:
        code, length = _BLOBS[name]
        return _field(code, ColumnFlag.BINARY, length, 0)
    return _text(spec, inherited)


def _text(spec: TypeSpec, inherited: tuple[str, str]) -> Json:
    name, arguments = spec.name, spec.arguments
    if spec.collate == "binary-collation":
        charset, _ = charset_of(spec.charset, "", inherited)
        collate = f"{charset}_bin"
    else:
        charset, collate = charset_of(spec.charset, spec.collate, inherited)
    if name in _TEXTS:
        code, length = _TEXTS[name]
        if charset == "binary":
            return _field(code, ColumnFlag.BINARY, length, 0)
    elif name in ("char", "varchar"):
        code, length = (MySQLType.STRING if name == "char" else MySQLType.VARCHAR), arguments[0] if arguments else 1
        if charset == "binary":
            return _field(code, ColumnFlag.BINARY, length, 0)
    elif name == "enum":
        code, length = MySQLType.ENUM, max(map(len, spec.elems))
    elif name == "set":
        code, length = MySQLType.SET, sum(map(len, spec.elems)) + len(spec.elems) - 1
    else:
        raise SqlError(f"unknown type {name}")
    return _field(code, ColumnFlag(0), length, 0, charset, collate, spec.elems)


def _numeric(spec: TypeSpec, code: MySQLType, length: int, decimal: int) -> Json:
    flags = ColumnFlag(0)
    if spec.unsigned:
        flags |= ColumnFlag.UNSIGNED
    if spec.zerofill:
        flags |= ColumnFlag.UNSIGNED | ColumnFlag.ZEROFILL
    return _field(code, flags, length, decimal)


def _field(
    code: MySQLType,
    flags: ColumnFlag,
    length: int,
    decimal: int,
    charset: str = "binary",
    collate: str = "binary",
    elems: tuple[str, ...] = (),
) -> Json:
    return {
        "Tp": int(code), "Flag": int(flags), "Flen": length, "Decimal": decimal, "Charset": charset, "Collate": collate,
        "Elems": list(elems) or None, "ElemsIsBinaryLit": [False] * len(elems) or None, "Array": False,
    }  # fmt: skip
