"""Constraints and indexes."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.tidb.ddltext.column_types import equals, part_if_not_exists, special
from tidemill.tidb.ddltext.dialects import Part
from tidemill.tidb.ddltext.queries.functions import field_length
from tidemill.tidb.ddltext.queries.parser import Parser
from tidemill.tidb.ddltext.queries.select import value_or_default
from tidemill.tidb.names import quote_name
from tidemill.tidb.sql.keywords import words

INDEX_TYPES = ("BTREE", "HASH", "RTREE", "HYPO", "HNSW", "INVERTED")

_CONSTRAINT_STARTS = words("CONSTRAINT PRIMARY FULLTEXT KEY INDEX UNIQUE FOREIGN CHECK")


@dataclass(slots=True)
class IndexOptions:
    """Options of an index in TiDB's order; a later one of the same kind wins."""

    on_demand: bool = False
    clustered: str = ""
    key_block_size: int = 0
    index_type: str = ""
    parser: str = ""
    comment: str = ""  # quoted
    global_index: bool = False
    visibility: str = ""
    split: str = ""
    engine_attribute: str = ""  # quoted
    condition: str = ""

    def print(self) -> str:
        """Return the options, each after a blank."""
        parts = (
            self.on_demand and "ADD_COLUMNAR_REPLICA_ON_DEMAND",
            self.clustered and special("clustered_index", self.clustered),
            self.key_block_size and f"KEY_BLOCK_SIZE={self.key_block_size}",
            self.index_type and f"USING {self.index_type}",
            self.parser,
            self.comment and f"COMMENT {self.comment}",
            self.global_index and special("global_index", "GLOBAL"),
            self.visibility,
            self.split and special("pre_split", f"PRE_SPLIT_REGIONS = {self.split}"),
            self.engine_attribute and f"SECONDARY_ENGINE_ATTRIBUTE = {self.engine_attribute}",
            self.condition,
        )
        return "".join(f" {part}" for part in parts if part)


# Constraints


def at_constraint(p: Parser) -> bool:
    return p.at_any(_CONSTRAINT_STARTS) or p.at("VECTOR", "INDEX") or p.at("COLUMNAR", "INDEX")


def table_constraint(p: Parser) -> str:
    """Parse a constraint or an index. Returns nothing for one that the dialect leaves out."""
    if p.accept("VECTOR", "INDEX"):
        return _index_constraint(p, "VECTOR INDEX", None, exists_clause=True, default_type="HNSW")
    if p.accept("COLUMNAR", "INDEX"):
        return _index_constraint(p, "COLUMNAR INDEX", None, exists_clause=True)
    symbol = constraint_symbol(p)
    if p.accept("PRIMARY", "KEY"):
        return _index_constraint(p, "PRIMARY KEY", symbol)
    if p.accept("FULLTEXT"):
        p.accept_any(("KEY", "INDEX"))
        return _index_constraint(p, "FULLTEXT", symbol, typed=False)
    if p.accept_any(("KEY", "INDEX")):
        return _index_constraint(p, "INDEX", symbol, exists_clause=True)
    if p.accept("UNIQUE"):
        p.accept_any(("KEY", "INDEX"))
        return _index_constraint(p, "UNIQUE", symbol)
    if p.accept("FOREIGN", "KEY"):
        return _foreign_key(p, symbol)
    if p.at("CHECK"):
        prefix = f"CONSTRAINT {quote_name(symbol)} " if symbol else ""
        return f"{prefix}CHECK{check_expression(p)}{enforced(p)}"
    raise p.fail("a constraint")


def constraint_symbol(p: Parser) -> str | None:
    """Parse the name after CONSTRAINT; None when there is no name."""
    if p.accept("CONSTRAINT") and p.at_identifier():
        return p.identifier()
    return None


def check_expression(p: Parser) -> str:
    p.expect("CHECK", "(")
    expression = p.expression()
    p.expect(")")
    return f"({expression})"


def enforced(p: Parser) -> str:
    part = Part.NOT_ENFORCED if p.accept("NOT", "ENFORCED") else Part.ENFORCED
    if part is Part.ENFORCED:
        p.accept("ENFORCED")
    return after_blank(p, part)


def after_blank(p: Parser, part: Part) -> str:
    """Return a blank and what stands for a part of fixed words; nothing if nothing does."""
    text = p.dialect.part(part, part.value)
    return f" {text}" if text else ""


def global_or_local(p: Parser) -> str:
    if p.accept("GLOBAL"):
        return after_blank(p, Part.GLOBAL_KEY)
    p.accept("LOCAL")
    return ""


# Indexes


def _index_constraint(
    p: Parser,
    head: str,
    symbol: str | None,
    *,
    typed: bool = True,
    exists_clause: bool = False,
    default_type: str = "",
) -> str:
    """Parse the rest of an index; the name after CONSTRAINT wins over the index name."""
    if exists_clause:
        head += f" {part_if_not_exists(p)}".rstrip()
    name = symbol
    index_type = ""
    if p.at_identifier() and not (p.at("USING") or p.at("(")):
        written = p.identifier()
        name = written if symbol is None else symbol
        if typed and p.accept("TYPE"):
            index_type = p.expect_any(INDEX_TYPES)
    if typed and p.accept("USING"):
        index_type = p.expect_any(INDEX_TYPES)
    columns, kind = index_columns(p)
    options = index_options(p)
    options.index_type = index_type or options.index_type or default_type
    head = index_head(p, head, kind, options)
    return f"{head}{'' if name is None else ' ' + quote_name(name)}{columns}{options.print()}" if head else ""


def index_columns(p: Parser) -> tuple[str, Part | None]:
    """Parse the parts of an index. Returns them, and the kind of index that they make, if it is one that not every database has."""
    kinds: set[Part] = set()

    def part() -> str:
        start, is_expression = p.index, p.at("(")
        text = _index_part(p)
        if is_expression:
            is_array = any(token.upper == "ARRAY" for token in p.tokens[start : p.index])
            kinds.add(Part.MULTI_VALUED_INDEX if is_array else Part.EXPRESSION_INDEX)
        return text

    columns = p.in_parentheses(part)
    return columns, Part.MULTI_VALUED_INDEX if Part.MULTI_VALUED_INDEX in kinds else next(iter(kinds), None)


def index_head(p: Parser, head: str, kind: Part | None, options: IndexOptions) -> str:
    """Return how the definition of an index begins in the dialect, nothing for an index that it leaves out."""
    if head.startswith(("VECTOR", "COLUMNAR")):
        return p.dialect.part(Part.COLUMNAR_INDEX, head)
    if kind is not None:
        head = p.dialect.part(kind, head)
    if options.condition and head.startswith("UNIQUE"):
        head = head if p.dialect.part(Part.UNIQUE_PARTIAL_INDEX, "UNIQUE") else "INDEX"
    options.condition = options.condition and p.dialect.part(Part.INDEX_CONDITION, options.condition)
    return head


def _index_part(p: Parser) -> str:
    """Parse a column, a prefix of one, or an expression in parentheses."""
    if p.accept("("):
        text = f"({p.expression()})"
        p.expect(")")
    else:
        text = p.column_name()
        if length := field_length(p):
            text += f"({length})"
    if p.accept("DESC"):
        return f"{text} DESC"
    p.accept("ASC")
    return text


def index_options(p: Parser) -> IndexOptions:
    options = IndexOptions()
    while True:
        if p.accept("KEY_BLOCK_SIZE"):
            equals(p)
            options.key_block_size = p.unsigned() or options.key_block_size
        elif p.accept_any(("USING", "TYPE")):
            options.index_type = p.expect_any(INDEX_TYPES)
        elif p.accept("WITH", "PARSER"):
            name = p.identifier()
            options.parser = p.dialect.part(Part.WITH_PARSER, f"WITH PARSER {quote_name(name)}") if name else options.parser
        elif p.accept("COMMENT"):
            text = p.raw_string()
            options.comment = p.quoted(text) if text else options.comment
        elif p.at_any(("VISIBLE", "INVISIBLE")):
            options.visibility = visibility(p)
        elif word := p.accept_any(("CLUSTERED", "NONCLUSTERED")):
            options.clustered = word
        elif p.accept("GLOBAL"):
            options.global_index = True
        elif p.accept("LOCAL"):
            pass
        elif p.accept("PRE_SPLIT_REGIONS"):
            equals(p)
            options.split = _split_option(p)
        elif p.accept("ADD_COLUMNAR_REPLICA_ON_DEMAND"):
            options.on_demand = True
        elif p.at("SECONDARY_ENGINE_ATTRIBUTE"):
            options.engine_attribute = engine_attribute(p).partition(" = ")[2]
        elif p.accept("WHERE"):
            options.condition = f"WHERE {p.expression()}"
        else:
            return options


def engine_attribute(p: Parser) -> str:
    p.expect("SECONDARY_ENGINE_ATTRIBUTE")
    equals(p)
    return p.dialect.part(Part.MYSQL_OPTION, f"SECONDARY_ENGINE_ATTRIBUTE = {p.text()}")


def visibility(p: Parser) -> str:
    part = Part.VISIBLE if p.expect_any(("VISIBLE", "INVISIBLE")) == "VISIBLE" else Part.INVISIBLE
    return p.dialect.part(part, part.value)


def _split_option(p: Parser) -> str:
    if not p.at("("):
        regions = p.unsigned()
        return str(regions) if regions else "(BETWEEN () AND () REGIONS 0)"
    return p.in_parentheses(lambda: _split_points(p))


def _split_points(p: Parser) -> str:
    if p.accept("BY"):
        return f"BY {p.list_of(lambda: _split_row(p), ',')}"
    p.expect("BETWEEN")
    low = _split_row(p)
    p.expect("AND")
    high = _split_row(p)
    p.expect("REGIONS")
    return f"BETWEEN {low} AND {high} REGIONS {p.unsigned()}"


def split_regions(p: Parser) -> str:
    """Parse SPLIT of a table or an index into regions, which concerns TiDB's storage alone."""
    p.expect("SPLIT")
    what = ""
    if p.accept("PRIMARY", "KEY"):
        what = "PRIMARY KEY "
    elif p.accept("INDEX"):
        what = f"INDEX {p.name()} "
    return p.dialect.part(Part.TIDB_SPEC, f"SPLIT {what}{_split_points(p)}")


def _split_row(p: Parser) -> str:
    p.expect("(")
    values = "" if p.at(")") else p.list_of(lambda: value_or_default(p), ",")
    p.expect(")")
    return f"({values})"


# Foreign keys


def _foreign_key(p: Parser, symbol: str | None) -> str:
    exists = part_if_not_exists(p)
    name = symbol
    if p.at_identifier():
        written = p.identifier()
        name = written if symbol is None else symbol
    columns = p.in_parentheses(lambda: _index_part(p))
    prefix = f"{quote_name(name)} " if name else ""
    return f"CONSTRAINT {prefix}FOREIGN KEY {exists}{columns} {references(p)}"


def references(p: Parser) -> str:
    p.expect("REFERENCES")
    text = f"REFERENCES {p.table_name()}"
    if p.at("("):
        text += p.in_parentheses(lambda: _index_part(p))
    if p.accept("MATCH"):
        text += f" MATCH {p.expect_any(('FULL', 'PARTIAL', 'SIMPLE'))}"
    actions: dict[str, str] = {}
    while p.at("ON") and p.peek().upper in ("DELETE", "UPDATE") and p.peek().upper not in actions:
        p.next()
        event = p.next().upper
        actions[event] = _reference_action(p)
    return text + "".join(f" ON {event} {actions[event]}" for event in ("DELETE", "UPDATE") if event in actions)


def _reference_action(p: Parser) -> str:
    for action in ("RESTRICT", "CASCADE", "SET NULL", "NO ACTION", "SET DEFAULT"):
        if p.accept(*action.split()):
            return action
    raise p.fail("an action")
