"""Types of columns, and small pieces of grammar that all statements about tables share."""

from __future__ import annotations

from tidemill.tidb.ddltext.dialects import Part
from tidemill.tidb.ddltext.queries.select import Queries
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


class ColumnTypes(Queries):
    """Types as TiDB spells them: synonyms become one name, display widths stay."""

    # Small options

    def if_exists(self) -> str:
        return "IF EXISTS " if self.accept("IF", "EXISTS") else ""

    def if_not_exists(self) -> str:
        return "IF NOT EXISTS " if self.accept("IF", "NOT", "EXISTS") else ""

    def part_if_exists(self) -> str:
        """Parse IF EXISTS of a column, an index or a partition."""
        return self.dialect.part(Part.IF_EXISTS, "IF EXISTS ") if self.accept("IF", "EXISTS") else ""

    def part_if_not_exists(self) -> str:
        """Parse IF NOT EXISTS of a column, an index, a key or a partition."""
        return self.dialect.part(Part.IF_EXISTS, "IF NOT EXISTS ") if self.accept("IF", "NOT", "EXISTS") else ""

    def equals(self) -> None:
        self.accept("=")

    # Types

    def column_type(self) -> str:
        word = self.token.upper
        if word in _INTEGERS:
            self.next()
            return _INTEGERS[word] + self.optional_length() + self.number_flags()
        if self.accept_any(("BOOL", "BOOLEAN")):
            return "TINYINT(1)" + self.number_flags()
        if self.accept_any(_FIXED_POINT):
            length, scale = self.length_and_scale()
            return "DECIMAL" + self.size(length, scale) + self.number_flags()
        if word in _FLOATING_POINT:
            return self.floating_point()
        if self.accept("BIT"):
            return f"BIT({1 if (length := self.field_length()) is None else length})"
        if self.accept("DATE"):
            return "DATE"
        if name := self.accept_any(("DATETIME", "TIMESTAMP", "TIME")):
            return name + self.optional_length()
        if self.accept_any(("YEAR", "SQL_TSI_YEAR")):
            return self.year()
        if self.accept("JSON"):
            return "JSON"
        if self.accept("VECTOR"):
            if self.accept("<"):
                self.expect("FLOAT", ">")
            return self.dialect.part(Part.VECTOR_TYPE, "VECTOR" + self.optional_length())
        return self.text_type()

    def optional_length(self) -> str:
        return self.size(self.field_length(), None)

    def size(self, length: int | None, scale: int | None) -> str:
        if length is None:
            return ""
        return f"({length})" if scale is None else f"({length},{scale})"

    def length_and_scale(self) -> tuple[int | None, int | None]:
        if not self.accept("("):
            return None, None
        length = self.unsigned()
        scale = self.unsigned() if self.accept(",") else None
        self.expect(")")
        return length, scale

    def number_flags(self) -> str:
        unsigned = zerofill = False
        while word := self.accept_any(("UNSIGNED", "SIGNED", "ZEROFILL")):
            unsigned |= word != "SIGNED"
            zerofill |= word == "ZEROFILL"
        return (" UNSIGNED" if unsigned else "") + (" ZEROFILL" if zerofill else "")

    def floating_point(self) -> str:
        word = self.next().upper
        name = _FLOATING_POINT[word]
        if word == "REAL" and SqlMode.REAL_AS_FLOAT in self.mode:
            name = "FLOAT"
        if word == "DOUBLE":
            self.accept("PRECISION")
        length, scale = self.length_and_scale()
        if name == "DOUBLE" and length is not None and scale is None:
            raise self.fail("DOUBLE with both length and scale")
        if name == "FLOAT" and scale is None and length is not None and length <= _MAX_DOUBLE_PRECISION:
            # FLOAT(p) only chooses the type.
            name = "DOUBLE" if length > _MAX_FLOAT_PRECISION else "FLOAT"
            length = None
        return name + self.size(length, scale) + self.number_flags()

    def year(self) -> str:
        length = self.field_length()
        self.number_flags()
        if length not in (None, 4):
            raise self.fail("YEAR(4)")
        return "YEAR" + self.size(length, None)

    def text_type(self) -> str:
        word = self.token.upper
        if self.accept("BINARY"):
            return "BINARY" + self.optional_length()
        if self.accept("VARBINARY"):
            return "VARBINARY" + self.required_length()
        if word in _BLOBS:
            self.next()
            return word + (self.optional_length() if word == "BLOB" else "")
        if word in _TEXTS:
            self.next()
            length = self.optional_length() if word == "TEXT" else ""
            return self.with_charset(word, length, extended=True)
        if self.accept("LONG"):
            if self.accept("VARBINARY"):
                return "MEDIUMBLOB"
            self.accept_varchar()
            return self.with_charset("MEDIUMTEXT", "", extended=True)
        if self.accept_any(("ENUM", "SET")):
            return self.enumeration(word)
        if self.accept_varchar() or self.accept_national_varchar():
            return self.with_charset("VARCHAR", self.required_length(), extended=False)
        if self.accept_any(("CHAR", "CHARACTER", "NCHAR")) or (self.accept("NATIONAL") and self.expect_any(("CHAR", "CHARACTER"))):
            return self.with_charset("CHAR", self.optional_length(), extended=False)
        raise self.fail("a column type")

    def accept_varchar(self) -> bool:
        return self.accept("CHARACTER", "VARYING") or self.accept("CHAR", "VARYING") or bool(self.accept_any(("VARCHAR", "VARCHARACTER")))

    def accept_national_varchar(self) -> bool:
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
        return any(self.accept(*form) for form in forms)

    def required_length(self) -> str:
        if not self.at("("):
            raise self.fail("a length")
        return self.optional_length()

    def with_charset(self, name: str, length: str, extended: bool) -> str:
        """Parse the rest of a text type. The character set "binary" turns it into the binary type."""
        charset, binary = self.type_charset(extended)
        if charset == "binary":
            return name.replace("TEXT", "BLOB").replace("CHAR", "BINARY") + length
        return name + length + (" BINARY" if binary else "") + (f" CHARACTER SET {self.charset_text(charset)}" if charset else "")

    def charset_text(self, charset: str) -> str:
        """Return the name of a character set as columns and tables print it."""
        return self.dialect.part(Part.CHARSET, charset.upper())

    def type_charset(self, extended: bool) -> tuple[str, bool]:
        if extended and (word := self.accept_any(("ASCII", "BYTE", "UNICODE"))):
            if word == "UNICODE":
                raise self.fail("a known character set")
            return ("latin1" if word == "ASCII" else "binary"), False
        return self.charset_with_binary()

    def enumeration(self, name: str) -> str:
        """Parse the rest of ENUM or SET. Trailing blanks of elements and the character set are left out."""
        elements = self.in_parentheses(self.element, ",")
        charset, binary = self.type_charset(extended=True)
        return f"{name}{elements}{' BINARY' if binary and charset != 'binary' else ''}"

    def element(self) -> str:
        token = self.expect_kind(Kind.STRING, Kind.HEX, Kind.BIT)
        if token.kind is Kind.STRING:
            text = token.text
        else:
            bits = len(token.text) if token.kind is Kind.BIT else 4 * len(token.text)
            value = int(token.text or "0", 2 if token.kind is Kind.BIT else 16)
            try:
                text = value.to_bytes(-(-bits // 8), "big").decode()
            except UnicodeDecodeError:
                raise self.fail("an element in UTF-8") from None
        return self.quoted(text.rstrip(" "))
