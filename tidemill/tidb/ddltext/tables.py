"""What CREATE TABLE and ALTER TABLE share: column types, columns, indexes, table options, partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemill.tidb.ddltext.expressions import Expression, Shape
from tidemill.tidb.ddltext.lexer import Kind, SqlMode
from tidemill.tidb.ddltext.literals import print_float, quote_name, quote_text
from tidemill.tidb.ddltext.queries import Queries

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
_FIXED_POINT = frozenset("DECIMAL DEC NUMERIC FIXED".split())
_FLOATING_POINT = {"FLOAT": "FLOAT", "FLOAT4": "FLOAT", "DOUBLE": "DOUBLE", "FLOAT8": "DOUBLE", "REAL": "DOUBLE"}
_TEXTS = {"TINYTEXT": "TINYTEXT", "TEXT": "TEXT", "MEDIUMTEXT": "MEDIUMTEXT", "LONGTEXT": "LONGTEXT"}
_BLOBS = frozenset("TINYBLOB BLOB MEDIUMBLOB LONGBLOB".split())
_MAX_FLOAT_PRECISION = 24
_MAX_DOUBLE_PRECISION = 53

_INDEX_TYPES = ("BTREE", "HASH", "RTREE", "HYPO", "HNSW")
_CONSTRAINT_STARTS = frozenset("CONSTRAINT PRIMARY FULLTEXT KEY INDEX UNIQUE FOREIGN CHECK".split())
_NUMERIC_OPTIONS = frozenset(
    """
    AUTO_INCREMENT AVG_ROW_LENGTH CHECKSUM TABLE_CHECKSUM KEY_BLOCK_SIZE DELAY_KEY_WRITE STATS_BUCKETS STATS_TOPN
    """.split()
)
_ROW_FORMATS = (
    """
    DEFAULT DYNAMIC FIXED COMPRESSED REDUNDANT COMPACT TOKUDB_DEFAULT TOKUDB_FAST TOKUDB_SMALL TOKUDB_ZLIB TOKUDB_ZSTD
    TOKUDB_QUICKLZ TOKUDB_LZMA TOKUDB_SNAPPY TOKUDB_UNCOMPRESSED
    """
).split()


def special(feature: str, text: str) -> str:
    """A TiDB extension, hidden from MySQL."""
    return f"/*T!{f'[{feature}]' if feature else ''} {text} */"


@dataclass(slots=True)
class IndexOptions:
    """Options of an index in TiDB's order; a later one of the same kind wins."""

    clustered: str = ""
    key_block_size: int = 0
    index_type: str = ""
    parser: str = ""
    comment: str = ""
    global_index: bool = False
    visibility: str = ""
    split: str = ""

    def print(self) -> str:
        """With a blank in front of each."""
        parts = (
            self.clustered and special("clustered_index", self.clustered),
            self.key_block_size and f"KEY_BLOCK_SIZE={self.key_block_size}",
            self.index_type and f"USING {self.index_type}",
            self.parser and f"WITH PARSER {quote_name(self.parser)}",
            self.comment and f"COMMENT {quote_text(self.comment)}",
            self.global_index and special("global_index", "GLOBAL"),
            self.visibility,
            self.split and special("pre_split", f"PRE_SPLIT_REGIONS = {self.split}"),
        )
        return "".join(f" {part}" for part in parts if part)


@dataclass(frozen=True, slots=True)
class TableOption:
    kind: str  # the option's name
    text: str
    value: str = ""  # of CHARACTER SET and COLLATE: ALTER TABLE prints a pair of them differently


def with_ttl_off(options: list[TableOption]) -> list[TableOption]:
    """Consumers must not delete rows by themselves: TTL_ENABLE is dropped, and set to OFF after each TTL."""
    result = []
    for option in options:
        if option.kind != "TTL_ENABLE":
            result.append(option)
        if option.kind == "TTL":
            result.append(TableOption("TTL_ENABLE", special("ttl", "TTL_ENABLE = 'OFF'")))
    return result


class Tables(Queries):
    # -- small options -------------------------------------------------------------------------------------------------

    def if_exists(self) -> str:
        return "IF EXISTS " if self.accept("IF", "EXISTS") else ""

    def if_not_exists(self) -> str:
        return "IF NOT EXISTS " if self.accept("IF", "NOT", "EXISTS") else ""

    def equals(self) -> None:
        self.accept("=")

    # -- column types --------------------------------------------------------------------------------------------------

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
            return "VECTOR" + self.optional_length()
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
        """A text type; the character set "binary" turns it into the binary type."""
        charset, binary = self.type_charset(extended)
        if charset == "binary":
            return name.replace("TEXT", "BLOB").replace("CHAR", "BINARY") + length
        return name + length + (" BINARY" if binary else "") + (f" CHARACTER SET {charset.upper()}" if charset else "")

    def type_charset(self, extended: bool) -> tuple[str, bool]:
        if extended and (word := self.accept_any(("ASCII", "BYTE", "UNICODE"))):
            if word == "UNICODE":
                raise self.fail("a known character set")
            return ("latin1" if word == "ASCII" else "binary"), False
        return self.charset_with_binary()

    def enumeration(self, name: str) -> str:
        """ENUM and SET: trailing blanks of elements go, and so does the character set."""
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
        return quote_text(text.rstrip(" "))

    # -- columns -------------------------------------------------------------------------------------------------------

    def column(self) -> str:
        name = self.column_name()
        if self.accept("SERIAL"):
            return f"{name} BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE KEY" + self.column_options()
        return f"{name} {self.column_type()}{self.column_options()}"

    def column_options(self) -> str:
        options: list[str] = []
        while option := self.accept_column_option():
            options.append(option)
        if any(option.startswith("GENERATED ") for option in options) and any(
            option.startswith(("DEFAULT ", "ON UPDATE ", "AUTO_INCREMENT")) for option in options
        ):
            raise self.fail("a generated column without DEFAULT, ON UPDATE and AUTO_INCREMENT")
        return "".join(f" {option}" for option in options)

    def accept_column_option(self) -> str:
        if self.accept("NOT", "NULL"):
            return "NOT NULL"
        if self.accept("NULL"):
            return "NULL"
        if self.accept("AUTO_INCREMENT"):
            return "AUTO_INCREMENT"
        if self.accept("PRIMARY", "KEY") or self.accept("KEY"):
            return self.column_primary_key()
        if self.accept("UNIQUE"):
            self.accept("KEY")
            return "UNIQUE KEY" + self.global_or_local()
        if self.accept("DEFAULT"):
            return f"DEFAULT {self.default_value()}"
        if self.accept("SERIAL", "DEFAULT", "VALUE"):
            return "NOT NULL AUTO_INCREMENT UNIQUE KEY"
        if self.accept("ON", "UPDATE"):
            return f"ON UPDATE {self.now()}"
        if self.accept("COMMENT"):
            return f"COMMENT {self.plain_string()}"
        if self.at_any(("CONSTRAINT", "CHECK")):
            return self.column_check()
        if self.at_any(("GENERATED", "AS")):
            return self.generated()
        if self.at("REFERENCES"):
            return self.references()
        if self.accept("COLLATE"):
            return f"COLLATE {self.collation_name()}"
        if self.accept("COLUMN_FORMAT"):
            return f"COLUMN_FORMAT {self.expect_any(('DEFAULT', 'FIXED', 'DYNAMIC'))}"
        if self.accept("STORAGE"):
            return f"STORAGE {self.expect_any(('DEFAULT', 'DISK', 'MEMORY'))}"
        if self.accept("AUTO_RANDOM"):
            return self.auto_random()
        return ""

    def global_or_local(self) -> str:
        if self.accept("GLOBAL"):
            return " GLOBAL"
        self.accept("LOCAL")
        return ""

    def column_primary_key(self) -> str:
        clustered = self.accept_any(("CLUSTERED", "NONCLUSTERED"))
        text = "PRIMARY KEY" + (f" {special('clustered_index', clustered)}" if clustered else "")
        return text + self.global_or_local()

    def auto_random(self) -> str:
        text = "AUTO_RANDOM"
        if self.accept("("):
            text += f"({self.unsigned()}"
            text += f", {self.unsigned()})" if self.accept(",") else ")"
            self.expect(")")
        return special("auto_rand", text)

    def constraint_symbol(self) -> str | None:
        """The name after CONSTRAINT; None when there is no name."""
        if self.accept("CONSTRAINT") and self.at_identifier():
            return self.identifier()
        return None

    def column_check(self) -> str:
        symbol = self.constraint_symbol()
        text = f"CONSTRAINT {quote_name(symbol)} " if symbol else ""
        text += f"CHECK{self.check_expression()}"
        if self.at("NOT", "NULL"):
            return f"{text} ENFORCED"
        return text + self.enforced()

    def check_expression(self) -> str:
        self.expect("CHECK", "(")
        expression = self.expression()
        self.expect(")")
        return f"({expression})"

    def enforced(self) -> str:
        if self.accept("NOT", "ENFORCED"):
            return " NOT ENFORCED"
        self.accept("ENFORCED")
        return " ENFORCED"

    def generated(self) -> str:
        if self.accept("GENERATED"):
            self.expect("ALWAYS")
        self.expect("AS", "(")
        expression = self.expression()
        self.expect(")")
        storage = self.accept_any(("VIRTUAL", "STORED")) or "VIRTUAL"
        return f"GENERATED ALWAYS AS({expression}) {storage}"

    # -- defaults ------------------------------------------------------------------------------------------------------

    def default_value(self) -> str:
        if now := self.try_parse(lambda: self.without_parentheses(self.now)):
            return now if now.startswith("CURRENT_TIMESTAMP") else f"({now})"
        if self.at_any(("+", "-")):
            return self.next().upper + self.number()
        if literal := self.accept_literal():
            return literal
        call = self.try_parse(lambda: self.without_parentheses(self.sequence_value))
        return f"({call or self.without_parentheses(self.default_function)})"

    def without_parentheses(self, parse: Callable[[], str]) -> str:
        if not self.accept("("):
            return parse()
        text = self.without_parentheses(parse)
        self.expect(")")
        return text

    def now(self) -> str:
        """CURRENT_TIMESTAMP and its synonyms."""
        word = self.expect_any(("CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP", "NOW", "CURDATE", "CURRENT_DATE"))
        if word == "CURRENT_DATE" and not self.at("("):
            return "CURRENT_DATE()"
        if word in ("CURDATE", "CURRENT_DATE"):
            return f"CURRENT_DATE{self.empty_parentheses()}"
        if word == "NOW" and not self.at("("):
            raise self.fail("(")
        return f"CURRENT_TIMESTAMP{self.precision()}"

    def sequence_value(self) -> str:
        if self.accept("NEXTVAL"):
            self.expect("(")
            sequence = self.table_name()
            self.expect(")")
            return f"NEXTVAL({sequence})"
        return self.next_value()

    def default_function(self) -> str:
        if self.token.kind is not Kind.NAME and not self.at("REPLACE"):
            raise self.fail("a default value")
        if self.peek().upper != "(":
            raise self.fail("a default value")
        return self.parse_operand_call()

    def parse_operand_call(self) -> str:
        return "REPLACE" + self.arguments() if self.accept("REPLACE") else self.column_or_call()

    # -- constraints and indexes ---------------------------------------------------------------------------------------

    def at_constraint(self) -> bool:
        return self.at_any(_CONSTRAINT_STARTS) or self.at("VECTOR", "INDEX")

    def constraint(self) -> str:
        if self.accept("VECTOR", "INDEX"):
            return self.index_constraint("VECTOR INDEX", None, exists_clause=True, default_type="HNSW")
        symbol = self.constraint_symbol()
        if self.accept("PRIMARY", "KEY"):
            return self.index_constraint("PRIMARY KEY", symbol)
        if self.accept("FULLTEXT"):
            self.accept_any(("KEY", "INDEX"))
            return self.index_constraint("FULLTEXT", symbol, typed=False)
        if self.accept_any(("KEY", "INDEX")):
            return self.index_constraint("INDEX", symbol, exists_clause=True)
        if self.accept("UNIQUE"):
            self.accept_any(("KEY", "INDEX"))
            return self.index_constraint("UNIQUE", symbol)
        if self.accept("FOREIGN", "KEY"):
            return self.foreign_key(symbol)
        if self.at("CHECK"):
            prefix = f"CONSTRAINT {quote_name(symbol)} " if symbol else ""
            return f"{prefix}CHECK{self.check_expression()}{self.enforced()}"
        raise self.fail("a constraint")

    def index_constraint(
        self,
        head: str,
        symbol: str | None,
        *,
        typed: bool = True,
        exists_clause: bool = False,
        default_type: str = "",
    ) -> str:
        """The rest of an index; the name after CONSTRAINT wins over the index name."""
        if exists_clause and self.accept("IF", "NOT", "EXISTS"):
            head += " IF NOT EXISTS"
        name = symbol
        index_type = ""
        if self.at_identifier() and not (self.at("USING") or self.at("(")):
            written = self.identifier()
            name = written if symbol is None else symbol
            if typed and self.accept("TYPE"):
                index_type = self.expect_any(_INDEX_TYPES)
        if typed and self.accept("USING"):
            index_type = self.expect_any(_INDEX_TYPES)
        columns = self.in_parentheses(self.index_part)
        options = self.index_options()
        options.index_type = index_type or options.index_type or default_type
        if default_type:
            self.check_vector_columns(columns)
            if options.index_type != default_type:
                raise self.fail(f"USING {default_type}")
        return f"{head}{'' if name is None else ' ' + quote_name(name)}{columns}{options.print()}"

    def check_vector_columns(self, columns: str) -> None:
        """A vector index has one part, a function call."""
        if not columns.startswith("((") or ")," in columns:
            raise self.fail("one expression as the only part of a vector index")

    def foreign_key(self, symbol: str | None) -> str:
        exists = self.if_not_exists()
        name = symbol
        if self.at_identifier():
            written = self.identifier()
            name = written if symbol is None else symbol
        columns = self.in_parentheses(self.index_part)
        prefix = f"{quote_name(name)} " if name else ""
        return f"CONSTRAINT {prefix}FOREIGN KEY {exists}{columns} {self.references()}"

    def references(self) -> str:
        self.expect("REFERENCES")
        text = f"REFERENCES {self.table_name()}"
        if self.at("("):
            text += self.in_parentheses(self.index_part)
        if self.accept("MATCH"):
            text += f" MATCH {self.expect_any(('FULL', 'PARTIAL', 'SIMPLE'))}"
        actions: dict[str, str] = {}
        while self.at("ON") and self.peek().upper in ("DELETE", "UPDATE") and self.peek().upper not in actions:
            self.next()
            event = self.next().upper
            actions[event] = self.reference_action()
        return text + "".join(f" ON {event} {actions[event]}" for event in ("DELETE", "UPDATE") if event in actions)

    def reference_action(self) -> str:
        for action in ("RESTRICT", "CASCADE", "SET NULL", "NO ACTION", "SET DEFAULT"):
            if self.accept(*action.split()):
                return action
        raise self.fail("an action")

    def index_part(self) -> str:
        """A column, a prefix of one, or an expression in parentheses."""
        if self.accept("("):
            text = f"({self.expression()})"
            self.expect(")")
        else:
            text = self.column_name()
            if length := self.field_length():
                text += f"({length})"
        if self.accept("DESC"):
            return f"{text} DESC"
        self.accept("ASC")
        return text

    def index_options(self) -> IndexOptions:
        options = IndexOptions()
        while True:
            if self.accept("KEY_BLOCK_SIZE"):
                self.equals()
                options.key_block_size = self.unsigned() or options.key_block_size
            elif self.accept_any(("USING", "TYPE")):
                options.index_type = self.expect_any(_INDEX_TYPES)
            elif self.accept("WITH", "PARSER"):
                options.parser = self.identifier() or options.parser
            elif self.accept("COMMENT"):
                options.comment = self.raw_string() or options.comment
            elif word := self.accept_any(("VISIBLE", "INVISIBLE")):
                options.visibility = word
            elif word := self.accept_any(("CLUSTERED", "NONCLUSTERED")):
                options.clustered = word
            elif self.accept("GLOBAL"):
                options.global_index = True
            elif self.accept("LOCAL"):
                pass
            elif self.accept("PRE_SPLIT_REGIONS"):
                self.equals()
                options.split = self.split_option()
            else:
                return options

    def split_option(self) -> str:
        if not self.at("("):
            regions = self.unsigned()
            return str(regions) if regions else "(BETWEEN () AND () REGIONS 0)"
        self.expect("(")
        if self.accept("BY"):
            text = f"BY {self.list_of(self.split_row, ',')}"
        else:
            self.expect("BETWEEN")
            low = self.split_row()
            self.expect("AND")
            high = self.split_row()
            self.expect("REGIONS")
            text = f"BETWEEN {low} AND {high} REGIONS {self.unsigned()}"
        self.expect(")")
        return f"({text})"

    def split_row(self) -> str:
        self.expect("(")
        values = "" if self.at(")") else self.list_of(self.value_or_default, ",")
        self.expect(")")
        return f"({values})"

    # -- table options -------------------------------------------------------------------------------------------------

    def table_options(self, commas: bool) -> list[TableOption]:
        """As many options as follow; `commas` may stand between them in CREATE TABLE."""
        options: list[TableOption] = []
        while True:
            start = self.index
            if commas and options:
                self.accept(",")
            option = self.accept_table_option()
            if option is None:
                self.index = start
                return options
            options.append(option)

    def accept_table_option(self) -> TableOption | None:
        start = self.index
        defaulted = self.accept("DEFAULT")
        if self.accept_charset_keyword():
            self.equals()
            charset = self.charset_name()
            return TableOption("CHARACTER SET", f"DEFAULT CHARACTER SET = {charset.upper()}", value=charset)
        if self.accept("COLLATE"):
            self.equals()
            collate = self.collation_name()
            return TableOption("COLLATE", f"DEFAULT COLLATE = {collate.upper()}", value=collate)
        if defaulted:
            self.index = start
            return None
        return self.accept_partition_option() or self.accept_other_table_option()

    def accept_partition_option(self) -> TableOption | None:
        """Options that a table, a partition and a subpartition can have."""
        word = self.token.upper
        if self.accept("COMMENT"):
            return self.option(word, self.text)
        if self.accept("ENGINE") or self.accept("STORAGE", "ENGINE"):
            return self.option("ENGINE", lambda: self.string_name() or "''")
        if self.accept("INSERT_METHOD"):
            return self.option(word, lambda: self.string_name().upper())
        if self.accept("DATA", "DIRECTORY") or self.accept("INDEX", "DIRECTORY"):
            return self.option(f"{word} DIRECTORY", self.text)
        if self.accept_any(("MAX_ROWS", "MIN_ROWS", "NODEGROUP")):
            return self.option(word, lambda: str(self.unsigned()))
        if self.accept("TABLESPACE"):
            return self.option(word, self.name)
        if self.accept("PLACEMENT", "POLICY"):
            self.placement_policy()
            return TableOption("PLACEMENT POLICY", "")
        return None

    def placement_policy(self) -> None:
        """Placement is left out of what is sent."""
        if self.accept("SET", "DEFAULT"):
            return
        self.equals()
        if not self.accept("DEFAULT"):
            self.string_name()

    def option(self, name: str, value: Callable[[], str]) -> TableOption:
        self.equals()
        return TableOption(name, f"{name} = {value()}")

    def accept_other_table_option(self) -> TableOption | None:
        word = self.token.upper
        if word == "FORCE" and self.peek().upper in ("AUTO_INCREMENT", "AUTO_RANDOM_BASE"):
            self.next()
            option = self.accept_other_table_option()
            assert option is not None
            return TableOption(option.kind, f"{special('force_inc', 'FORCE')} {option.text}")
        if self.accept_any(_NUMERIC_OPTIONS):
            return self.option(word, lambda: str(self.unsigned()))
        if self.accept_any(("CONNECTION", "PASSWORD", "COMPRESSION", "STATS_COL_CHOICE", "STATS_COL_LIST")):
            return self.option(word, self.text)
        if self.accept_any(("STATS_AUTO_RECALC", "STATS_SAMPLE_PAGES")):
            option = self.option(word, lambda: "DEFAULT" if self.accept("DEFAULT") else str(self.unsigned()))
            if word == "STATS_AUTO_RECALC" and option.text.split()[-1] not in ("0", "1", "DEFAULT"):
                raise self.fail("0, 1 or DEFAULT")
            return option
        if self.accept_any(("STATS_PERSISTENT", "PACK_KEYS")):
            return self.ignored_option(word)
        if word == "STORAGE" and self.peek().upper in ("MEMORY", "DISK"):
            self.next()
            return TableOption(word, f"STORAGE {self.next().upper}")
        if self.accept("ROW_FORMAT"):
            return self.option(word, lambda: self.expect_any(_ROW_FORMATS))
        if self.accept("SECONDARY_ENGINE"):
            return self.option(word, lambda: "NULL" if self.accept("NULL") else quote_text(self.string_name()))
        if self.accept("UNION"):
            return self.option(word, self.union_tables)
        if self.accept("ENCRYPTION"):
            return self.option(word, self.encryption)
        if self.accept("STATS_SAMPLE_RATE"):
            return self.option(word, self.sample_rate)
        return self.accept_tidb_table_option()

    def accept_tidb_table_option(self) -> TableOption | None:
        word = self.token.upper
        features = {"AUTO_ID_CACHE": "auto_id_cache", "AUTO_RANDOM_BASE": "auto_rand_base"}
        features |= {"SHARD_ROW_ID_BITS": "", "PRE_SPLIT_REGIONS": ""}
        if self.accept_any(features):
            self.equals()
            return TableOption(word, special(features[word], f"{word} = {self.unsigned()}"))
        if self.accept("TTL"):
            self.equals()
            column = self.name()
            self.expect("+", "INTERVAL")
            amount = self.literal()
            return TableOption(word, special("ttl", f"TTL = {column} + INTERVAL {amount} {self.time_unit()}"))
        if self.accept("TTL_ENABLE"):
            self.equals()
            if self.raw_string().lower() not in ("on", "off"):
                raise self.fail("'ON' or 'OFF'")
            return TableOption(word, "")
        if self.accept("TTL_JOB_INTERVAL"):
            self.equals()
            return TableOption(word, special("ttl", f"TTL_JOB_INTERVAL = {self.text()}"))
        return None

    def ignored_option(self, name: str) -> TableOption:
        self.equals()
        if not self.accept("DEFAULT"):
            self.unsigned()
        remark = {"STATS_PERSISTENT": "TableOptionStatsPersistent", "PACK_KEYS": "TableOptionPackKeys"}[name]
        return TableOption(name, f"{name} = DEFAULT /* {remark} is not supported */ ")

    def encryption(self) -> str:
        value = self.raw_string()
        if value not in ("Y", "y", "N", "n"):
            raise self.fail("'Y' or 'N'")
        return quote_text(value)

    def union_tables(self) -> str:
        self.expect("(")
        tables = "" if self.at(")") else self.list_of(self.table_name, ",")
        self.expect(")")
        return f"({tables})"

    def sample_rate(self) -> str:
        token = self.token
        text = self.number()
        if token.kind is not Kind.FLOAT:
            return text
        mantissa, _, exponent = print_float(token.text).partition("e")
        return f"{float(token.text)!r}".removesuffix(".0") if -5 < int(exponent) < 16 else f"{mantissa}e{exponent}"

    # -- partitions ----------------------------------------------------------------------------------------------------

    def partition_by(self) -> str:
        self.expect("PARTITION", "BY")
        method, kind, interval = self.partition_method()
        number = self.partition_count("PARTITIONS")
        subpartition = ""
        subnumber = 0
        if self.accept("SUBPARTITION", "BY"):
            subpartition = f" SUBPARTITION BY {self.hash_or_key()[0]}"
            subnumber = self.partition_count("SUBPARTITIONS")
        definitions, counts = self.partition_definitions() if self.at("(") else ("", [])
        if len(set(counts)) > 1 or (counts and number and number != len(counts)):
            raise self.fail("as many partitions as were announced")
        if counts and counts[0]:
            if not subpartition or (subnumber and subnumber != counts[0]):
                raise self.fail("as many subpartitions as were announced")
            subnumber = counts[0]
        if kind in ("RANGE", "LIST") and not counts and not interval:
            raise self.fail("partition definitions")
        if kind in ("HASH", "KEY") and not number:
            number = 1
        text = f"PARTITION BY {method}"
        if number and not counts:
            text += f" PARTITIONS {number}"
        if subpartition:
            text += subpartition + (f" SUBPARTITIONS {subnumber}" if subnumber else "")
        return text + definitions + self.update_indexes()

    def partition_count(self, word: str) -> int:
        if not self.accept(word):
            return 0
        number = self.unsigned()
        if not number:
            raise self.fail("at least one partition")
        return number

    def partition_method(self) -> tuple[str, str, bool]:
        """The text, the kind, and whether the partitions come from an interval."""
        if kind := self.accept_any(("RANGE", "LIST")):
            if self.accept_any(("COLUMNS", "FIELDS")):
                text = f"{kind} COLUMNS {self.in_parentheses(self.column_name, ',')}"
            else:
                text = f"{kind} {self.expression_in_parentheses()}"
            interval = self.partition_interval() if kind == "RANGE" and self.at("INTERVAL") else ""
            return text + interval, kind, bool(interval)
        if self.accept("SYSTEM_TIME"):
            return self.system_time(), "SYSTEM_TIME", False
        text, kind = self.hash_or_key()
        return text, kind, False

    def expression_in_parentheses(self) -> str:
        self.expect("(")
        text = self.bits()
        self.expect(")")
        return f"({text})"

    def hash_or_key(self) -> tuple[str, str]:
        linear = "LINEAR " if self.accept("LINEAR") else ""
        if self.accept("HASH"):
            return f"{linear}HASH {self.expression_in_parentheses()}", "HASH"
        self.expect("KEY")
        algorithm = ""
        if self.accept("ALGORITHM"):
            self.expect("=")
            algorithm = f" ALGORITHM = {self.unsigned()}"
        self.expect("(")
        columns = "" if self.at(")") else self.list_of(self.column_name, ",")
        self.expect(")")
        return f"{linear}KEY{algorithm} ({columns})", "KEY"

    def system_time(self) -> str:
        if self.accept("INTERVAL"):
            amount = self.expression()
            return f"SYSTEM_TIME INTERVAL {amount} {self.time_unit()}"
        if self.accept("LIMIT"):
            limit = self.unsigned()
            return f"SYSTEM_TIME LIMIT {limit}" if limit else "SYSTEM_TIME"
        return "SYSTEM_TIME"

    def partition_interval(self) -> str:
        self.expect("INTERVAL", "(")
        amount = self.bits()
        unit = self.accept_time_unit()
        self.expect(")")
        text = f" INTERVAL ({amount}{' ' + unit if unit else ''})"
        if self.at("FIRST"):
            for edge in ("FIRST", "LAST"):
                self.expect(edge, "PARTITION", "LESS", "THAN")
                text += f" {edge} PARTITION LESS THAN {self.expression_in_parentheses()}"
        for edge in ("NULL", "MAXVALUE"):
            if self.accept(edge, "PARTITION"):
                text += f" {edge} PARTITION"
        return text

    def partition_definitions(self, separator: str = ",") -> tuple[str, list[int]]:
        """The definitions in parentheses, and how many subpartitions each has."""
        counts: list[int] = []

        def definition() -> str:
            text, subpartitions = self.partition_definition()
            counts.append(subpartitions)
            return text

        return f" {self.in_parentheses(definition, separator)}", counts

    def partition_definition(self) -> tuple[str, int]:
        self.expect("PARTITION")
        text = f"PARTITION {self.name()}{self.partition_values()}{self.partition_options()}"
        if not self.at("("):
            return text, 0
        subpartitions: list[str] = []

        def subpartition() -> str:
            self.expect("SUBPARTITION")
            subpartitions.append(f"SUBPARTITION {self.name()}{self.partition_options()}")
            return subpartitions[-1]

        return f"{text} {self.in_parentheses(subpartition, ',')}", len(subpartitions)

    def partition_options(self) -> str:
        text = ""
        while (option := self.accept_partition_option()) is not None:
            text += f" {option.text}"
        return text

    def partition_values(self) -> str:
        if self.accept("VALUES", "LESS", "THAN"):
            if self.accept("MAXVALUE"):
                return " VALUES LESS THAN (MAXVALUE)"
            return f" VALUES LESS THAN {self.in_parentheses(self.maxvalue_or_bits)}"
        if self.accept("VALUES", "IN"):
            return self.values_in()
        return f" {word}" if (word := self.accept_any(("DEFAULT", "HISTORY", "CURRENT"))) else ""

    def maxvalue_or_bits(self) -> str:
        return "MAXVALUE" if self.accept("MAXVALUE") else self.bits()

    def values_in(self) -> str:
        self.expect("(")
        values = [self.default_or_bits()]
        while self.accept(","):
            values.append(self.default_or_bits())
        self.expect(")")
        if len(values) == 1 and values[0].shape is Shape.DEFAULT:
            return " DEFAULT"
        texts = [f"({', '.join(value.items)})" if value.shape is Shape.ROW else value.text for value in values]
        return f" VALUES IN ({', '.join(texts)})"

    def default_or_bits(self) -> Expression:
        if self.at("DEFAULT") and self.peek().upper != "(":
            self.next()
            return Expression("DEFAULT", Shape.DEFAULT)
        return self.parse_bits()

    def update_indexes(self) -> str:
        if not self.accept("UPDATE", "INDEXES"):
            return ""

        def index() -> str:
            name = self.name()
            return f"{name} {self.expect_any(('GLOBAL', 'LOCAL'))}"

        return f" UPDATE INDEXES {self.in_parentheses(index, ',')}"
