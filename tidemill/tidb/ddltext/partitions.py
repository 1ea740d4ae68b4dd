"""PARTITION BY and definitions of partitions."""

from __future__ import annotations

from tidemill.tidb.ddltext.dialects import Part
from tidemill.tidb.ddltext.options import Options
from tidemill.tidb.ddltext.queries.expressions import Expression, Shape


class Partitions(Options):
    """How a table is partitioned, and the partitions."""

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
        """Parse a method. Returns its text, its kind, and whether the partitions come from an interval."""
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
        return self.dialect.part(Part.INTERVAL_PARTITIONS, text)

    def partition_definitions(self, separator: str = ",") -> tuple[str, list[int]]:
        """Parse the definitions in parentheses. Returns their text, and how many subpartitions each has."""
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
            printed = self.printed_option(option).text
            text += f" {printed}" if printed or not self.dialect.exact else ""
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

        text = self.dialect.part(Part.UPDATE_INDEXES, f"UPDATE INDEXES {self.in_parentheses(index, ',')}")
        return f" {text}" if text else ""
