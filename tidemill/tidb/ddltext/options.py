"""Options of tables, partitions and databases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemill.tidb.ddltext.column_types import special
from tidemill.tidb.ddltext.columns import Columns
from tidemill.tidb.ddltext.dialects import Part
from tidemill.tidb.ddltext.queries.literals import print_float
from tidemill.tidb.sql.keywords import words
from tidemill.tidb.sql.lexer import Kind

_NUMERIC_OPTIONS = words("""
    AUTO_INCREMENT AVG_ROW_LENGTH CHECKSUM TABLE_CHECKSUM KEY_BLOCK_SIZE DELAY_KEY_WRITE STATS_BUCKETS STATS_TOPN
    PAGE_CHECKSUM PAGE_COMPRESSED PAGE_COMPRESSION_LEVEL TRANSACTIONAL SEQUENCE
    """)

_PARTS = dict.fromkeys(words("STATS_BUCKETS STATS_TOPN STATS_COL_CHOICE STATS_COL_LIST STATS_SAMPLE_RATE"), Part.TIDB_OPTION)
_PARTS |= dict.fromkeys(
    words("COMPRESSION ENCRYPTION SECONDARY_ENGINE SECONDARY_ENGINE_ATTRIBUTE AUTOEXTEND_SIZE NODEGROUP TABLESPACE STORAGE"),
    Part.MYSQL_OPTION,
)
_PARTS |= {"ENGINE": Part.ENGINE, "DATA DIRECTORY": Part.DIRECTORY, "INDEX DIRECTORY": Part.DIRECTORY}
"""Options that not every database has, or that mean more there than in TiDB."""

_ROW_FORMATS = words("""
    DEFAULT DYNAMIC FIXED COMPRESSED REDUNDANT COMPACT TOKUDB_DEFAULT TOKUDB_FAST TOKUDB_SMALL TOKUDB_ZLIB TOKUDB_ZSTD
    TOKUDB_QUICKLZ TOKUDB_LZMA TOKUDB_SNAPPY TOKUDB_UNCOMPRESSED
    """)


@dataclass(frozen=True, slots=True)
class TableOption:
    """An option as it is printed."""

    kind: str  # the option's name
    text: str
    value: str = ""  # of CHARACTER SET and COLLATE: ALTER TABLE prints a pair of them differently


def with_ttl_off(options: list[TableOption]) -> list[TableOption]:
    """Return the options with TTL_ENABLE set to OFF after each TTL, because consumers must not delete rows themselves."""
    result = []
    for option in options:
        if option.kind != "TTL_ENABLE":
            result.append(option)
        if option.kind == "TTL":
            result.append(TableOption("TTL_ENABLE", special("ttl", "TTL_ENABLE = 'OFF'")))
    return result


class Options(Columns):
    """Options in the order of the text. Placement is not sent, and TTL is switched off for consumers."""

    def printed_option(self, option: TableOption) -> TableOption:
        """Return an option as the dialect has it. Exact texts are without the remarks that TiDB prints behind some."""
        part = _PARTS.get(option.kind)
        text = option.text if part is None else self.dialect.part(part, option.text)
        return TableOption(option.kind, text.strip() if self.dialect.exact else text, option.value)

    # Tables and partitions

    def table_options(self, commas: bool) -> list[TableOption]:
        """Parse all options that follow. With `commas`, as in CREATE TABLE, commas may separate them."""
        options: list[TableOption] = []
        while True:
            start = self.index
            if commas and options:
                self.accept(",")
            option = self.accept_table_option()
            if option is None:
                self.index = start
                return options
            options.append(self.printed_option(option))

    def accept_table_option(self) -> TableOption | None:
        start = self.index
        defaulted = self.accept("DEFAULT")
        if self.accept_charset_keyword():
            self.equals()
            charset = self.charset_name()
            return TableOption("CHARACTER SET", f"DEFAULT CHARACTER SET = {self.charset_text(charset)}", value=self.charset_text(charset))
        if self.accept("COLLATE"):
            self.equals()
            collate = self.collation_name()
            return TableOption("COLLATE", f"DEFAULT COLLATE = {collate.upper()}", value=collate)
        if defaulted:
            self.index = start
            return None
        return self.accept_partition_option() or self.accept_other_table_option()

    def accept_partition_option(self) -> TableOption | None:
        """Parse an option that tables, partitions and subpartitions can have."""
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
        """Parse a placement policy. It is not sent."""
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
        if self.accept_any(("AUTOEXTEND_SIZE", "IETF_QUOTES")):
            return self.option(word, lambda: self.number() if self.token.kind is Kind.INT else self.string_name())
        if self.at("SECONDARY_ENGINE_ATTRIBUTE"):
            return TableOption(word, self.engine_attribute())
        if self.accept_any(("STATS_PERSISTENT", "PACK_KEYS")):
            return self.ignored_option(word)
        if word == "STORAGE" and self.peek().upper in ("MEMORY", "DISK"):
            self.next()
            return TableOption(word, f"STORAGE {self.next().upper}")
        if self.accept("ROW_FORMAT"):
            return self.option(word, lambda: self.expect_any(_ROW_FORMATS))
        if self.accept("SECONDARY_ENGINE"):
            return self.option(word, lambda: "NULL" if self.accept("NULL") else self.quoted(self.string_name()))
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
        if self.accept("AFFINITY"):
            self.equals()
            return TableOption(word, special("affinity", f"AFFINITY = {self.quoted(self.string_name())}"))
        return None

    def ignored_option(self, name: str) -> TableOption:
        self.equals()
        if not self.accept("DEFAULT"):
            self.unsigned()
        remark = {"STATS_PERSISTENT": "TableOptionStatsPersistent", "PACK_KEYS": "TableOptionPackKeys"}[name]
        return TableOption(name, f"{name} = DEFAULT" + ("" if self.dialect.exact else f" /* {remark} is not supported */ "))

    def encryption(self) -> str:
        value = self.raw_string()
        if value not in ("Y", "y", "N", "n"):
            raise self.fail("'Y' or 'N'")
        return self.quoted(value)

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

    # Databases

    def database_options(self) -> list[str]:
        options = []
        while True:
            start = self.index
            defaulted = self.accept("DEFAULT")
            if self.accept_charset_keyword():
                self.equals()
                charset = self.charset_name()
                options.append(f"CHARACTER SET = {self.charset_text(charset) if self.dialect.exact else charset}")
            elif self.accept("COLLATE"):
                self.equals()
                options.append(f"COLLATE = {self.collation_name()}")
            elif self.accept("ENCRYPTION"):
                self.equals()
                options.append(self.dialect.part(Part.MYSQL_OPTION, f"ENCRYPTION = {self.encryption()}"))
            elif self.accept("PLACEMENT", "POLICY"):
                self.placement_policy()
                options.append("")
            elif not defaulted and self.accept("SET", "TIFLASH", "REPLICA"):
                options.append(self.dialect.part(Part.TIFLASH_REPLICA, f"SET TIFLASH REPLICA {self.tiflash_replica()}"))
            else:
                self.index = start
                return options

    def tiflash_replica(self) -> str:
        text = str(self.unsigned())
        if self.accept("LOCATION", "LABELS"):
            text += f" LOCATION LABELS {self.list_of(self.text)}"
        return text

    def word_of(self, choices: tuple[str, ...]) -> str:
        word = self.token.upper or self.token.text.upper()
        if word not in choices:
            raise self.fail("one of " + ", ".join(choices))
        self.next()
        return word
