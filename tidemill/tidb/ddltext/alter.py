"""ALTER TABLE and ALTER DATABASE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemill.tidb.ddltext.column_types import special
from tidemill.tidb.ddltext.dialects import Part
from tidemill.tidb.ddltext.options import with_ttl_off
from tidemill.tidb.ddltext.partitions import Partitions
from tidemill.tidb.ddltext.queries.expressions import Shape
from tidemill.tidb.ddltext.queries.literals import quote_name

# These follow the specification before them without a comma.
_WITHOUT_COMMA = ("PARTITION BY ", "REMOVE PARTITIONING", "IMPORT TABLESPACE", "DISCARD TABLESPACE")

# A specification that starts with one of these may follow the list without a comma.
_LAST_SPECS = frozenset(("PARTITION", "REMOVE", "REORGANIZE", "SPLIT", "MERGE"))


_FIXED: dict[str, Part | None] = {
    "DISABLE KEYS": None,
    "ENABLE KEYS": None,
    "WITH VALIDATION": Part.WITHOUT_VALIDATION,
    "WITHOUT VALIDATION": Part.WITHOUT_VALIDATION,
    "SECONDARY_LOAD": Part.TIDB_SPEC,
    "SECONDARY_UNLOAD": Part.TIDB_SPEC,
    "CACHE": Part.TIDB_SPEC,
    "NOCACHE": Part.TIDB_SPEC,
    "READ WRITE": Part.TIDB_SPEC,
    "READ ONLY": Part.TIDB_SPEC,
    "IMPORT TABLESPACE": None,
    "DISCARD TABLESPACE": None,
}
"""Specifications of fixed words."""

_RESTRICTED = ("INSERT_INTO_SELECT", "UPDATE_SELECT", "DELETE_SELECT", "CTAS")
"""What a masking policy may keep users from, in TiDB's order."""


@dataclass(frozen=True, slots=True)
class AlterSpec:
    """A specification of ALTER TABLE as it is printed. Some are not printed."""

    text: str
    printed: bool = True
    only_placement: bool = False  # the placement of one partition


class Alter(Partitions):
    """ALTER and its specifications."""

    # Statements

    def alter_database(self) -> str:
        start = self.index
        options = self.database_options()
        if options:
            schema = self.names.schema("")
            name = f" {quote_name(schema)}" if schema else ""
        else:
            self.index = start
            name = f" {self.schema_name()}"
            options = self.database_options()
        if not options:
            raise self.fail("an option")
        if not any(options):  # only placement, which is left out
            return ""
        return f"ALTER DATABASE{name}" + "".join(f" {option}" for option in options)

    def alter_table(self) -> str:
        """Parse ALTER TABLE. Specifications that only concern placement or attributes are left out.

        A statement with only the placement of partitions, or without any specification, gives an empty text.
        """
        head = f"ALTER TABLE {self.table_name()}"
        specs: list[AlterSpec] = []
        while not self.at_end() and not self.at(";"):
            last = self.at_any(_LAST_SPECS)
            specs.append(self.alter_spec())
            if last:
                break
            if self.accept(","):
                if self.at_any(_LAST_SPECS) or self.at_end():
                    raise self.fail("another specification after the comma")
            elif not self.at_any(_LAST_SPECS):
                break
        if all(spec.only_placement for spec in specs) or (self.dialect.exact and not any(spec.printed for spec in specs)):
            return ""
        text = head
        for number, spec in enumerate(spec for spec in specs if spec.printed):
            text += (" " if not number or spec.text.startswith(_WITHOUT_COMMA) else ", ") + spec.text
        return text

    # Specifications

    def alter_spec(self) -> AlterSpec:
        verbs: dict[str, Callable[[], str]] = {
            "ADD": self.alter_add,
            "DROP": self.alter_drop,
            "MODIFY": self.alter_modify,
            "CHANGE": self.alter_change,
            "ALTER": self.alter_alter,
            "RENAME": self.alter_rename,
            "REMOVE": self.alter_remove,
            "REORGANIZE": self.alter_reorganize,
            "CONVERT": self.alter_convert,
            "EXCHANGE": self.alter_exchange,
            "ORDER": self.alter_order,
        }
        if self.token.upper in verbs:
            text = verbs[self.token.upper]()
            return AlterSpec(text, printed=text != "")
        if self.at("PARTITION"):
            return AlterSpec(self.partition_by()) if self.peek().upper == "BY" else self.alter_one_partition()
        start = self.index
        if (simple := self.accept_simple_spec()) or self.index > start:
            return AlterSpec(simple, printed=simple != "")
        if self.at("ATTRIBUTES"):
            self.attributes()
            return AlterSpec("", printed=False)
        if self.at("STATS_OPTIONS"):
            text = self.dialect.part(Part.TIDB_SPEC, self.attributes())
            return AlterSpec(text, printed=text != "")
        return self.option_spec()

    def accept_simple_spec(self) -> str:
        """Parse a specification of a few words. Returns nothing for another one, which stays, and for one that the dialect leaves out."""
        for words, part in _FIXED.items():
            if self.accept(*words.split()):
                return words if part is None else self.dialect.part(part, words)
        if self.at_any(("ENABLE", "DISABLE")) and self.accept_any(("ENABLE", "DISABLE")):
            return self.masking_policy(self.tokens[self.index - 1].upper)
        if self.at("FORCE") and self.peek().upper not in ("AUTO_INCREMENT", "AUTO_RANDOM_BASE"):
            self.next()
            return "FORCE" + ("" if self.dialect.exact else " /* AlterTableForce is not supported */ ")
        if self.accept("ALGORITHM"):
            self.equals()
            return self.dialect.part(Part.ALGORITHM, f"ALGORITHM = {self.word_of(('DEFAULT', 'COPY', 'INPLACE', 'INSTANT'))}")
        if self.accept("LOCK"):
            self.equals()
            return self.dialect.part(Part.ALGORITHM, f"LOCK = {self.word_of(('DEFAULT', 'NONE', 'SHARED', 'EXCLUSIVE'))}")
        if self.accept("SET", "TIFLASH", "REPLICA") or self.accept("SET", "HYPO", "TIFLASH", "REPLICA"):
            return self.dialect.part(Part.TIFLASH_REPLICA, f"SET TIFLASH REPLICA {self.tiflash_replica()}")
        return self.accept_interval_spec() or self.accept_partition_action()

    def accept_interval_spec(self) -> str:
        """Parse a specification that moves the bounds of a table with INTERVAL partitions."""
        text = ""
        for edge in ("FIRST", "LAST"):
            if self.accept(edge, "PARTITION", "LESS", "THAN"):
                bound = self.expression_in_parentheses()
                suffix = self.no_write_to_binlog() if edge == "LAST" else self.if_exists() and ""
                text = f"{edge} PARTITION LESS THAN {bound}{suffix}"
        for words in ("SPLIT MAXVALUE PARTITION", "MERGE FIRST PARTITION"):
            if self.accept(*words.split(), "LESS", "THAN"):
                text = f"{words} LESS THAN {self.expression_in_parentheses()}"
        if text:
            return self.dialect.part(Part.INTERVAL_PARTITIONS, text)
        return self.split_regions() if self.at("SPLIT") else ""

    def no_write_to_binlog(self) -> str:
        return " NO_WRITE_TO_BINLOG" if self.accept_any(("NO_WRITE_TO_BINLOG", "LOCAL")) else ""

    def accept_partition_action(self) -> str:
        for action in ("CHECK", "TRUNCATE"):
            if self.accept(action, "PARTITION"):
                return f"{action} PARTITION {self.all_or_names()}"
        for action in ("OPTIMIZE", "REPAIR", "REBUILD"):
            if self.accept(action, "PARTITION"):
                return f"{action} PARTITION{self.no_write_to_binlog()} {self.all_or_names()}"
        for action in ("IMPORT", "DISCARD"):
            if self.accept(action, "PARTITION"):
                names = self.all_or_names()
                self.expect("TABLESPACE")
                return f"{action} PARTITION {names} TABLESPACE"
        if self.accept("COALESCE", "PARTITION"):
            return f"COALESCE PARTITION{self.no_write_to_binlog()} {self.unsigned()}"
        return ""

    def all_or_names(self) -> str:
        return "ALL" if self.accept("ALL") else self.partition_names()

    def partition_names(self) -> str:
        return self.list_of(self.name, ",")

    def option_spec(self) -> AlterSpec:
        written = self.table_options(commas=False)
        if not written:
            raise self.fail("a specification of ALTER TABLE")
        options = with_ttl_off(written)
        if not options or all(option.kind == "PLACEMENT POLICY" for option in written):
            return AlterSpec("", printed=False)
        if self.dialect.exact and not any(option.text for option in options):
            return AlterSpec("", printed=False)
        if [option.kind for option in options] == ["CHARACTER SET", "COLLATE"]:
            return AlterSpec(f"CHARACTER SET {options[0].value.upper()} COLLATE {options[1].value.upper()}")
        if all(option.kind == "PLACEMENT POLICY" for option in options):
            return AlterSpec("")
        return AlterSpec(" ".join(option.text for option in options if option.text or not self.dialect.exact))

    def alter_convert(self) -> str:
        self.expect("CONVERT", "TO")
        if not self.accept_charset_keyword():
            raise self.fail("CHARACTER SET")
        charset = "DEFAULT" if self.accept("DEFAULT") else self.charset_text(self.charset_name())
        text = f"CONVERT TO CHARACTER SET {charset}"
        return f"{text} COLLATE {self.collation_name().upper()}" if self.accept("COLLATE") else text

    def attributes(self) -> str:
        word = self.next().upper
        self.equals()
        return f"{word}={'DEFAULT' if self.accept('DEFAULT') else self.text()}"

    def alter_add(self) -> str:
        self.expect("ADD")
        if self.accept("PARTITION"):
            return self.add_partition()
        if self.accept("STATS_EXTENDED"):
            text = f"ADD STATS_EXTENDED {self.if_not_exists()}{self.name()}"
            kind = self.expect_any(("CARDINALITY", "DEPENDENCY", "CORRELATION"))
            return self.dialect.part(Part.TIDB_SPEC, f"{text} {kind}{self.in_parentheses(self.column_name)}")
        if self.at("MASKING", "POLICY"):
            return self.masking_policy("ADD")
        if self.at_constraint():
            constraint = self.constraint()
            return f"ADD {constraint}" if constraint else ""
        self.accept("COLUMN")
        head = f"ADD COLUMN {self.part_if_not_exists()}"
        if self.at("("):
            columns, constraints = self.table_elements()
            return f"{head}({', '.join(columns + constraints)})"
        return f"{head}{self.column()}{self.column_position()}"

    def column_position(self) -> str:
        if self.accept("FIRST"):
            return " FIRST"
        return f" AFTER {self.column_name()}" if self.accept("AFTER") else ""

    def add_partition(self) -> str:
        exists = f" {self.part_if_not_exists()}".rstrip()
        text = f"ADD PARTITION{exists}{self.no_write_to_binlog()}"
        if self.accept("PARTITIONS"):
            number = self.unsigned()
            return f"{text} PARTITIONS {number}" if number else text
        return text + (self.partition_definitions(", ")[0] if self.at("(") else "")

    def alter_drop(self) -> str:
        self.expect("DROP")
        if self.accept("PRIMARY", "KEY"):
            return "DROP PRIMARY KEY"
        if self.accept("FOREIGN", "KEY"):
            return f"DROP FOREIGN KEY {self.name()}"
        if self.accept_any(("KEY", "INDEX")):
            exists = self.part_if_exists()
            return self.of_index(f"DROP INDEX {exists}", "")
        if self.accept("PARTITION"):
            return f"DROP PARTITION {self.part_if_exists()}{self.partition_names()}"
        if self.accept("STATS_EXTENDED"):
            return self.dialect.part(Part.TIDB_SPEC, f"DROP STATS_EXTENDED {self.if_exists()}{self.name()}")
        if self.at("MASKING", "POLICY"):
            return self.masking_policy("DROP")
        if self.accept_any(("CHECK", "CONSTRAINT")):
            return f"{self.dialect.part(Part.DROP_CHECK, 'DROP CHECK')} {self.name()}"
        self.accept("COLUMN")
        text = f"DROP COLUMN {self.part_if_exists()}{self.column_name()}"
        self.accept_any(("RESTRICT", "CASCADE"))
        return text

    def alter_modify(self) -> str:
        self.expect("MODIFY")
        if self.at("MASKING", "POLICY"):
            return self.masking_policy("MODIFY")
        self.accept("COLUMN")
        return f"MODIFY COLUMN {self.part_if_exists()}{self.column()}{self.column_position()}"

    def of_index(self, head: str, tail: str) -> str:
        """Parse the name of an index that the statement changes. Returns the specification, nothing if the database lacks the index."""
        name = self.identifier()
        text = f"{head}{quote_name(name)}{tail}"
        return text if self.dialect.index(name) else self.dialect.part(Part.MISSING_INDEX, text)

    def masking_policy(self, verb: str) -> str:
        """Parse what follows the verb: a policy by which TiDB shows values to users."""
        self.expect("MASKING", "POLICY")
        text = f"{verb} MASKING POLICY {self.name()}"
        if verb == "ADD":
            self.expect("ON")
            text += f" ON {self.in_parentheses(self.column_name)}{self.policy_definition()}"
        elif verb == "MODIFY" and self.accept("SET", "EXPRESSION"):
            self.expect("=")
            text += f" SET EXPRESSION = {self.expression()}"
        elif verb == "MODIFY":
            self.expect("SET")
            text += f" SET {self.policy_restriction()}"
        return self.dialect.part(Part.TIDB_SPEC, text)

    def policy_definition(self) -> str:
        self.expect("AS")
        text = f" AS {self.expression()}"
        if self.at("RESTRICT"):
            restriction = self.policy_restriction()
            text += "" if restriction.endswith(" NONE") else f" {restriction}"
        state = self.accept_any(("ENABLE", "DISABLE"))
        return f"{text} {state}" if state else text

    def policy_restriction(self) -> str:
        self.expect("RESTRICT", "ON")
        if self.accept("NONE"):
            return "RESTRICT ON NONE"
        written: set[str] = set()

        def operation() -> str:
            written.add(self.identifier().upper())
            return ""

        self.in_parentheses(operation)
        if not written <= set(_RESTRICTED):
            raise self.fail("one of " + ", ".join(_RESTRICTED))
        return f"RESTRICT ON ({', '.join(word for word in _RESTRICTED if word in written)})"

    def alter_change(self) -> str:
        self.expect("CHANGE")
        self.accept("COLUMN")
        return f"CHANGE COLUMN {self.part_if_exists()}{self.column_name()} {self.column()}{self.column_position()}"

    def alter_alter(self) -> str:
        self.expect("ALTER")
        if self.accept("INDEX"):
            start = self.index
            self.next()
            visibility = self.visibility()
            end, self.index = self.index, start
            text = self.of_index("ALTER INDEX ", f" {visibility}")
            self.index = end
            return text
        if self.accept_any(("CHECK", "CONSTRAINT")):
            name = self.name()
            negation = " NOT" if self.accept("NOT") else ""
            self.expect("ENFORCED")
            return self.dialect.part(Part.ALTER_CHECK, f"ALTER CHECK {name}{negation} ENFORCED")
        self.accept("COLUMN")
        text = f"ALTER COLUMN {self.column_name()}"
        if self.accept("DROP", "DEFAULT"):
            return f"{text} DROP DEFAULT"
        self.expect("SET", "DEFAULT")
        return f"{text} SET DEFAULT {self.new_default()}"

    def new_default(self) -> str:
        """Parse a default. TiDB prints parentheses around everything but a plain literal."""
        if sign := self.accept_any(("+", "-")):
            return f"({sign}{self.number()})"
        if not self.accept("("):
            return self.literal()
        value = self.parse_expression()
        self.expect(")")
        return value.text if value.shape in (Shape.VALUE, Shape.INTEGER) else f"({value.text})"

    def alter_rename(self) -> str:
        self.expect("RENAME")
        if self.accept("COLUMN"):
            old = self.name()
            self.expect("TO")
            return f"RENAME COLUMN {old} TO {self.name()}"
        if self.accept_any(("KEY", "INDEX")):
            text = self.of_index("RENAME INDEX ", "")
            self.expect("TO")
            new = self.name()
            return f"{text} TO {new}" if text else ""
        self.accept_any(("TO", "AS", "="))
        return f"RENAME AS {self.table_name()}"

    def alter_order(self) -> str:
        self.expect("ORDER", "BY")

        def item() -> str:
            column = self.column_name()
            if self.accept("DESC"):
                return f"{column} DESC"
            self.accept("ASC")
            return column

        return f"ORDER BY {self.list_of(item, ',')}"

    def alter_exchange(self) -> str:
        self.expect("EXCHANGE", "PARTITION")
        name = self.name()
        self.expect("WITH", "TABLE")
        text = f"EXCHANGE PARTITION {name} WITH TABLE {self.table_name()}"
        if self.accept("WITHOUT", "VALIDATION"):
            return text + self.after_blank(Part.WITHOUT_VALIDATION)
        self.accept("WITH", "VALIDATION")
        return text

    def alter_one_partition(self) -> AlterSpec:
        self.expect("PARTITION")
        name = self.name()
        if self.at("ATTRIBUTES"):
            self.attributes()
            return AlterSpec("", printed=False)
        options = []
        while (option := self.accept_partition_option()) is not None:
            options.append(option.text)
        if not any(options):
            return AlterSpec("", printed=False, only_placement=True)
        return AlterSpec(special("placement", f"PARTITION {name} {' '.join(options)}"))

    def alter_remove(self) -> str:
        self.expect("REMOVE")
        if self.accept("TTL"):
            return special("ttl", "REMOVE TTL")
        self.expect("PARTITIONING")
        return "REMOVE PARTITIONING"

    def alter_reorganize(self) -> str:
        self.expect("REORGANIZE", "PARTITION")
        text = f"REORGANIZE PARTITION{self.no_write_to_binlog()}"
        if not self.at_identifier():
            return text
        text += f" {self.partition_names()}"
        self.expect("INTO")
        return f"{text} INTO{self.partition_definitions(', ')[0]}"
