"""Options of tables, partitions and databases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemill.tidb.ddltext.column_types import charset_text, equals, special
from tidemill.tidb.ddltext.constraints import engine_attribute
from tidemill.tidb.ddltext.dialects import Part
from tidemill.tidb.ddltext.queries.literals import print_float
from tidemill.tidb.ddltext.queries.parser import Parser
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


def printed_option(p: Parser, option: TableOption) -> TableOption:
    """Return an option as the dialect has it. Exact texts are without the remarks that TiDB prints behind some."""
    part = _PARTS.get(option.kind)
    text = option.text if part is None else p.dialect.part(part, option.text)
    return TableOption(option.kind, text.strip() if p.dialect.exact else text, option.value)


# Tables and partitions


def table_options(p: Parser, commas: bool) -> list[TableOption]:
    """Parse all options that follow. With `commas`, as in CREATE TABLE, commas may separate them."""
    options: list[TableOption] = []
    while True:
        start = p.index
        if commas and options:
            p.accept(",")
        option = _accept_table_option(p)
        if option is None:
            p.index = start
            return options
        options.append(printed_option(p, option))


def _accept_table_option(p: Parser) -> TableOption | None:
    start = p.index
    defaulted = p.accept("DEFAULT")
    if p.accept_charset_keyword():
        equals(p)
        charset = p.charset_name()
        return TableOption("CHARACTER SET", f"DEFAULT CHARACTER SET = {charset_text(p, charset)}", value=charset_text(p, charset))
    if p.accept("COLLATE"):
        equals(p)
        collate = p.collation_name()
        return TableOption("COLLATE", f"DEFAULT COLLATE = {collate.upper()}", value=collate)
    if defaulted:
        p.index = start
        return None
    return accept_partition_option(p) or _accept_other_table_option(p)


def accept_partition_option(p: Parser) -> TableOption | None:
    """Parse an option that tables, partitions and subpartitions can have."""
    word = p.token.upper
    if p.accept("COMMENT"):
        return _option(p, word, p.text)
    if p.accept("ENGINE") or p.accept("STORAGE", "ENGINE"):
        return _option(p, "ENGINE", lambda: p.string_name() or "''")
    if p.accept("INSERT_METHOD"):
        return _option(p, word, lambda: p.string_name().upper())
    if p.accept("DATA", "DIRECTORY") or p.accept("INDEX", "DIRECTORY"):
        return _option(p, f"{word} DIRECTORY", p.text)
    if p.accept_any(("MAX_ROWS", "MIN_ROWS", "NODEGROUP")):
        return _option(p, word, lambda: str(p.unsigned()))
    if p.accept("TABLESPACE"):
        return _option(p, word, p.name)
    if p.accept("PLACEMENT", "POLICY"):
        _placement_policy(p)
        return TableOption("PLACEMENT POLICY", "")
    return None


def _placement_policy(p: Parser) -> None:
    """Parse a placement policy. It is not sent."""
    if p.accept("SET", "DEFAULT"):
        return
    equals(p)
    if not p.accept("DEFAULT"):
        p.string_name()


def _option(p: Parser, name: str, value: Callable[[], str]) -> TableOption:
    equals(p)
    return TableOption(name, f"{name} = {value()}")


def _accept_other_table_option(p: Parser) -> TableOption | None:
    word = p.token.upper
    if word == "FORCE" and p.peek().upper in ("AUTO_INCREMENT", "AUTO_RANDOM_BASE"):
        p.next()
        option = _accept_other_table_option(p)
        assert option is not None
        return TableOption(option.kind, f"{special('force_inc', 'FORCE')} {option.text}")
    if p.accept_any(_NUMERIC_OPTIONS):
        return _option(p, word, lambda: str(p.unsigned()))
    if p.accept_any(("CONNECTION", "PASSWORD", "COMPRESSION", "STATS_COL_CHOICE", "STATS_COL_LIST")):
        return _option(p, word, p.text)
    if p.accept_any(("STATS_AUTO_RECALC", "STATS_SAMPLE_PAGES")):
        option = _option(p, word, lambda: "DEFAULT" if p.accept("DEFAULT") else str(p.unsigned()))
        if word == "STATS_AUTO_RECALC" and option.text.split()[-1] not in ("0", "1", "DEFAULT"):
            raise p.fail("0, 1 or DEFAULT")
        return option
    if p.accept_any(("AUTOEXTEND_SIZE", "IETF_QUOTES")):
        return _option(p, word, lambda: p.number() if p.token.kind is Kind.INT else p.string_name())
    if p.at("SECONDARY_ENGINE_ATTRIBUTE"):
        return TableOption(word, engine_attribute(p))
    if p.accept_any(("STATS_PERSISTENT", "PACK_KEYS")):
        return _ignored_option(p, word)
    if word == "STORAGE" and p.peek().upper in ("MEMORY", "DISK"):
        p.next()
        return TableOption(word, f"STORAGE {p.next().upper}")
    if p.accept("ROW_FORMAT"):
        return _option(p, word, lambda: p.expect_any(_ROW_FORMATS))
    if p.accept("SECONDARY_ENGINE"):
        return _option(p, word, lambda: "NULL" if p.accept("NULL") else p.quoted(p.string_name()))
    if p.accept("UNION"):
        return _option(p, word, lambda: _union_tables(p))
    if p.accept("ENCRYPTION"):
        return _option(p, word, lambda: _encryption(p))
    if p.accept("STATS_SAMPLE_RATE"):
        return _option(p, word, lambda: _sample_rate(p))
    return _accept_tidb_table_option(p)


def _accept_tidb_table_option(p: Parser) -> TableOption | None:
    word = p.token.upper
    features = {"AUTO_ID_CACHE": "auto_id_cache", "AUTO_RANDOM_BASE": "auto_rand_base"}
    features |= {"SHARD_ROW_ID_BITS": "", "PRE_SPLIT_REGIONS": ""}
    if p.accept_any(features):
        equals(p)
        return TableOption(word, special(features[word], f"{word} = {p.unsigned()}"))
    if p.accept("TTL"):
        equals(p)
        column = p.name()
        p.expect("+", "INTERVAL")
        amount = p.literal()
        return TableOption(word, special("ttl", f"TTL = {column} + INTERVAL {amount} {p.time_unit()}"))
    if p.accept("TTL_ENABLE"):
        equals(p)
        if p.raw_string().lower() not in ("on", "off"):
            raise p.fail("'ON' or 'OFF'")
        return TableOption(word, "")
    if p.accept("TTL_JOB_INTERVAL"):
        equals(p)
        return TableOption(word, special("ttl", f"TTL_JOB_INTERVAL = {p.text()}"))
    if p.accept("AFFINITY"):
        equals(p)
        return TableOption(word, special("affinity", f"AFFINITY = {p.quoted(p.string_name())}"))
    return None


def _ignored_option(p: Parser, name: str) -> TableOption:
    equals(p)
    if not p.accept("DEFAULT"):
        p.unsigned()
    remark = {"STATS_PERSISTENT": "TableOptionStatsPersistent", "PACK_KEYS": "TableOptionPackKeys"}[name]
    return TableOption(name, f"{name} = DEFAULT" + ("" if p.dialect.exact else f" /* {remark} is not supported */ "))


def _encryption(p: Parser) -> str:
    value = p.raw_string()
    if value not in ("Y", "y", "N", "n"):
        raise p.fail("'Y' or 'N'")
    return p.quoted(value)


def _union_tables(p: Parser) -> str:
    p.expect("(")
    tables = "" if p.at(")") else p.list_of(p.table_name, ",")
    p.expect(")")
    return f"({tables})"


def _sample_rate(p: Parser) -> str:
    token = p.token
    text = p.number()
    if token.kind is not Kind.FLOAT:
        return text
    mantissa, _, exponent = print_float(token.text).partition("e")
    return f"{float(token.text)!r}".removesuffix(".0") if -5 < int(exponent) < 16 else f"{mantissa}e{exponent}"


# Databases


def database_options(p: Parser) -> list[str]:
    options = []
    while True:
        start = p.index
        defaulted = p.accept("DEFAULT")
        if p.accept_charset_keyword():
            equals(p)
            charset = p.charset_name()
            options.append(f"CHARACTER SET = {charset_text(p, charset) if p.dialect.exact else charset}")
        elif p.accept("COLLATE"):
            equals(p)
            options.append(f"COLLATE = {p.collation_name()}")
        elif p.accept("ENCRYPTION"):
            equals(p)
            options.append(p.dialect.part(Part.MYSQL_OPTION, f"ENCRYPTION = {_encryption(p)}"))
        elif p.accept("PLACEMENT", "POLICY"):
            _placement_policy(p)
            options.append("")
        elif not defaulted and p.accept("SET", "TIFLASH", "REPLICA"):
            options.append(p.dialect.part(Part.TIFLASH_REPLICA, f"SET TIFLASH REPLICA {tiflash_replica(p)}"))
        else:
            p.index = start
            return options


def tiflash_replica(p: Parser) -> str:
    text = str(p.unsigned())
    if p.accept("LOCATION", "LABELS"):
        text += f" LOCATION LABELS {p.list_of(p.text)}"
    return text


def word_of(p: Parser, choices: tuple[str, ...]) -> str:
    word = p.token.upper or p.token.text.upper()
    if word not in choices:
        raise p.fail("one of " + ", ".join(choices))
    p.next()
    return word
