"""Whole statements: CREATE, ALTER, DROP, RENAME, TRUNCATE, RECOVER, FLASHBACK."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidemill.tidb.ddltext.alter import Alter
from tidemill.tidb.ddltext.column_types import special
from tidemill.tidb.ddltext.constraints import INDEX_TYPES
from tidemill.tidb.ddltext.dialects import Part
from tidemill.tidb.ddltext.names import Name
from tidemill.tidb.ddltext.options import with_ttl_off
from tidemill.tidb.ddltext.queries.literals import quote_name
from tidemill.tidb.sql.lexer import Kind

_TEMPORARY = {"": "", "TEMPORARY": "TEMPORARY ", "GLOBAL": "GLOBAL TEMPORARY "}


class Statements(Alter):
    """One statement, from its verb on."""

    # Any statement

    def statement(self) -> str:
        """Parse one statement; semicolons around it are dropped."""
        while self.accept(";"):
            pass
        text = self.parse_statement()
        while self.accept(";"):
            pass
        if not self.at_end():
            raise self.fail("the end of the statement")
        return text

    def parse_statement(self) -> str:
        verb = self.expect_any(("CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE", "RECOVER", "FLASHBACK"))
        parse: dict[str, Callable[[], str]] = {
            "CREATE": self.create,
            "ALTER": self.alter,
            "DROP": self.drop,
            "RENAME": self.rename_tables,
            "TRUNCATE": self.truncate,
            "RECOVER": self.recover,
            "FLASHBACK": self.flashback,
        }
        return parse[verb]()

    # CREATE

    def create(self) -> str:
        if self.accept_any(("DATABASE", "SCHEMA")):
            head = f"CREATE DATABASE {self.if_not_exists()}{self.schema_name()}"
            return head + "".join(f" {option}" for option in self.database_options() if option or not self.dialect.exact)
        if self.at("MASKING") or self.at("OR", "REPLACE", "MASKING"):
            return self.create_masking_policy()
        if self.at_any(("OR", "ALGORITHM", "DEFINER", "SQL", "VIEW")):
            return self.create_view()
        if self.at_any(("UNIQUE", "SPATIAL", "FULLTEXT", "VECTOR", "COLUMNAR", "INDEX")):
            return self.create_index()
        if self.accept("SEQUENCE"):
            return self.create_sequence()
        return self.create_table()

    def temporary(self) -> str:
        word = self.accept_any(("TEMPORARY", "GLOBAL"))
        if word == "GLOBAL":
            self.expect("TEMPORARY")
        return _TEMPORARY[word]

    def create_table(self) -> str:
        temporary = self.temporary()
        self.expect("TABLE")
        text = f"CREATE {temporary}TABLE {self.if_not_exists()}{self.table_name()}"
        if self.accept("LIKE"):
            text += f" LIKE {self.table_name()}"
        elif self.at("(", "LIKE"):
            self.expect("(", "LIKE")
            text += f" LIKE {self.table_name()}"
            self.expect(")")
        else:
            text += self.table_definition()
        on_commit = ""
        if self.accept("ON", "COMMIT"):
            on_commit = f" ON COMMIT {self.expect_any(('DELETE', 'PRESERVE'))} ROWS"
            self.expect("ROWS")
        if bool(on_commit) != temporary.startswith("GLOBAL"):
            raise self.fail("ON COMMIT with, and only with, GLOBAL TEMPORARY")
        return self.dialect.part(Part.GLOBAL_TEMPORARY, text + on_commit) if on_commit else text

    def create_masking_policy(self) -> str:
        replaced = "OR REPLACE " if self.accept("OR", "REPLACE") else ""
        self.expect("MASKING", "POLICY")
        text = f"CREATE {replaced}MASKING POLICY {self.if_not_exists()}{self.name()}"
        self.expect("ON")
        table = self.table_name()
        text += f" ON {table} {self.in_parentheses(self.column_name)}{self.policy_definition()}"
        return self.dialect.part(Part.TIDB_SPEC, text)

    def table_definition(self) -> str:
        text = ""
        if self.at("(") and self.peek().upper not in ("SELECT", "WITH", "(", "TABLE", "VALUES"):
            columns, constraints = self.table_elements()
            text = f" ({','.join(columns + constraints)})"
        options = with_ttl_off(self.table_options(commas=True))
        text += "".join(f" {option.text}" for option in options if option.text or not self.dialect.exact)
        if self.at("PARTITION"):
            text += f" {self.partition_by()}"
        while self.at("SPLIT"):
            split = self.split_regions()
            text += f" {split}" if split else ""
        duplicates = self.accept_any(("IGNORE", "REPLACE"))
        self.accept("AS")
        if self.at_query():
            text += f"{' ' + duplicates if duplicates else ''} AS {self.query()}"
        return text

    def create_view(self) -> str:
        text = "CREATE "
        if self.accept("OR"):
            self.expect("REPLACE")
            text += "OR REPLACE "
        algorithm = "UNDEFINED"
        if self.accept("ALGORITHM"):
            self.expect("=")
            algorithm = self.expect_any(("UNDEFINED", "MERGE", "TEMPTABLE"))
        definer = "CURRENT_USER"
        if self.accept("DEFINER"):
            self.expect("=")
            definer = self.user_name()
        security = "DEFINER"
        if self.accept("SQL"):
            self.expect("SECURITY")
            security = self.expect_any(("DEFINER", "INVOKER"))
        self.expect("VIEW")
        text += f"ALGORITHM = {algorithm} DEFINER = {definer} SQL SECURITY {security} VIEW {self.table_name()}"
        if self.at("("):
            text += " " + self.in_parentheses(self.name, ",")
        self.expect("AS")
        text += f" AS {self.query()}"
        if self.accept("WITH"):
            check = self.expect_any(("CASCADED", "LOCAL"))
            self.expect("CHECK", "OPTION")
            text += " WITH LOCAL CHECK OPTION" if check == "LOCAL" else ""
        return text

    def create_index(self) -> str:
        word = self.accept_any(("UNIQUE", "SPATIAL", "FULLTEXT", "VECTOR", "COLUMNAR"))
        self.expect("INDEX")
        name = f"{self.part_if_not_exists()}{self.name()}"
        index_type = self.expect_any(INDEX_TYPES) if self.accept_any(("USING", "TYPE")) else ""
        self.expect("ON")
        table = self.table_name()
        columns, kind = self.index_columns()
        options = self.index_options()
        options.index_type = options.index_type or index_type or ("HNSW" if word == "VECTOR" else "")
        head = self.index_head(f"{word} INDEX".lstrip(), kind, options)
        tail = self.lock_and_algorithm()
        return f"CREATE {head} {name} ON {table} {columns}{options.print()}{tail}" if head else ""

    def lock_and_algorithm(self) -> str:
        """Parse at most one LOCK and one ALGORITHM. Defaults are not printed, and the algorithm is printed first."""
        found: dict[str, str] = {}
        while (word := self.token.upper) in ("LOCK", "ALGORITHM") and word not in found:
            self.next()
            self.equals()
            choices = ("DEFAULT", "NONE", "SHARED", "EXCLUSIVE")
            if word == "ALGORITHM":
                choices = ("DEFAULT", "COPY", "INPLACE", "INSTANT")
            found[word] = self.word_of(choices)
        text = "".join(f" {word} = {found[word]}" for word in ("ALGORITHM", "LOCK") if found.get(word, "DEFAULT") != "DEFAULT")
        return self.dialect.part(Part.ALGORITHM, text) if text else ""

    # Sequences

    def create_sequence(self) -> str:
        text = f"CREATE SEQUENCE {self.if_not_exists()}{self.table_name()}"
        while option := self.accept_sequence_option():
            text += f" {option}"
        return text + "".join(f" {option.text}" for option in self.table_options(commas=True))

    def accept_sequence_option(self) -> str:
        if self.accept("INCREMENT"):
            self.accept_any(("=", "BY"))
            return f"INCREMENT BY {self.signed()}"
        if self.accept("START"):
            self.accept_any(("=", "WITH"))
            return f"START WITH {self.signed()}"
        for word in ("MINVALUE", "MAXVALUE", "CACHE", "CYCLE"):
            printed = f"NO {word}" if word.endswith("VALUE") else f"NO{word}"
            if self.accept(f"NO{word}") or self.accept("NO", word):
                return printed
            if self.accept(word):
                if word == "CYCLE":
                    return word
                self.equals()
                return f"{word} {self.signed()}"
        return ""

    def alter_sequence(self) -> str:
        text = f"ALTER SEQUENCE {self.if_exists()}{self.table_name()}"
        if self.at_end():
            raise self.fail("an option")
        while True:
            if self.accept("RESTART"):
                valued = self.accept_any(("=", "WITH")) or self.token.kind is Kind.INT or self.at_any(("+", "-"))
                text += f" RESTART WITH {self.signed()}" if valued else " RESTART"
            elif option := self.accept_sequence_option():
                text += f" {option}"
            else:
                return text

    # DROP and the short ones

    def drop(self) -> str:
        if self.accept_any(("DATABASE", "SCHEMA")):
            return f"DROP DATABASE {self.if_exists()}{self.schema_name()}"
        if self.accept("INDEX") or self.accept("HYPO", "INDEX"):
            exists = special("", "IF EXISTS ") if self.if_exists() else ""
            text = self.of_index(f"DROP INDEX {exists}", "")
            self.expect("ON")
            tail = f" ON {self.table_name()}{self.lock_and_algorithm()}"
            return text + tail if text else ""
        if self.accept("SEQUENCE"):
            return f"DROP SEQUENCE {self.if_exists()}{self.list_of(self.table_name)}"
        if self.accept("VIEW"):
            text = "DROP VIEW "
        else:
            text = f"DROP {self.temporary()}TABLE "
            self.expect_any(("TABLE", "TABLES"))
        text += self.if_exists() + self.list_of(self.table_name)
        self.accept_any(("RESTRICT", "CASCADE"))
        return text

    def rename_tables(self) -> str:
        self.expect("TABLE")

        def pair() -> str:
            old = self.table_name()
            self.expect("TO")
            return f"{old} TO {self.table_name()}"

        return f"RENAME TABLE {self.list_of(pair)}"

    def truncate(self) -> str:
        self.accept("TABLE")
        return f"TRUNCATE TABLE {self.table_name()}"

    def recover(self) -> str:
        self.expect("TABLE")
        if self.accept("BY", "JOB"):
            return self.dialect.part(Part.RECOVER, f"RECOVER TABLE BY JOB {self.positive()}")
        text = f"RECOVER TABLE {self.table_name()}"
        if self.token.kind is Kind.INT and (number := self.positive()):
            text += f" {number}"
        return self.dialect.part(Part.RECOVER, text)

    def flashback(self) -> str:
        return self.dialect.part(Part.RECOVER, self.read_flashback())

    def read_flashback(self) -> str:
        if self.accept("CLUSTER"):
            return f"FLASHBACK CLUSTER{self.flashback_time()}"
        if self.accept_any(("DATABASE", "SCHEMA")):
            text, names = f"FLASHBACK DATABASE {self.schema_name()}", 1
            new_name = self.schema_name
        else:
            self.expect("TABLE")
            start = self.index
            new_name = partial(self.new_table_name, self.peek_table_name()[0])
            text = f"FLASHBACK TABLE {self.list_of(self.table_name)}"
            names = sum(token.upper == "," for token in self.tokens[start : self.index]) + 1
        if self.at("TO", "TIMESTAMP") and self.peek(2).kind is Kind.STRING:
            return text + self.flashback_time()
        if self.at("TO", "TSO") and self.peek(2).kind is Kind.INT:
            return text + self.flashback_time()
        if names > 1:
            raise self.fail("TO TIMESTAMP or TO TSO")
        return f"{text} TO {new_name()}" if self.accept("TO") else text

    def new_table_name(self, schema: str) -> str:
        """Parse the new name of a table that stays in its schema."""
        return quote_name(self.names.table((schema, self.identifier()))[1])

    def peek_table_name(self) -> Name:
        """Return the table name that follows, and stay before it."""
        start, name = self.index, self.parse_table_name()
        self.index = start
        return name

    def flashback_time(self) -> str:
        self.expect("TO")
        if self.accept("TSO"):
            tso = self.unsigned()
            if not tso:
                raise self.fail("a timestamp")
            return f" TO TSO {tso}"
        self.expect("TIMESTAMP")
        return f" TO TIMESTAMP {self.plain_string()}"

    def alter(self) -> str:
        if self.accept_any(("DATABASE", "SCHEMA")):
            return self.alter_database()
        if self.accept("SEQUENCE"):
            return self.alter_sequence()
        self.accept("IGNORE")
        self.expect("TABLE")
        return self.alter_table()
