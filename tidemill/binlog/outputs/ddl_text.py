"""What a DDL is, and which tables it names, by its first words. TiDB prints DDLs before it writes them, so the text is of one form."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = r"(?:`(?:[^`]|``)+`|[\w$]+)"
_TABLE = rf"{_NAME}(?:\.{_NAME})?"
_IF = r"(?:IF (?:NOT )?EXISTS )?"
_PART = re.compile(_NAME)
_COMMENTS = re.compile(r"/\*.*?\*/", re.S)

_FORMS = tuple(
    (
        kind,
        re.compile(
            pattern.replace("TABLES", rf"(?P<tables>{_TABLE}(?:\s*,\s*{_TABLE})*)").replace("TABLE_", f"(?P<tables>{_TABLE})"), re.I
        ),
    )
    for kind, pattern in (
        ("create database", rf"CREATE (?:DATABASE|SCHEMA) {_IF}(?P<schema>{_NAME})"),
        ("drop database", rf"DROP (?:DATABASE|SCHEMA) {_IF}(?P<schema>{_NAME})"),
        ("alter database", rf"ALTER (?:DATABASE|SCHEMA) (?P<schema>{_NAME})"),
        ("create view", r"CREATE (?:OR REPLACE )?(?:ALGORITHM ?= ?\w+ )?(?:DEFINER ?= ?\S+ )?(?:SQL SECURITY \w+ )?VIEW TABLE_"),
        ("drop view", rf"DROP VIEW {_IF}TABLES"),
        ("create table", rf"CREATE (?:GLOBAL )?(?:TEMPORARY )?TABLE {_IF}TABLE_"),
        ("drop table", rf"DROP (?:GLOBAL )?(?:TEMPORARY )?TABLE {_IF}TABLES"),
        ("truncate table", r"TRUNCATE (?:TABLE )?TABLE_"),
        ("rename table", rf"RENAME TABLE (?P<tables>{_TABLE} TO {_TABLE}(?:\s*,\s*{_TABLE} TO {_TABLE})*)"),
        ("create index", rf"CREATE (?:\w+ )?INDEX {_IF}{_NAME}.*? ON TABLE_"),
        ("drop index", rf"DROP INDEX {_IF}{_NAME} ON TABLE_"),
        ("add table partition", r"ALTER TABLE TABLE_ ADD PARTITION"),
        ("drop table partition", r"ALTER TABLE TABLE_ DROP PARTITION"),
        ("truncate table partition", r"ALTER TABLE TABLE_ TRUNCATE PARTITION"),
        ("alter table", r"ALTER TABLE TABLE_"),
    )
)

KINDS = frozenset(kind for kind, _ in _FORMS)
"""What a DDL may be."""


LONGEST = 100_000
"""Characters of a statement that are looked at."""


@dataclass(frozen=True, slots=True)
class DdlText:
    """`kind`: one of KINDS; empty: another DDL. `tables`: database and table, which is empty for a DDL of a database."""

    kind: str
    tables: tuple[tuple[str, str], ...]


def _without_comments(text: str) -> str:
    """Behind the last end of a comment none is looked for: from each `/*` there, that would go to the end of the text."""
    end = text.rfind("*/") + 2
    return _COMMENTS.sub(" ", text[:end]) + text[end:] if end > 1 else text


def read_ddl(query: str, schema: str) -> DdlText:
    """Return what a DDL is. `schema`: the database of tables that are named without one."""
    text = " ".join(_without_comments(query[:LONGEST]).split())
    for kind, form in _FORMS:
        found = form.match(text)
        if found is None:
            continue
        groups = found.groupdict()
        if groups.get("schema"):
            return DdlText(kind, ((_plain(groups["schema"]), ""),))
        tables = re.split(r"\s*,\s*|\s+TO\s+", groups["tables"], flags=re.I)
        return DdlText(kind, tuple(_table(one, schema) for one in tables))
    return DdlText("", ((schema, ""),) if schema else ())


def _table(text: str, schema: str) -> tuple[str, str]:
    parts = [_plain(one) for one in _PART.findall(text)]
    return (parts[0], parts[1]) if len(parts) > 1 else (schema, parts[0])


def _plain(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
