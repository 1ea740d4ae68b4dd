"""Constraints and indexes."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.tidb.ddltext.column_types import ColumnTypes, special
from tidemill.tidb.ddltext.queries.literals import quote_name, quote_text
from tidemill.tidb.sql.keywords import words

_INDEX_TYPES = ("BTREE", "HASH", "RTREE", "HYPO", "HNSW")

_CONSTRAINT_STARTS = words("CONSTRAINT PRIMARY FULLTEXT KEY INDEX UNIQUE FOREIGN CHECK")


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
        """Return the options, each after a blank."""
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


class Constraints(ColumnTypes):
    """Keys, indexes, foreign keys and checks, in CREATE TABLE, ALTER TABLE and CREATE INDEX."""

    # Constraints

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
        if self.accept("NOT", "ENFORCED"):
            return " NOT ENFORCED"
        self.accept("ENFORCED")
        return " ENFORCED"

    def global_or_local(self) -> str:
        if self.accept("GLOBAL"):
            return " GLOBAL"
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
        """Refuse a vector index that has other parts than one function call."""
        if not columns.startswith("((") or ")," in columns:
            raise self.fail("one expression as the only part of a vector index")

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

    # Foreign keys

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
