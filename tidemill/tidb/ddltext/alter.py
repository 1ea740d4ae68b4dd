"""ALTER TABLE and ALTER DATABASE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemill.tidb.ddltext.column_types import special
from tidemill.tidb.ddltext.options import with_ttl_off
from tidemill.tidb.ddltext.partitions import Partitions
from tidemill.tidb.ddltext.queries.expressions import Shape
from tidemill.tidb.ddltext.queries.literals import quote_name

# These follow the specification before them without a comma.
_WITHOUT_COMMA = ("PARTITION BY ", "REMOVE PARTITIONING", "IMPORT TABLESPACE", "DISCARD TABLESPACE")

# A specification that starts with one of these may follow the list without a comma.
_LAST_SPECS = frozenset(("PARTITION", "REMOVE", "REORGANIZE", "SPLIT", "MERGE"))


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
        if all(spec.only_placement for spec in specs):
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
            return AlterSpec(verbs[self.token.upper]())
        if self.at("PARTITION"):
            return AlterSpec(self.partition_by()) if self.peek().upper == "BY" else self.alter_one_partition()
        if simple := self.accept_simple_spec():
            return AlterSpec(simple)
        if self.at("ATTRIBUTES"):
            self.attributes()
            return AlterSpec("", printed=False)
        if self.at("STATS_OPTIONS"):
            return AlterSpec(self.attributes())
        return self.option_spec()

    def accept_simple_spec(self) -> str:
        """Parse a specification of a few words."""
        fixed = (
            "DISABLE KEYS",
            "ENABLE KEYS",
            "WITH VALIDATION",
            "WITHOUT VALIDATION",
            "SECONDARY_LOAD",
            "SECONDARY_UNLOAD",
            "CACHE",
            "NOCACHE",
            "READ WRITE",
            "READ ONLY",
            "IMPORT TABLESPACE",
            "DISCARD TABLESPACE",
        )
        for words in fixed:
            if self.accept(*words.split()):
                return words
        if self.at("FORCE") and self.peek().upper not in ("AUTO_INCREMENT", "AUTO_RANDOM_BASE"):
            self.next()
            return "FORCE /* AlterTableForce is not supported */ "
        if self.accept("ALGORITHM"):
            self.equals()
            return f"ALGORITHM = {self.word_of(('DEFAULT', 'COPY', 'INPLACE', 'INSTANT'))}"
        if self.accept("LOCK"):
            self.equals()
            return f"LOCK = {self.word_of(('DEFAULT', 'NONE', 'SHARED', 'EXCLUSIVE'))}"
        if self.accept("SET", "TIFLASH", "REPLICA") or self.accept("SET", "HYPO", "TIFLASH", "REPLICA"):
            return f"SET TIFLASH REPLICA {self.tiflash_replica()}"
        for edge in ("FIRST", "LAST"):
            if self.accept(edge, "PARTITION", "LESS", "THAN"):
                bound = self.expression_in_parentheses()
                suffix = self.no_write_to_binlog() if edge == "LAST" else self.if_exists() and ""
                return f"{edge} PARTITION LESS THAN {bound}{suffix}"
        for words in ("SPLIT MAXVALUE PARTITION", "MERGE FIRST PARTITION"):
            if self.accept(*words.split(), "LESS", "THAN"):
                return f"{words} LESS THAN {self.expression_in_parentheses()}"
        return self.accept_partition_action()

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
        if [option.kind for option in options] == ["CHARACTER SET", "COLLATE"]:
            return AlterSpec(f"CHARACTER SET {options[0].value.upper()} COLLATE {options[1].value.upper()}")
        if all(option.kind == "PLACEMENT POLICY" for option in options):
            return AlterSpec("")
        return AlterSpec(" ".join(option.text for option in options))

    def alter_convert(self) -> str:
        self.expect("CONVERT", "TO")
        if not self.accept_charset_keyword():
            raise self.fail("CHARACTER SET")
        charset = "DEFAULT" if self.accept("DEFAULT") else self.charset_name().upper()
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
            return f"{text} {kind}{self.in_parentheses(self.column_name)}"
        if self.at_constraint():
            return f"ADD {self.constraint()}"
        self.accept("COLUMN")
        head = f"ADD COLUMN {self.if_not_exists()}"
        if self.at("("):
            columns, constraints = self.table_elements()
            return f"{head}({', '.join(columns + constraints)})"
        return f"{head}{self.column()}{self.column_position()}"

    def column_position(self) -> str:
        if self.accept("FIRST"):
            return " FIRST"
        return f" AFTER {self.column_name()}" if self.accept("AFTER") else ""

    def add_partition(self) -> str:
        exists = " IF NOT EXISTS" if self.if_not_exists() else ""
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
            return f"DROP INDEX {self.if_exists()}{self.name()}"
        if self.accept("PARTITION"):
            return f"DROP PARTITION {self.if_exists()}{self.partition_names()}"
        if self.accept("STATS_EXTENDED"):
            return f"DROP STATS_EXTENDED {self.if_exists()}{self.name()}"
        if self.accept_any(("CHECK", "CONSTRAINT")):
            return f"DROP CHECK {self.name()}"
        self.accept("COLUMN")
        text = f"DROP COLUMN {self.if_exists()}{self.column_name()}"
        self.accept_any(("RESTRICT", "CASCADE"))
        return text

    def alter_modify(self) -> str:
        self.expect("MODIFY")
        self.accept("COLUMN")
        return f"MODIFY COLUMN {self.if_exists()}{self.column()}{self.column_position()}"

    def alter_change(self) -> str:
        self.expect("CHANGE")
        self.accept("COLUMN")
        return f"CHANGE COLUMN {self.if_exists()}{self.column_name()} {self.column()}{self.column_position()}"

    def alter_alter(self) -> str:
        self.expect("ALTER")
        if self.accept("INDEX"):
            return f"ALTER INDEX {self.name()} {self.expect_any(('VISIBLE', 'INVISIBLE'))}"
        if self.accept_any(("CHECK", "CONSTRAINT")):
            name = self.name()
            negation = " NOT" if self.accept("NOT") else ""
            self.expect("ENFORCED")
            return f"ALTER CHECK {name}{negation} ENFORCED"
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
            old = self.name()
            self.expect("TO")
            return f"RENAME INDEX {old} TO {self.name()}"
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
            return f"{text} WITHOUT VALIDATION"
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
