"""A column's definition in the text of a DDL → ColumnInfo, with the members that values depend on."""

from __future__ import annotations

from datetime import datetime

from tidemill.tidb.ddltext.cursor import Cursor
from tidemill.tidb.schema.codes import ColumnFlag, MySQLType, SchemaState
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tidb.sql.lexer import Kind

_INTEGERS = {
    "TINYINT": MySQLType.TINY, "INT1": MySQLType.TINY, "BOOL": MySQLType.TINY, "BOOLEAN": MySQLType.TINY,
    "SMALLINT": MySQLType.SHORT, "INT2": MySQLType.SHORT, "MEDIUMINT": MySQLType.INT24, "MIDDLEINT": MySQLType.INT24,
    "INT3": MySQLType.INT24, "INT": MySQLType.LONG, "INTEGER": MySQLType.LONG, "INT4": MySQLType.LONG,
    "BIGINT": MySQLType.LONGLONG, "INT8": MySQLType.LONGLONG, "YEAR": MySQLType.YEAR, "BIT": MySQLType.BIT,
}  # fmt: skip
_NUMBERS = {
    "DECIMAL": MySQLType.NEWDECIMAL, "DEC": MySQLType.NEWDECIMAL, "NUMERIC": MySQLType.NEWDECIMAL, "FIXED": MySQLType.NEWDECIMAL,
    "FLOAT": MySQLType.FLOAT, "FLOAT4": MySQLType.FLOAT, "DOUBLE": MySQLType.DOUBLE, "FLOAT8": MySQLType.DOUBLE, "REAL": MySQLType.DOUBLE,
}  # fmt: skip
_TIMES = {"DATE": MySQLType.DATE, "DATETIME": MySQLType.DATETIME, "TIMESTAMP": MySQLType.TIMESTAMP, "TIME": MySQLType.DURATION}
_BINARIES = {
    "BINARY": MySQLType.STRING, "VARBINARY": MySQLType.VARCHAR, "TINYBLOB": MySQLType.TINY_BLOB, "BLOB": MySQLType.BLOB,
    "MEDIUMBLOB": MySQLType.MEDIUM_BLOB, "LONGBLOB": MySQLType.LONG_BLOB, "JSON": MySQLType.JSON, "VECTOR": MySQLType.VECTOR,
}  # fmt: skip
_TEXTS = {
    "CHAR": MySQLType.STRING, "CHARACTER": MySQLType.STRING, "VARCHAR": MySQLType.VARCHAR, "TINYTEXT": MySQLType.TINY_BLOB,
    "TEXT": MySQLType.BLOB, "MEDIUMTEXT": MySQLType.MEDIUM_BLOB, "LONGTEXT": MySQLType.LONG_BLOB,
    "ENUM": MySQLType.ENUM, "SET": MySQLType.SET,
}  # fmt: skip
_TYPES = _INTEGERS | _NUMBERS | _TIMES | _BINARIES | _TEXTS
_STRINGS = frozenset(_TEXTS) - {"ENUM", "SET"}
_NOW = frozenset({"CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP"})
_TODAY = frozenset({"CURRENT_DATE", "CURDATE"})
_DECIMAL_DIGITS = 10
_MAX_SINGLE_PRECISION = 24


def new_column(
    name: str,
    tp: MySQLType | int,
    *,
    flag: int = 0,
    flen: int = -1,
    decimal: int = -1,
    charset: str = "binary",
    elems: tuple[str, ...] = (),
    origin_default: str | None = None,
    origin_default_bit: bytes | None = None,
    virtual: bool = False,
) -> ColumnInfo:
    """Return a public column. Members that do not matter for its values are empty."""
    return ColumnInfo(
        id=0, name=name, offset=0, tp=tp, flag=flag, flen=flen, decimal=decimal, charset=charset, collate="", elems=elems,
        default=None, default_bit=None, default_is_expr=False, origin_default=origin_default, origin_default_bit=origin_default_bit,
        generated_expr="?" if virtual else "", generated_stored=False, hidden=False, state=SchemaState.PUBLIC, comment="", array=False,
        version=0,
    )  # fmt: skip


def skip(cursor: Cursor) -> None:
    """Skip one token, or all tokens in a pair of parentheses."""
    if not cursor.at("("):
        cursor.next()
        return
    depth = 0
    while not cursor.at_end():
        depth += (cursor.token.upper == "(") - (cursor.token.upper == ")")
        cursor.next()
        if not depth:
            return


def at_item_end(cursor: Cursor) -> bool:
    """Return whether a comma, a closing parenthesis or the end follows."""
    return cursor.at_end() or cursor.at(",") or cursor.at(")")


def skip_item(cursor: Cursor) -> None:
    """Skip to the next comma or closing parenthesis on this level."""
    while not at_item_end(cursor):
        skip(cursor)


def column_info(cursor: Cursor, now: datetime, charset: str = "") -> ColumnInfo:
    """Parse `name` type options…. `now`: the time of the DDL, for defaults such as CURRENT_TIMESTAMP. `charset`: the table's, if it is
    known. Raises DdlSyntaxError."""
    name = cursor.identifier()
    while cursor.accept("."):
        name = cursor.identifier()
    word = cursor.token.upper
    tp = _TYPES.get(word)
    if tp is None:
        raise cursor.fail("a column type")
    cursor.next()
    cursor.accept_any(("PRECISION", "VARYING"))
    elems, lengths = _parameters(cursor, word)
    flag, charset = _attributes(cursor, charset if word in _STRINGS else "")
    flen, decimal = _sizes(word, lengths)
    if word == "FLOAT" and len(lengths) == 1 and lengths[0] > _MAX_SINGLE_PRECISION:
        tp = MySQLType.DOUBLE
    is_text = word in _TEXTS and charset.lower() != "binary"
    options = _options(cursor, now, tp, max(decimal, 0))
    return new_column(
        name,
        tp,
        flag=flag | options.flag,
        flen=flen,
        decimal=decimal,
        charset="utf8mb4" if is_text else "binary",
        elems=elems,
        origin_default=options.text,
        origin_default_bit=options.bits,
        virtual=options.virtual,
    )


def _parameters(cursor: Cursor, word: str) -> tuple[tuple[str, ...], list[int]]:
    elems: list[str] = []
    lengths: list[int] = []
    if cursor.accept("("):
        while not cursor.accept(")"):
            if cursor.at_end():
                raise cursor.fail(")")
            if cursor.token.kind is Kind.STRING:
                elems.append(cursor.token.text.rstrip(" "))
            elif cursor.token.kind is Kind.INT:
                lengths.append(cursor.unsigned())
                continue
            cursor.next()
    return tuple(elems), lengths


def _attributes(cursor: Cursor, charset: str) -> tuple[int, str]:
    """Parse UNSIGNED, ZEROFILL and the character set."""
    flag = 0
    while not at_item_end(cursor):
        if word := cursor.accept_any(("UNSIGNED", "ZEROFILL", "SIGNED", "BINARY")):
            flag |= ColumnFlag.UNSIGNED if word in ("UNSIGNED", "ZEROFILL") else 0
        elif cursor.accept_charset_keyword():
            charset = cursor.next().text
        else:
            break
    return flag, charset


def _options(cursor: Cursor, now: datetime, tp: MySQLType | int, fsp: int) -> _Options:
    found = _Options()
    while not at_item_end(cursor) and not cursor.at_any(("FIRST", "AFTER")):
        if cursor.accept("NOT", "NULL"):
            found.flag |= ColumnFlag.NOT_NULL
        elif cursor.accept_any(("COLUMN_FORMAT", "STORAGE")):
            cursor.next()
        elif cursor.accept("DEFAULT"):
            _default(cursor, now, found, tp, fsp)
        elif cursor.accept("AS") or cursor.accept("GENERATED", "ALWAYS", "AS"):
            skip(cursor)
            found.virtual = not cursor.accept("STORED")
        else:
            skip(cursor)
    return found


def _default(cursor: Cursor, now: datetime, found: _Options, tp: MySQLType | int, fsp: int) -> None:
    """Parse a default: a literal or the DDL's time. Any other expression counts as no default."""
    sign = "-" if cursor.accept("-") else ""
    if cursor.token.kind is Kind.INTRODUCER:
        cursor.next()
    token = cursor.token
    if cursor.at("("):
        skip(cursor)
    elif word := cursor.accept_any(("NULL", "TRUE", "FALSE")):
        found.text = None if word == "NULL" else str(int(word == "TRUE"))
    elif token.kind in (Kind.STRING, Kind.INT, Kind.DECIMAL, Kind.FLOAT):
        cursor.next()
        found.text = sign + token.text
        if tp == MySQLType.BIT:
            found.text, found.bits = None, int(token.text).to_bytes(8, "big") if token.text.isdecimal() else token.text.encode()
    elif token.kind in (Kind.HEX, Kind.BIT):
        cursor.next()
        _binary_default(found, tp, token.kind, token.text)
    elif token.upper in _NOW | _TODAY:
        cursor.next()
        if cursor.at("("):
            skip(cursor)
        found.text = _moment(now, fsp) if token.upper in _NOW else f"{now:%Y-%m-%d}"
    elif not at_item_end(cursor):
        cursor.next()


def _binary_default(found: _Options, tp: MySQLType | int, kind: Kind, text: str) -> None:
    number = int(text or "0", 16 if kind is Kind.HEX else 2)
    size = -(-len(text) // (2 if kind is Kind.HEX else 8))
    if tp == MySQLType.BIT:
        found.bits = number.to_bytes(max(size, 1), "big")
    elif tp in _INTEGERS.values() or tp in _NUMBERS.values():
        found.text = str(number)
    else:
        # TiDB keeps defaults as text, so it loses bytes that are not UTF-8 too.
        found.text = number.to_bytes(size, "big").decode("utf-8", "replace")


class _Options:
    """The options of a column."""

    def __init__(self) -> None:
        self.flag = 0
        self.text: str | None = None
        self.bits: bytes | None = None
        self.virtual = False


def _sizes(word: str, lengths: list[int]) -> tuple[int, int]:
    """Return flen and decimal as in table descriptions; -1 for none."""
    first = lengths[0] if lengths else -1
    if word in _TIMES:
        return -1, max(first, 0)
    if _NUMBERS.get(word) is MySQLType.NEWDECIMAL:
        return (first if lengths else _DECIMAL_DIGITS), (lengths[1] if len(lengths) > 1 else 0)
    if word in _NUMBERS:
        return (first, lengths[1]) if len(lengths) > 1 else (-1, -1)
    if word in ("BIT", "CHAR", "CHARACTER", "BINARY"):
        return max(first, 1), -1
    return first, -1


def _moment(now: datetime, fsp: int) -> str:
    text = f"{now:%Y-%m-%d %H:%M:%S}"
    return f"{text}.{now.microsecond:06d}"[: len(text) + 1 + fsp] if fsp else text
