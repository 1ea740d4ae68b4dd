"""PARTITION BY and definitions of partitions."""

from __future__ import annotations

from tidemill.tidb.ddltext.dialects import Part
from tidemill.tidb.ddltext.options import accept_partition_option, printed_option
from tidemill.tidb.ddltext.queries.expressions import parse_bits
from tidemill.tidb.ddltext.queries.parser import Expression, Parser, Shape


def partition_by(p: Parser) -> str:
    p.expect("PARTITION", "BY")
    method, kind, interval = _partition_method(p)
    number = _partition_count(p, "PARTITIONS")
    subpartition = ""
    subnumber = 0
    if p.accept("SUBPARTITION", "BY"):
        subpartition = f" SUBPARTITION BY {_hash_or_key(p)[0]}"
        subnumber = _partition_count(p, "SUBPARTITIONS")
    definitions, counts = partition_definitions(p) if p.at("(") else ("", [])
    if len(set(counts)) > 1 or (counts and number and number != len(counts)):
        raise p.fail("as many partitions as were announced")
    if counts and counts[0]:
        if not subpartition or (subnumber and subnumber != counts[0]):
            raise p.fail("as many subpartitions as were announced")
        subnumber = counts[0]
    if kind in ("RANGE", "LIST") and not counts and not interval:
        raise p.fail("partition definitions")
    if kind in ("HASH", "KEY") and not number:
        number = 1
    text = f"PARTITION BY {method}"
    if number and not counts:
        text += f" PARTITIONS {number}"
    if subpartition:
        text += subpartition + (f" SUBPARTITIONS {subnumber}" if subnumber else "")
    return text + definitions + _update_indexes(p)


def _partition_count(p: Parser, word: str) -> int:
    if not p.accept(word):
        return 0
    number = p.unsigned()
    if not number:
        raise p.fail("at least one partition")
    return number


def _partition_method(p: Parser) -> tuple[str, str, bool]:
    """Parse a method. Returns its text, its kind, and whether the partitions come from an interval."""
    if kind := p.accept_any(("RANGE", "LIST")):
        if p.accept_any(("COLUMNS", "FIELDS")):
            text = f"{kind} COLUMNS {p.in_parentheses(p.column_name, ',')}"
        else:
            text = f"{kind} {expression_in_parentheses(p)}"
        interval = _partition_interval(p) if kind == "RANGE" and p.at("INTERVAL") else ""
        return text + interval, kind, bool(interval)
    if p.accept("SYSTEM_TIME"):
        return _system_time(p), "SYSTEM_TIME", False
    text, kind = _hash_or_key(p)
    return text, kind, False


def expression_in_parentheses(p: Parser) -> str:
    p.expect("(")
    text = p.bits()
    p.expect(")")
    return f"({text})"


def _hash_or_key(p: Parser) -> tuple[str, str]:
    linear = "LINEAR " if p.accept("LINEAR") else ""
    if p.accept("HASH"):
        return f"{linear}HASH {expression_in_parentheses(p)}", "HASH"
    p.expect("KEY")
    algorithm = ""
    if p.accept("ALGORITHM"):
        p.expect("=")
        algorithm = f" ALGORITHM = {p.unsigned()}"
    p.expect("(")
    columns = "" if p.at(")") else p.list_of(p.column_name, ",")
    p.expect(")")
    return f"{linear}KEY{algorithm} ({columns})", "KEY"


def _system_time(p: Parser) -> str:
    if p.accept("INTERVAL"):
        amount = p.expression()
        return f"SYSTEM_TIME INTERVAL {amount} {p.time_unit()}"
    if p.accept("LIMIT"):
        limit = p.unsigned()
        return f"SYSTEM_TIME LIMIT {limit}" if limit else "SYSTEM_TIME"
    return "SYSTEM_TIME"


def _partition_interval(p: Parser) -> str:
    p.expect("INTERVAL", "(")
    amount = p.bits()
    unit = p.accept_time_unit()
    p.expect(")")
    text = f" INTERVAL ({amount}{' ' + unit if unit else ''})"
    if p.at("FIRST"):
        for edge in ("FIRST", "LAST"):
            p.expect(edge, "PARTITION", "LESS", "THAN")
            text += f" {edge} PARTITION LESS THAN {expression_in_parentheses(p)}"
    for edge in ("NULL", "MAXVALUE"):
        if p.accept(edge, "PARTITION"):
            text += f" {edge} PARTITION"
    return p.dialect.part(Part.INTERVAL_PARTITIONS, text)


def partition_definitions(p: Parser, separator: str = ",") -> tuple[str, list[int]]:
    """Parse the definitions in parentheses. Returns their text, and how many subpartitions each has."""
    counts: list[int] = []

    def definition() -> str:
        text, subpartitions = _partition_definition(p)
        counts.append(subpartitions)
        return text

    return f" {p.in_parentheses(definition, separator)}", counts


def _partition_definition(p: Parser) -> tuple[str, int]:
    p.expect("PARTITION")
    text = f"PARTITION {p.name()}{_partition_values(p)}{_partition_options(p)}"
    if not p.at("("):
        return text, 0
    subpartitions: list[str] = []

    def subpartition() -> str:
        p.expect("SUBPARTITION")
        subpartitions.append(f"SUBPARTITION {p.name()}{_partition_options(p)}")
        return subpartitions[-1]

    return f"{text} {p.in_parentheses(subpartition, ',')}", len(subpartitions)


def _partition_options(p: Parser) -> str:
    text = ""
    while (option := accept_partition_option(p)) is not None:
        printed = printed_option(p, option).text
        text += f" {printed}" if printed or not p.dialect.exact else ""
    return text


def _partition_values(p: Parser) -> str:
    if p.accept("VALUES", "LESS", "THAN"):
        if p.accept("MAXVALUE"):
            return " VALUES LESS THAN (MAXVALUE)"
        return f" VALUES LESS THAN {p.in_parentheses(lambda: _maxvalue_or_bits(p))}"
    if p.accept("VALUES", "IN"):
        return _values_in(p)
    if p.accept("DEFAULT"):
        return _list_default(p, "DEFAULT")
    return f" {word}" if (word := p.accept_any(("HISTORY", "CURRENT"))) else ""


def _list_default(p: Parser, text: str) -> str:
    return f" {p.dialect.part(Part.LIST_DEFAULT, text)}"


def _maxvalue_or_bits(p: Parser) -> str:
    return "MAXVALUE" if p.accept("MAXVALUE") else p.bits()


def _values_in(p: Parser) -> str:
    p.expect("(")
    values = [_default_or_bits(p)]
    while p.accept(","):
        values.append(_default_or_bits(p))
    p.expect(")")
    if len(values) == 1 and values[0].shape is Shape.DEFAULT:
        return _list_default(p, "DEFAULT")
    texts = [f"({', '.join(value.items)})" if value.shape is Shape.ROW else value.text for value in values]
    text = f"VALUES IN ({', '.join(texts)})"
    return _list_default(p, text) if any(value.shape is Shape.DEFAULT for value in values) else f" {text}"


def _default_or_bits(p: Parser) -> Expression:
    if p.at("DEFAULT") and p.peek().upper != "(":
        p.next()
        return Expression("DEFAULT", Shape.DEFAULT)
    return parse_bits(p)


def _update_indexes(p: Parser) -> str:
    if not p.accept("UPDATE", "INDEXES"):
        return ""

    def index() -> str:
        name = p.name()
        return f"{name} {p.expect_any(('GLOBAL', 'LOCAL'))}"

    text = p.dialect.part(Part.UPDATE_INDEXES, f"UPDATE INDEXES {p.in_parentheses(index, ',')}")
    return f" {text}" if text else ""
