"""Columns: type, options in the order of the text, and default values."""

from __future__ import annotations

from collections.abc import Callable

from tidemill.tidb.ddltext.column_types import column_type, special
from tidemill.tidb.ddltext.constraints import (
    after_blank,
    at_constraint,
    check_expression,
    constraint_symbol,
    enforced,
    engine_attribute,
    global_or_local,
    references,
    table_constraint,
)
from tidemill.tidb.ddltext.dialects import Part
from tidemill.tidb.ddltext.queries.expressions import column_or_call
from tidemill.tidb.ddltext.queries.functions import argument_list, empty_parentheses, next_value, precision
from tidemill.tidb.ddltext.queries.parser import Parser
from tidemill.tidb.names import quote_name
from tidemill.tidb.sql.lexer import Kind

# Columns


def table_elements(p: Parser) -> tuple[list[str], list[str]]:
    """Parse the columns and constraints; TiDB prints all columns first."""
    columns: list[str] = []
    constraints: list[str] = []
    p.expect("(")
    while True:
        if at_constraint(p):
            constraints.append(table_constraint(p))
        else:
            columns.append(column_definition(p))
        if not p.accept(","):
            break
    p.expect(")")
    return columns, [constraint for constraint in constraints if constraint]


def column_definition(p: Parser) -> str:
    name = p.column_name()
    if p.accept("SERIAL"):
        return f"{name} BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE KEY" + _column_options(p)
    kind = column_type(p)
    return f"{name} {kind}{_column_options(p, floating=kind.startswith(('FLOAT', 'DOUBLE')))}"


def _column_options(p: Parser, *, floating: bool = False) -> str:
    options: list[str] = []
    while option := _accept_column_option(p):
        options.append(option)
    if any(option.startswith("GENERATED ") for option in options) and any(
        option.startswith(("DEFAULT ", "ON UPDATE ", "AUTO_INCREMENT")) for option in options
    ):
        raise p.fail("a generated column without DEFAULT, ON UPDATE and AUTO_INCREMENT")
    if any(option.startswith("GENERATED ") for option in options):
        options = [p.dialect.part(Part.GENERATED_NOT_NULL, option) if option == "NOT NULL" else option for option in options]
    if p.dialect.exact:  # MariaDB takes a CHECK behind everything else
        options.sort(key=lambda option: option.startswith(("CHECK(", "CONSTRAINT ")))
    if floating:
        options = [p.dialect.part(Part.FLOAT_AUTO_INCREMENT, option) if option == "AUTO_INCREMENT" else option for option in options]
    return "".join(f" {option}" for option in options if option.strip())


def _accept_column_option(p: Parser) -> str:
    """Parse an option. Returns a blank for one that the dialect leaves out."""
    if p.accept("NOT", "NULL"):
        return "NOT NULL"
    if p.accept("NULL"):
        return "NULL"
    if p.accept("AUTO_INCREMENT"):
        return "AUTO_INCREMENT"
    if p.accept("PRIMARY", "KEY") or p.accept("KEY"):
        return _column_primary_key(p)
    if p.accept("UNIQUE"):
        p.accept("KEY")
        return "UNIQUE KEY" + global_or_local(p)
    if p.accept("DEFAULT"):
        return f"DEFAULT {_default_value(p)}"
    if p.accept("SERIAL", "DEFAULT", "VALUE"):
        return "NOT NULL AUTO_INCREMENT UNIQUE KEY"
    if p.accept("ON", "UPDATE"):
        return f"ON UPDATE {_now(p)}"
    if p.accept("COMMENT"):
        return f"COMMENT {p.plain_string()}"
    if p.at_any(("CONSTRAINT", "CHECK")):
        return _column_check(p)
    if p.at_any(("GENERATED", "AS")):
        return _generated(p)
    if p.at("REFERENCES"):
        return p.dialect.part(Part.COLUMN_REFERENCES, references(p)) or " "
    if p.accept("COLLATE"):
        return f"COLLATE {p.collation_name()}"
    if p.accept("COLUMN_FORMAT"):
        return p.dialect.part(Part.COLUMN_FORMAT, f"COLUMN_FORMAT {p.expect_any(('DEFAULT', 'FIXED', 'DYNAMIC'))}") or " "
    if p.accept("STORAGE"):
        return p.dialect.part(Part.COLUMN_FORMAT, f"STORAGE {p.expect_any(('DEFAULT', 'DISK', 'MEMORY'))}") or " "
    if p.at("SECONDARY_ENGINE_ATTRIBUTE"):
        return engine_attribute(p) or " "
    if p.accept("AUTO_RANDOM"):
        return _auto_random(p)
    return ""


def _column_primary_key(p: Parser) -> str:
    clustered = p.accept_any(("CLUSTERED", "NONCLUSTERED"))
    text = "PRIMARY KEY" + (f" {special('clustered_index', clustered)}" if clustered else "")
    return text + global_or_local(p)


def _auto_random(p: Parser) -> str:
    text = "AUTO_RANDOM"
    if p.accept("("):
        text += f"({p.unsigned()}"
        text += f", {p.unsigned()})" if p.accept(",") else ")"
        p.expect(")")
    return special("auto_rand", text)


def _column_check(p: Parser) -> str:
    symbol = constraint_symbol(p)
    text = f"CONSTRAINT {quote_name(symbol)} " if symbol else ""
    text += f"CHECK{check_expression(p)}"
    if p.at("NOT", "NULL"):
        return text + after_blank(p, Part.ENFORCED)
    return text + enforced(p)


def _generated(p: Parser) -> str:
    if p.accept("GENERATED"):
        p.expect("ALWAYS")
    p.expect("AS", "(")
    expression = p.expression()
    p.expect(")")
    storage = p.accept_any(("VIRTUAL", "STORED")) or "VIRTUAL"
    return f"GENERATED ALWAYS AS({expression}) {storage}"


# Defaults


def _default_value(p: Parser) -> str:
    if now := p.try_parse(lambda: _without_parentheses(p, lambda: _now(p))):
        return now if now.startswith("CURRENT_TIMESTAMP") else f"({now})"
    if p.at_any(("+", "-")):
        return p.next().upper + p.number()
    if literal := p.accept_literal():
        return literal
    if p.at("(") and (value := p.try_parse(lambda: _parenthesised_default(p))):
        return value
    call = p.try_parse(lambda: _without_parentheses(p, lambda: _sequence_value(p)))
    return f"({call or _without_parentheses(p, lambda: _default_function(p))})"


def _parenthesised_default(p: Parser) -> str:
    """Parse a literal or a column's name in one pair of parentheses. TiDB prints those of a name alone."""
    p.expect("(")
    if sign := p.accept_any(("+", "-")):
        value = sign + p.number()
    elif not (value := p.accept_literal()):
        value = f"({p.name()})"
    p.expect(")")
    return value


def _without_parentheses(p: Parser, parse: Callable[[], str]) -> str:
    if not p.accept("("):
        return parse()
    text = _without_parentheses(p, parse)
    p.expect(")")
    return text


def _now(p: Parser) -> str:
    """Parse CURRENT_TIMESTAMP or a synonym."""
    word = p.expect_any(("CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP", "NOW", "CURDATE", "CURRENT_DATE"))
    if word == "CURRENT_DATE" and not p.at("("):
        return "CURRENT_DATE()"
    if word in ("CURDATE", "CURRENT_DATE"):
        return f"CURRENT_DATE{empty_parentheses(p)}"
    if word == "NOW" and not p.at("("):
        raise p.fail("(")
    return f"CURRENT_TIMESTAMP{precision(p)}"


def _sequence_value(p: Parser) -> str:
    if p.accept("NEXTVAL"):
        p.expect("(")
        sequence = p.table_name()
        p.expect(")")
        return f"NEXTVAL({sequence})"
    return next_value(p)


def _default_function(p: Parser) -> str:
    if p.token.kind is not Kind.NAME and not p.at("REPLACE"):
        raise p.fail("a default value")
    if p.peek().upper != "(":
        raise p.fail("a default value")
    return _parse_operand_call(p)


def _parse_operand_call(p: Parser) -> str:
    return "REPLACE" + argument_list(p) if p.accept("REPLACE") else column_or_call(p)
