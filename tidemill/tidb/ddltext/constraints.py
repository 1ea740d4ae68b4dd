"""Constraints and indexes."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.tidb.ddltext.column_types import ColumnTypes, special
from tidemill.tidb.ddltext.dialects import Part
from tidemill.tidb.ddltext.queries.literals import quote_name
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


class Constraints(ColumnTypes):
    """Keys, indexes, foreign keys and checks, in CREATE TABLE, ALTER TABLE and CREATE INDEX."""

    # Constraints

    def at_constraint(self) -> bool:
        return self.at_any(_CONSTRAINT_STARTS) or self.at("VECTOR", "INDEX") or self.at("COLUMNAR", "INDEX")

    def constraint(self) -> str:
        """Parse a constraint or an index. Returns nothing for one that the dialect leaves out."""
        if self.accept("VECTOR", "INDEX"):
            return self.index_constraint("VECTOR INDEX", None, exists_clause=True, default_type="HNSW")
        if self.accept("COLUMNAR", "INDEX"):
            return self.index_constraint("COLUMNAR INDEX", None, exists_clause=True)
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

    def constraint_symbol(self) -> str | None:
        """Parse the name after CONSTRAINT; None when there is no name."""
        if self.accept("CONSTRAINT") and self.at_identifier():
            return self.identifier()
        return None

    def check_expression(self) -> str:
        self.expect("CHECK", "(")
        expression = self.expression()
        self.expect(")")
        return f"({expression})"

    def enforced(self) -> str:
        part = Part.NOT_ENFORCED if self.accept("NOT", "ENFORCED") else Part.ENFORCED
        if part is Part.ENFORCED:
            self.accept("ENFORCED")
        return self.after_blank(part)

    def after_blank(self, part: Part) -> str:
        """Return a blank and what stands for a part of fixed words; nothing if nothing does."""
        text = self.dialect.part(part, part.value)
        return f" {text}" if text else ""

    def global_or_local(self) -> str:
        if self.accept("GLOBAL"):
            return self.after_blank(Part.GLOBAL_KEY)
        self.accept("LOCAL")
        return ""

    # Indexes

    def index_constraint(
        self,
        head: str,
        symbol: str | None,
        *,
        typed: bool = True,
        exists_clause: bool = False,
        default_type: str = "",
    ) -> str:
        """Parse the rest of an index; the name after CONSTRAINT wins over the index name."""
        if exists_clause:
            head += f" {self.part_if_not_exists()}".rstrip()
        name = symbol
        index_type = ""
        if self.at_identifier() and not (self.at("USING") or self.at("(")):
            written = self.identifier()
            name = written if symbol is None else symbol
            if typed and self.accept("TYPE"):
                index_type = self.expect_any(INDEX_TYPES)
        if typed and self.accept("USING"):
            index_type = self.expect_any(INDEX_TYPES)
        columns, kind = self.index_columns()
        options = self.index_options()
        options.index_type = index_type or options.index_type or default_type
        head = self.index_head(head, kind, options)
        return f"{head}{'' if name is None else ' ' + quote_name(name)}{columns}{options.print()}" if head else ""

    def index_columns(self) -> tuple[str, Part | None]:
        """Parse the parts of an index. Returns them, and the kind of index that they make, if it is one that not every database has."""
        kinds: set[Part] = set()

        def part() -> str:
            start, is_expression = self.index, self.at("(")
            text = self.index_part()
            if is_expression:
                is_array = any(token.upper == "ARRAY" for token in self.tokens[start : self.index])
                kinds.add(Part.MULTI_VALUED_INDEX if is_array else Part.EXPRESSION_INDEX)
            return text

        columns = self.in_parentheses(part)
        return columns, Part.MULTI_VALUED_INDEX if Part.MULTI_VALUED_INDEX in kinds else next(iter(kinds), None)

    def index_head(self, head: str, kind: Part | None, options: IndexOptions) -> str:
        """Return how the definition of an index begins in the dialect, nothing for an index that it leaves out."""
        if head.startswith(("VECTOR", "COLUMNAR")):
            return self.dialect.part(Part.COLUMNAR_INDEX, head)
        if kind is not None:
            head = self.dialect.part(kind, head)
        if options.condition and head.startswith("UNIQUE"):
            head = head if self.dialect.part(Part.UNIQUE_PARTIAL_INDEX, "UNIQUE") else "INDEX"
        options.condition = options.condition and self.dialect.part(Part.INDEX_CONDITION, options.condition)
        return head

    def index_part(self) -> str:
        """Parse a column, a prefix of one, or an expression in parentheses."""
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
                options.index_type = self.expect_any(INDEX_TYPES)
            elif self.accept("WITH", "PARSER"):
                name = self.identifier()
                options.parser = self.dialect.part(Part.WITH_PARSER, f"WITH PARSER {quote_name(name)}") if name else options.parser
            elif self.accept("COMMENT"):
                text = self.raw_string()
                options.comment = self.quoted(text) if text else options.comment
            elif self.at_any(("VISIBLE", "INVISIBLE")):
                options.visibility = self.visibility()
            elif word := self.accept_any(("CLUSTERED", "NONCLUSTERED")):
                options.clustered = word
            elif self.accept("GLOBAL"):
                options.global_index = True
            elif self.accept("LOCAL"):
                pass
            elif self.accept("PRE_SPLIT_REGIONS"):
                self.equals()
                options.split = self.split_option()
            elif self.accept("ADD_COLUMNAR_REPLICA_ON_DEMAND"):
                options.on_demand = True
            elif self.at("SECONDARY_ENGINE_ATTRIBUTE"):
                options.engine_attribute = self.engine_attribute().partition(" = ")[2]
            elif self.accept("WHERE"):
                options.condition = f"WHERE {self.expression()}"
            else:
                return options

    def engine_attribute(self) -> str:
        self.expect("SECONDARY_ENGINE_ATTRIBUTE")
        self.equals()
        return self.dialect.part(Part.MYSQL_OPTION, f"SECONDARY_ENGINE_ATTRIBUTE = {self.text()}")

    def visibility(self) -> str:
        part = Part.VISIBLE if self.expect_any(("VISIBLE", "INVISIBLE")) == "VISIBLE" else Part.INVISIBLE
        return self.dialect.part(part, part.value)

    def split_option(self) -> str:
        if not self.at("("):
            regions = self.unsigned()
            return str(regions) if regions else "(BETWEEN () AND () REGIONS 0)"
        return self.in_parentheses(self.split_points)

    def split_points(self) -> str:
        if self.accept("BY"):
            return f"BY {self.list_of(self.split_row, ',')}"
        self.expect("BETWEEN")
        low = self.split_row()
        self.expect("AND")
        high = self.split_row()
        self.expect("REGIONS")
        return f"BETWEEN {low} AND {high} REGIONS {self.unsigned()}"

    def split_regions(self) -> str:
        """Parse SPLIT of a table or an index into regions, which concerns TiDB's storage alone."""
        self.expect("SPLIT")
        what = ""
        if self.accept("PRIMARY", "KEY"):
            what = "PRIMARY KEY "
        elif self.accept("INDEX"):
            what = f"INDEX {self.name()} "
        return self.dialect.part(Part.TIDB_SPEC, f"SPLIT {what}{self.split_points()}")

    def split_row(self) -> str:
        self.expect("(")
        values = "" if self.at(")") else self.list_of(self.value_or_default, ",")
        self.expect(")")
        return f"({values})"

    # Foreign keys

    def foreign_key(self, symbol: str | None) -> str:
        exists = self.part_if_not_exists()
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
