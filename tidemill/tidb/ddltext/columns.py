"""Columns: type, options in the order of the text, and default values."""

from __future__ import annotations

from collections.abc import Callable

from tidemill.tidb.ddltext.column_types import special
from tidemill.tidb.ddltext.constraints import Constraints
from tidemill.tidb.ddltext.dialects import Part
from tidemill.tidb.ddltext.queries.literals import quote_name
from tidemill.tidb.sql.lexer import Kind


class Columns(Constraints):
    """Columns of CREATE TABLE and ALTER TABLE."""

    # Columns

    def table_elements(self) -> tuple[list[str], list[str]]:
        """Parse the columns and constraints; TiDB prints all columns first."""
        columns: list[str] = []
        constraints: list[str] = []
        self.expect("(")
        while True:
            if self.at_constraint():
                constraints.append(self.constraint())
            else:
                columns.append(self.column())
            if not self.accept(","):
                break
        self.expect(")")
        return columns, [constraint for constraint in constraints if constraint]

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
        if any(option.startswith("GENERATED ") for option in options):
            options = [self.dialect.part(Part.GENERATED_NOT_NULL, option) if option == "NOT NULL" else option for option in options]
        return "".join(f" {option}" for option in options if option.strip())

    def accept_column_option(self) -> str:
        """Parse an option. Returns a blank for one that the dialect leaves out."""
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
            return self.dialect.part(Part.COLUMN_REFERENCES, self.references()) or " "
        if self.accept("COLLATE"):
            return f"COLLATE {self.collation_name()}"
        if self.accept("COLUMN_FORMAT"):
            return self.dialect.part(Part.COLUMN_FORMAT, f"COLUMN_FORMAT {self.expect_any(('DEFAULT', 'FIXED', 'DYNAMIC'))}") or " "
        if self.accept("STORAGE"):
            return self.dialect.part(Part.COLUMN_FORMAT, f"STORAGE {self.expect_any(('DEFAULT', 'DISK', 'MEMORY'))}") or " "
        if self.at("SECONDARY_ENGINE_ATTRIBUTE"):
            return self.engine_attribute() or " "
        if self.accept("AUTO_RANDOM"):
            return self.auto_random()
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

    def column_check(self) -> str:
        symbol = self.constraint_symbol()
        text = f"CONSTRAINT {quote_name(symbol)} " if symbol else ""
        text += f"CHECK{self.check_expression()}"
        if self.at("NOT", "NULL"):
            return f"{text} ENFORCED"
        return text + self.enforced()

    def generated(self) -> str:
        if self.accept("GENERATED"):
            self.expect("ALWAYS")
        self.expect("AS", "(")
        expression = self.expression()
        self.expect(")")
        storage = self.accept_any(("VIRTUAL", "STORED")) or "VIRTUAL"
        return f"GENERATED ALWAYS AS({expression}) {storage}"

    # Defaults

    def default_value(self) -> str:
        if now := self.try_parse(lambda: self.without_parentheses(self.now)):
            return now if now.startswith("CURRENT_TIMESTAMP") else f"({now})"
        if self.at_any(("+", "-")):
            return self.next().upper + self.number()
        if literal := self.accept_literal():
            return literal
        if self.at("(") and (value := self.try_parse(self.parenthesised_default)):
            return value
        call = self.try_parse(lambda: self.without_parentheses(self.sequence_value))
        return f"({call or self.without_parentheses(self.default_function)})"

    def parenthesised_default(self) -> str:
        """Parse a literal or a column's name in one pair of parentheses. TiDB prints those of a name alone."""
        self.expect("(")
        if sign := self.accept_any(("+", "-")):
            value = sign + self.number()
        elif not (value := self.accept_literal()):
            value = f"({self.name()})"
        self.expect(")")
        return value

    def without_parentheses(self, parse: Callable[[], str]) -> str:
        if not self.accept("("):
            return parse()
        text = self.without_parentheses(parse)
        self.expect(")")
        return text

    def now(self) -> str:
        """Parse CURRENT_TIMESTAMP or a synonym."""
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
