"""The text of a DDL → what it changes, so far as the database's catalogue can show whether it is so. Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tidemill.tidb.ddltext import DdlSyntaxError, FoundNames, RoutedNames, SqlMode, canonical_ddl
from tidemill.tidb.names import quote_name
from tidemill.tidb.sql.lexer import Kind, Token, tokenize

Name = tuple[str, str]
"""Schema and table."""


class What(enum.Enum):
    """Kinds of statements."""

    CREATE_SCHEMA = "CREATE DATABASE"
    DROP_SCHEMA = "DROP DATABASE"
    CREATE_TABLE = "CREATE TABLE"
    DROP_TABLE = "DROP TABLE"
    CREATE_VIEW = "CREATE VIEW"
    DROP_VIEW = "DROP VIEW"
    RENAME = "RENAME TABLE"
    ALTER = "ALTER TABLE"
    EXCHANGE = "EXCHANGE PARTITION"
    OTHER = "another statement"


class Verb(enum.Enum):
    """What a part of an ALTER TABLE does."""

    ADD = "ADD"
    DROP = "DROP"
    RENAME = "RENAME"
    CHANGE = "CHANGE"
    OTHER = ""


class Part(enum.Enum):
    """To what."""

    COLUMN = "column"
    INDEX = "index"
    PRIMARY = "primary key"
    CONSTRAINT = "constraint"
    PARTITION = "partition"
    PARTITIONING = "partitioning"
    OTHER = ""


@dataclass(frozen=True, slots=True)
class Change:
    """A part of an ALTER TABLE. `definition`: of a column, without its place. `new`: the name afterwards."""

    text: str
    verb: Verb = Verb.OTHER
    part: Part = Part.OTHER
    name: str = ""
    new: str = ""
    definition: str = ""

    @property
    def names(self) -> set[tuple[Part, str]]:
        """The names that it is about, in lower case."""
        return {(self.part, name.lower()) for name in (self.name, self.new) if name}


@dataclass(frozen=True, slots=True)
class Parsed:
    """A statement. `tables`: those that it makes, drops or alters; of EXCHANGE PARTITION the partitioned one, then the other."""

    what: What
    text: str = ""
    schema: str = ""  # of a statement about a database
    tables: tuple[Name, ...] = ()
    renames: tuple[tuple[Name, Name], ...] = ()
    changes: tuple[Change, ...] = ()
    partition: str = ""

    @property
    def moves(self) -> dict[Name, Name]:
        """The first name and the last of each table of a RENAME TABLE."""
        found: dict[Name, Name] = {}
        for old, new in self.renames:
            first = next((start for start, end in found.items() if end == old), old)
            found[first] = new
        return found


def qualified(name: Name) -> str:
    """Return a name as statements have it."""
    return f"{quote_name(name[0])}.{quote_name(name[1])}"


def alter(table: Name, changes: Sequence[Change]) -> str:
    """Return an ALTER TABLE of these parts."""
    partitions = [change for change in changes if (change.verb, change.part) == (Verb.DROP, Part.PARTITION)]
    texts = [change.text for change in changes if change not in partitions]
    if partitions:  # one part of the statement, with all names
        texts.append("DROP PARTITION " + ", ".join(quote_name(change.name) for change in partitions))
    return f"ALTER TABLE {qualified(table)} " + ", ".join(texts)


def renamed_text(query: str, schema: str, names: Callable[[Name], Name]) -> str:
    """Return a statement with all tables qualified and under other names. `schema`: of those without one. Raises DdlSyntaxError."""
    found = FoundNames()
    canonical_ddl(query, names=found)
    return canonical_ddl(query, names=RoutedNames(schema, lambda *name: names(name), lambda one: one, found))


def parse(query: str, schema: str) -> Parsed:
    """Return what a statement changes; `What.OTHER` of one that is not understood. `schema`: of names without one."""
    try:
        text = renamed_text(query, schema, lambda name: name)
        return _Reader(text, schema).read()
    except DdlSyntaxError:
        return Parsed(What.OTHER, query)


class _Reader:
    """Reads a text in TiDB's canonical form."""

    def __init__(self, text: str, schema: str) -> None:
        self._text, self._schema = text, schema
        self._tokens = tokenize(text, SqlMode(0))
        self._at = 0

    # Tokens

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _accept(self, *words: str) -> bool:
        ahead = self._tokens[self._at : self._at + len(words)]
        if len(ahead) < len(words) or any(token.upper != word for token, word in zip(ahead, words, strict=True)):
            return False
        self._at += len(words)
        return True

    def _any(self, *words: str) -> str:
        found = self._token.upper if self._token.upper in words else ""
        self._at += bool(found)
        return found

    def _identifier(self) -> str:
        if self._token.kind not in (Kind.NAME, Kind.WORD):
            raise DdlSyntaxError("expected a name", self._token.position)
        self._at += 1
        return self._tokens[self._at - 1].text

    def _name(self) -> Name:
        first = self._identifier()
        return (first, self._identifier()) if self._accept(".") else (self._schema, first)

    def _names(self) -> tuple[Name, ...]:
        found = [self._name()]
        while self._accept(","):
            found.append(self._name())
        return tuple(found)

    def _skip_to(self, *words: str) -> bool:
        """Go to a keyword outside of parentheses, at most to the end."""
        depth = 0
        while self._token.kind is not Kind.END and (depth or self._token.upper not in words):
            depth += {"(": 1, ")": -1}.get(self._token.upper, 0)
            self._at += 1
        return self._token.kind is not Kind.END

    # Statements

    def read(self) -> Parsed:
        """Read the statement. Raises DdlSyntaxError."""
        match self._any("CREATE", "DROP", "ALTER", "RENAME"):
            case "CREATE":
                return self._create()
            case "DROP":
                return self._drop()
            case "ALTER" if self._accept("TABLE"):
                return self._alter(self._name())
            case "RENAME" if self._accept("TABLE"):
                return self._renames()
        return Parsed(What.OTHER, self._text)

    def _create(self) -> Parsed:
        if self._any("DATABASE", "SCHEMA"):
            self._accept("IF", "NOT", "EXISTS")
            return Parsed(What.CREATE_SCHEMA, self._text, self._identifier())
        if self._accept("TABLE"):
            self._accept("IF", "NOT", "EXISTS")
            return Parsed(What.CREATE_TABLE, self._text, tables=(self._name(),))
        start = self._at
        kind = self._any("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR")
        if self._accept("INDEX"):
            self._accept("IF", "NOT", "EXISTS")
            index = self._identifier()
            between = self._token.position
            self._skip_to("ON")
            options = self._text[between : self._token.position]
            self._at += 1
            table = self._name()
            text = f"ADD {kind} INDEX {quote_name(index)} {options}{self._text[self._token.position :]}"
            return Parsed(What.ALTER, self._text, tables=(table,), changes=(Change(text, Verb.ADD, Part.INDEX, index),))
        self._at = start
        if self._skip_to("VIEW") and self._accept("VIEW"):
            return Parsed(What.CREATE_VIEW, self._text, tables=(self._name(),))
        return Parsed(What.OTHER, self._text)

    def _drop(self) -> Parsed:
        if self._any("DATABASE", "SCHEMA"):
            self._accept("IF", "EXISTS")
            return Parsed(What.DROP_SCHEMA, self._text, self._identifier())
        if kind := self._any("TABLE", "VIEW"):
            self._accept("IF", "EXISTS")
            return Parsed(What.DROP_TABLE if kind == "TABLE" else What.DROP_VIEW, self._text, tables=self._names())
        if self._accept("INDEX"):
            self._accept("IF", "EXISTS")
            index = self._identifier()
            self._skip_to("ON")
            self._at += 1
            change = Change(f"DROP INDEX {quote_name(index)}", Verb.DROP, Part.INDEX, index)
            return Parsed(What.ALTER, self._text, tables=(self._name(),), changes=(change,))
        return Parsed(What.OTHER, self._text)

    def _renames(self) -> Parsed:
        pairs: list[tuple[Name, Name]] = []
        while not pairs or self._accept(","):
            old = self._name()
            self._accept("TO")
            pairs.append((old, self._name()))
        return Parsed(What.RENAME, self._text, tables=tuple(dict.fromkeys(old for old, _ in pairs)), renames=tuple(pairs))

    # ALTER TABLE

    def _alter(self, table: Name) -> Parsed:
        start = self._at
        if self._accept("EXCHANGE", "PARTITION"):
            partition = self._identifier()
            self._accept("WITH", "TABLE")
            return Parsed(What.EXCHANGE, self._text, tables=(table, self._name()), partition=partition)
        self._at = start
        if self._accept("RENAME") and (self._any("TO", "AS") or self._token.kind is Kind.NAME):
            new = self._name()
            if self._token.kind is Kind.END:
                return Parsed(What.RENAME, self._text, tables=(table,), renames=((table, new),))
        self._at = start
        changes: list[Change] = []
        while self._token.kind is not Kind.END:
            changes += self._change()
            self._accept(",")
        return Parsed(What.ALTER, self._text, tables=(table,), changes=tuple(changes))

    def _change(self) -> Iterator[Change]:
        start = self._token.position
        verb = self._any("ADD", "DROP", "RENAME", "CHANGE")
        begin = self._at
        self._end_of_change()
        end, after = self._token.position, self._at
        text = self._text[start:end].strip()
        self._at = begin
        changes = list({"ADD": self._add, "DROP": self._drop_part, "RENAME": self._rename_part, "CHANGE": self._change_column}.get(
            verb, self._other
        )(text, end))  # fmt: skip
        self._at = after
        yield from changes

    def _end_of_change(self) -> None:
        """Go to the comma behind the change. Behind one of `DROP PARTITION a,b` a name follows, and no keyword."""
        while self._skip_to(",") and self._tokens[self._at + 1].kind is Kind.NAME:
            self._at += 1

    def _other(self, text: str, end: int) -> Iterator[Change]:
        if self._accept("REMOVE", "PARTITIONING"):
            yield Change(text, Verb.DROP, Part.PARTITIONING)
        else:
            yield Change(text)

    def _add(self, text: str, end: int) -> Iterator[Change]:
        if self._accept("COLUMN"):
            self._accept("IF", "NOT", "EXISTS")
            if self._accept("("):
                yield from self._columns()
            else:
                yield self._column(text, end)
        elif self._accept("PRIMARY", "KEY"):
            yield Change(text, Verb.ADD, Part.PRIMARY, "PRIMARY")
        elif self._accept("PARTITION"):
            yield from self._partitions(text)
        else:
            yield self._added_key(text)

    def _added_key(self, text: str) -> Change:
        named = self._accept("CONSTRAINT") and self._token.kind is Kind.NAME
        constraint = self._identifier() if named else ""
        if self._accept("PRIMARY", "KEY"):
            return Change(text, Verb.ADD, Part.PRIMARY, "PRIMARY")
        if self._any("FOREIGN", "CHECK"):
            return Change(text, Verb.ADD, Part.CONSTRAINT, constraint) if constraint else Change(text)
        self._any("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR")
        self._any("INDEX", "KEY")
        self._accept("IF", "NOT", "EXISTS")
        index = self._identifier() if self._token.kind is Kind.NAME else constraint
        return Change(text, Verb.ADD, Part.INDEX, index) if index else Change(text)

    def _columns(self) -> Iterator[Change]:
        """Yield each column of `ADD COLUMN (a INT, b INT)` as a change of its own."""
        while self._token.kind is not Kind.END:
            start = self._token.position
            depth = 0
            while depth or self._token.upper not in (",", ")"):
                depth += {"(": 1, ")": -1}.get(self._token.upper, 0)
                self._at += 1
            definition = self._text[start : self._token.position].strip()
            yield Change(f"ADD COLUMN {definition}", Verb.ADD, Part.COLUMN, tokenize(definition, SqlMode(0))[0].text, definition=definition)
            if self._accept(")"):
                return
            self._at += 1

    def _column(self, text: str, end: int) -> Change:
        start = self._token.position
        column = self._identifier()
        return Change(text, Verb.ADD, Part.COLUMN, column, definition=self._definition(start, end))

    def _definition(self, start: int, end: int) -> str:
        """Return a column's text without FIRST and AFTER."""
        inside = [token for token in self._tokens if start <= token.position < end]
        if len(inside) > 1 and inside[-1].upper == "FIRST":
            end = inside[-1].position
        elif len(inside) > 2 and inside[-2].upper == "AFTER":
            end = inside[-2].position
        return self._text[start:end].strip()

    def _partitions(self, text: str) -> Iterator[Change]:
        self._accept("IF", "NOT", "EXISTS")
        names = []
        inside = self._tokens[self._at : self._at + 1]
        if inside and inside[0].upper == "(":
            depth = 0
            for token, following in zip(self._tokens[self._at :], self._tokens[self._at + 1 :], strict=False):
                depth += {"(": 1, ")": -1}.get(token.upper, 0)
                if depth == 1 and token.upper == "PARTITION":
                    names.append(following.text)
                if not depth:
                    break
        yield Change(text, Verb.ADD, Part.PARTITION, names[0]) if len(names) == 1 else Change(text)

    def _drop_part(self, text: str, end: int) -> Iterator[Change]:
        if self._accept("PRIMARY", "KEY"):
            yield Change(text, Verb.DROP, Part.PRIMARY, "PRIMARY")
        elif self._accept("PARTITION"):
            self._accept("IF", "EXISTS")
            for name in self._listed(end):
                yield Change(f"DROP PARTITION {quote_name(name)}", Verb.DROP, Part.PARTITION, name)
        else:
            kind = self._any("COLUMN", "INDEX", "KEY", "CONSTRAINT", "CHECK") or ("FOREIGN" if self._accept("FOREIGN", "KEY") else "")
            self._accept("IF", "EXISTS")
            part = {"COLUMN": Part.COLUMN, "INDEX": Part.INDEX, "KEY": Part.INDEX, "": Part.OTHER}.get(kind, Part.CONSTRAINT)
            yield Change(text, Verb.DROP, part, self._identifier()) if part is not Part.OTHER else Change(text)

    def _listed(self, end: int) -> Iterator[str]:
        while self._token.position < end and self._token.kind is not Kind.END:
            yield self._identifier()
            self._accept(",")

    def _rename_part(self, text: str, end: int) -> Iterator[Change]:
        part = {"COLUMN": Part.COLUMN, "INDEX": Part.INDEX, "KEY": Part.INDEX}.get(self._any("COLUMN", "INDEX", "KEY"), Part.OTHER)
        if part is Part.OTHER:
            yield Change(text)
            return
        old = self._identifier()
        self._accept("TO")
        yield Change(text, Verb.RENAME, part, old, self._identifier())

    def _change_column(self, text: str, end: int) -> Iterator[Change]:
        self._accept("COLUMN")
        self._accept("IF", "EXISTS")
        old = self._identifier()
        start = self._token.position
        new = self._identifier()
        if old.lower() == new.lower():
            yield Change(text)
        else:
            yield Change(text, Verb.CHANGE, Part.COLUMN, old, new, self._definition(start, end))
