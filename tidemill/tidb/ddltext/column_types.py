"""Types of columns, and small pieces of grammar that all statements about tables share."""

from __future__ import annotations

from tidemill.tidb.ddltext.dialects import Part
from tidemill.tidb.ddltext.queries.functions import charset_with_binary, field_length
from tidemill.tidb.ddltext.queries.parser import Parser
from tidemill.tidb.sql.keywords import words
from tidemill.tidb.sql.lexer import Kind, SqlMode

# name as written: name as printed
_INTEGERS = {
    "TINYINT": "TINYINT",
    "SMALLINT": "SMALLINT",
    "MEDIUMINT": "MEDIUMINT",
    "MIDDLEINT": "MEDIUMINT",
    "INT": "INT",
    "INT1": "TINYINT",
    "INT2": "SMALLINT",
    "INT3": "MEDIUMINT",
    "INT4": "INT",
    "INT8": "BIGINT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
}

_FIXED_POINT = words("DECIMAL DEC NUMERIC FIXED")

_FLOATING_POINT = {"FLOAT": "FLOAT", "FLOAT4": "FLOAT", "DOUBLE": "DOUBLE", "FLOAT8": "DOUBLE", "REAL": "DOUBLE"}

_TEXTS = {"TINYTEXT": "TINYTEXT", "TEXT": "TEXT", "MEDIUMTEXT": "MEDIUMTEXT", "LONGTEXT": "LONGTEXT"}

_BLOBS = words("TINYBLOB BLOB MEDIUMBLOB LONGBLOB")

_MAX_FLOAT_PRECISION = 24

_MAX_DOUBLE_PRECISION = 53


def special(feature: str, text: str) -> str:
    """Return a TiDB extension in a comment that MySQL ignores."""
    return f"/*T!{f'[{feature}]' if feature else ''} {text} */"


# Small options


def if_exists(p: Parser) -> str:
    return "IF EXISTS " if p.accept("IF", "EXISTS") else ""


def if_not_exists(p: Parser) -> str:
    return "IF NOT EXISTS " if p.accept("IF", "NOT", "EXISTS") else ""


def part_if_exists(p: Parser) -> str:
    """Parse IF EXISTS of a column, an index or a partition."""
    return p.dialect.part(Part.IF_EXISTS, "IF EXISTS ") if p.accept("IF", "EXISTS") else ""


def part_if_not_exists(p: Parser) -> str:
    """Parse IF NOT EXISTS of a column, an index, a key or a partition."""
    return p.dialect.part(Part.IF_EXISTS, "IF NOT EXISTS ") if p.accept("IF", "NOT", "EXISTS") else ""


def equals(p: Parser) -> None:
    p.accept("=")


# Types


def column_type(p: Parser) -> str:
    word = p.token.upper
    if word in _INTEGERS:
        p.next()
        return _INTEGERS[word] + _optional_length(p) + _number_flags(p)
    if p.accept_any(("BOOL", "BOOLEAN")):
        return "TINYINT(1)" + _number_flags(p)
    if p.accept_any(_FIXED_POINT):
        length, scale = _length_and_scale(p)
        return "DECIMAL" + _size(p, length, scale) + _number_flags(p)
    if word in _FLOATING_POINT:
        return _floating_point(p)
    if p.accept("BIT"):
        return f"BIT({1 if (length := field_length(p)) is None else length})"
    if p.accept("DATE"):
        return "DATE"
    if name := p.accept_any(("DATETIME", "TIMESTAMP", "TIME")):
        return name + _optional_length(p)
    if p.accept_any(("YEAR", "SQL_TSI_YEAR")):
        return _year(p)
    if p.accept("JSON"):
        return "JSON"
    if p.accept("VECTOR"):
        if p.accept("<"):
            p.expect("FLOAT", ">")
        return p.dialect.part(Part.VECTOR_TYPE, "VECTOR" + _optional_length(p))
    return _text_type(p)


def _optional_length(p: Parser) -> str:
    return _size(p, field_length(p), None)


def _size(p: Parser, length: int | None, scale: int | None) -> str:
    if length is None:
        return ""
    return f"({length})" if scale is None else f"({length},{scale})"


def _length_and_scale(p: Parser) -> tuple[int | None, int | None]:
    if not p.accept("("):
        return None, None
    length = p.unsigned()
    scale = p.unsigned() if p.accept(",") else None
    p.expect(")")
    return length, scale


def _number_flags(p: Parser) -> str:
    unsigned = zerofill = False
    while word := p.accept_any(("UNSIGNED", "SIGNED", "ZEROFILL")):
        unsigned |= word != "SIGNED"
        zerofill |= word == "ZEROFILL"
    return (" UNSIGNED" if unsigned else "") + (" ZEROFILL" if zerofill else "")


def _floating_point(p: Parser) -> str:
    word = p.next().upper
    name = _FLOATING_POINT[word]
    if word == "REAL" and SqlMode.REAL_AS_FLOAT in p.mode:
        name = "FLOAT"
    if word == "DOUBLE":
        p.accept("PRECISION")
    length, scale = _length_and_scale(p)
    if name == "DOUBLE" and length is not None and scale is None:
        raise p.fail("DOUBLE with both length and scale")
    if name == "FLOAT" and scale is None and length is not None and length <= _MAX_DOUBLE_PRECISION:
        # FLOAT(p) only chooses the type.
        name = "DOUBLE" if length > _MAX_FLOAT_PRECISION else "FLOAT"
        length = None
    return name + _size(p, length, scale) + _number_flags(p)


def _year(p: Parser) -> str:
    length = field_length(p)
    _number_flags(p)
    if length not in (None, 4):
        raise p.fail("YEAR(4)")
    return "YEAR" + _size(p, length, None)


def _text_type(p: Parser) -> str:
    word = p.token.upper
    if p.accept("BINARY"):
        return "BINARY" + _optional_length(p)
    if p.accept("VARBINARY"):
        return "VARBINARY" + _required_length(p)
    if word in _BLOBS:
        p.next()
        return word + (_optional_length(p) if word == "BLOB" else "")
    if word in _TEXTS:
        p.next()
        length = _optional_length(p) if word == "TEXT" else ""
        return _with_charset(p, word, length, extended=True)
    if p.accept("LONG"):
        if p.accept("VARBINARY"):
            return "MEDIUMBLOB"
        _accept_varchar(p)
        return _with_charset(p, "MEDIUMTEXT", "", extended=True)
    if p.accept_any(("ENUM", "SET")):
        return _enumeration(p, word)
    if _accept_varchar(p) or _accept_national_varchar(p):
        return _with_charset(p, "VARCHAR", _required_length(p), extended=False)
    if p.accept_any(("CHAR", "CHARACTER", "NCHAR")) or (p.accept("NATIONAL") and p.expect_any(("CHAR", "CHARACTER"))):
        return _with_charset(p, "CHAR", _optional_length(p), extended=False)
    raise p.fail("a column type")


def _accept_varchar(p: Parser) -> bool:
    return p.accept("CHARACTER", "VARYING") or p.accept("CHAR", "VARYING") or bool(p.accept_any(("VARCHAR", "VARCHARACTER")))


def _accept_national_varchar(p: Parser) -> bool:
    forms = (
        ("NVARCHAR",),
        ("NATIONAL", "VARCHAR"),
        ("NATIONAL", "VARCHARACTER"),
        ("NATIONAL", "CHARACTER", "VARYING"),
        ("NATIONAL", "CHAR", "VARYING"),
        ("NCHAR", "VARCHAR"),
        ("NCHAR", "VARCHARACTER"),
        ("NCHAR", "VARYING"),
    )
    return any(p.accept(*form) for form in forms)


def _required_length(p: Parser) -> str:
    if not p.at("("):
        raise p.fail("a length")
    return _optional_length(p)


def _with_charset(p: Parser, name: str, length: str, extended: bool) -> str:
    """Parse the rest of a text type. The character set "binary" turns it into the binary type."""
    charset, binary = _type_charset(p, extended)
    if charset == "binary":
        return name.replace("TEXT", "BLOB").replace("CHAR", "BINARY") + length
    return name + length + (" BINARY" if binary else "") + (f" CHARACTER SET {charset_text(p, charset)}" if charset else "")


def charset_text(p: Parser, charset: str) -> str:
    """Return the name of a character set as columns and tables print it."""
    return p.dialect.part(Part.CHARSET, charset.upper())


def _type_charset(p: Parser, extended: bool) -> tuple[str, bool]:
    if extended and (word := p.accept_any(("ASCII", "BYTE", "UNICODE"))):
        if word == "UNICODE":
            raise p.fail("a known character set")
        return ("latin1" if word == "ASCII" else "binary"), False
    return charset_with_binary(p)


def _enumeration(p: Parser, name: str) -> str:
    """Parse the rest of ENUM or SET. Trailing blanks of elements and the character set are left out."""
    elements = p.in_parentheses(lambda: _element(p), ",")
    charset, binary = _type_charset(p, extended=True)
    return f"{name}{elements}{' BINARY' if binary and charset != 'binary' else ''}"


def _element(p: Parser) -> str:
    token = p.expect_kind(Kind.STRING, Kind.HEX, Kind.BIT)
    if token.kind is Kind.STRING:
        text = token.text
    else:
        bits = len(token.text) if token.kind is Kind.BIT else 4 * len(token.text)
        value = int(token.text or "0", 2 if token.kind is Kind.BIT else 16)
        try:
            text = value.to_bytes(-(-bits // 8), "big").decode()
        except UnicodeDecodeError:
            raise p.fail("an element in UTF-8") from None
    return p.quoted(text.rstrip(" "))
