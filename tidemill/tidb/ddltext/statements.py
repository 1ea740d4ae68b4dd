"""Whole statements: CREATE, ALTER, DROP, RENAME, TRUNCATE, RECOVER, FLASHBACK."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidemill.tidb.ddltext.alter import alter_database, alter_table, of_index, policy_definition
from tidemill.tidb.ddltext.column_types import equals, if_exists, if_not_exists, part_if_not_exists, special
from tidemill.tidb.ddltext.columns import table_elements
from tidemill.tidb.ddltext.constraints import INDEX_TYPES, index_columns, index_head, index_options, split_regions
from tidemill.tidb.ddltext.dialects import Part
from tidemill.tidb.ddltext.names import Name
from tidemill.tidb.ddltext.options import database_options, table_options, with_ttl_off, word_of
from tidemill.tidb.ddltext.partitions import partition_by
from tidemill.tidb.ddltext.queries.parser import Parser
from tidemill.tidb.ddltext.queries.select import at_query, query_clause
from tidemill.tidb.names import quote_name
from tidemill.tidb.sql.lexer import Kind

_TEMPORARY = {"": "", "TEMPORARY": "TEMPORARY ", "GLOBAL": "GLOBAL TEMPORARY "}


# Any statement


def statement(p: Parser) -> str:
    """Parse one statement; semicolons around it are dropped."""
    while p.accept(";"):
        pass
    text = _parse_statement(p)
    while p.accept(";"):
        pass
    if not p.at_end():
        raise p.fail("the end of the statement")
    return text


def _parse_statement(p: Parser) -> str:
    verb = p.expect_any(("CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE", "RECOVER", "FLASHBACK"))
    parse: dict[str, Callable[[Parser], str]] = {
        "CREATE": _create,
        "ALTER": _alter,
        "DROP": _drop,
        "RENAME": _rename_tables,
        "TRUNCATE": _truncate,
        "RECOVER": _recover,
        "FLASHBACK": _flashback,
    }
    return parse[verb](p)


# CREATE


def _create(p: Parser) -> str:
    if p.accept_any(("DATABASE", "SCHEMA")):
        head = f"CREATE DATABASE {if_not_exists(p)}{p.schema_name()}"
        return head + "".join(f" {option}" for option in database_options(p) if option or not p.dialect.exact)
    if p.at("MASKING") or p.at("OR", "REPLACE", "MASKING"):
        return _create_masking_policy(p)
    if p.at_any(("OR", "ALGORITHM", "DEFINER", "SQL", "VIEW")):
        return _create_view(p)
    if p.at_any(("UNIQUE", "SPATIAL", "FULLTEXT", "VECTOR", "COLUMNAR", "INDEX")):
        return _create_index(p)
    if p.accept("SEQUENCE"):
        return _create_sequence(p)
    return _create_table(p)


def _temporary(p: Parser) -> str:
    word = p.accept_any(("TEMPORARY", "GLOBAL"))
    if word == "GLOBAL":
        p.expect("TEMPORARY")
    return _TEMPORARY[word]


def _create_table(p: Parser) -> str:
    temporary = _temporary(p)
    p.expect("TABLE")
    text = f"CREATE {temporary}TABLE {if_not_exists(p)}{p.table_name()}"
    if p.accept("LIKE"):
        text += f" LIKE {p.table_name()}"
    elif p.at("(", "LIKE"):
        p.expect("(", "LIKE")
        text += f" LIKE {p.table_name()}"
        p.expect(")")
    else:
        text += _table_definition(p)
    on_commit = ""
    if p.accept("ON", "COMMIT"):
        on_commit = f" ON COMMIT {p.expect_any(('DELETE', 'PRESERVE'))} ROWS"
        p.expect("ROWS")
    if bool(on_commit) != temporary.startswith("GLOBAL"):
        raise p.fail("ON COMMIT with, and only with, GLOBAL TEMPORARY")
    return p.dialect.part(Part.GLOBAL_TEMPORARY, text + on_commit) if on_commit else text


def _create_masking_policy(p: Parser) -> str:
    replaced = "OR REPLACE " if p.accept("OR", "REPLACE") else ""
    p.expect("MASKING", "POLICY")
    text = f"CREATE {replaced}MASKING POLICY {if_not_exists(p)}{p.name()}"
    p.expect("ON")
    table = p.table_name()
    text += f" ON {table} {p.in_parentheses(p.column_name)}{policy_definition(p)}"
    return p.dialect.part(Part.TIDB_SPEC, text)


def _table_definition(p: Parser) -> str:
    text = ""
    if p.at("(") and p.peek().upper not in ("SELECT", "WITH", "(", "TABLE", "VALUES"):
        columns, constraints = table_elements(p)
        text = f" ({','.join(columns + constraints)})"
    options = with_ttl_off(table_options(p, commas=True))
    text += "".join(f" {option.text}" for option in options if option.text or not p.dialect.exact)
    if p.at("PARTITION"):
        text += f" {partition_by(p)}"
    while p.at("SPLIT"):
        split = split_regions(p)
        text += f" {split}" if split else ""
    duplicates = p.accept_any(("IGNORE", "REPLACE"))
    p.accept("AS")
    if at_query(p):
        text += f"{' ' + duplicates if duplicates else ''} AS {query_clause(p)}"
    return text


def _create_view(p: Parser) -> str:
    text = "CREATE "
    if p.accept("OR"):
        p.expect("REPLACE")
        text += "OR REPLACE "
    algorithm = "UNDEFINED"
    if p.accept("ALGORITHM"):
        p.expect("=")
        algorithm = p.expect_any(("UNDEFINED", "MERGE", "TEMPTABLE"))
    definer = "CURRENT_USER"
    if p.accept("DEFINER"):
        p.expect("=")
        definer = p.user_name()
    security = "DEFINER"
    if p.accept("SQL"):
        p.expect("SECURITY")
        security = p.expect_any(("DEFINER", "INVOKER"))
    p.expect("VIEW")
    text += f"ALGORITHM = {algorithm} DEFINER = {definer} SQL SECURITY {security} VIEW {p.table_name()}"
    if p.at("("):
        text += " " + p.in_parentheses(p.name, ",")
    p.expect("AS")
    text += f" AS {query_clause(p)}"
    if p.accept("WITH"):
        check = p.expect_any(("CASCADED", "LOCAL"))
        p.expect("CHECK", "OPTION")
        text += " WITH LOCAL CHECK OPTION" if check == "LOCAL" else ""
    return text


def _create_index(p: Parser) -> str:
    word = p.accept_any(("UNIQUE", "SPATIAL", "FULLTEXT", "VECTOR", "COLUMNAR"))
    p.expect("INDEX")
    name = f"{part_if_not_exists(p)}{p.name()}"
    index_type = p.expect_any(INDEX_TYPES) if p.accept_any(("USING", "TYPE")) else ""
    p.expect("ON")
    table = p.table_name()
    columns, kind = index_columns(p)
    options = index_options(p)
    options.index_type = options.index_type or index_type or ("HNSW" if word == "VECTOR" else "")
    head = index_head(p, f"{word} INDEX".lstrip(), kind, options)
    tail = _lock_and_algorithm(p)
    return f"CREATE {head} {name} ON {table} {columns}{options.print()}{tail}" if head else ""


def _lock_and_algorithm(p: Parser) -> str:
    """Parse at most one LOCK and one ALGORITHM. Defaults are not printed, and the algorithm is printed first."""
    found: dict[str, str] = {}
    while (word := p.token.upper) in ("LOCK", "ALGORITHM") and word not in found:
        p.next()
        equals(p)
        choices = ("DEFAULT", "NONE", "SHARED", "EXCLUSIVE")
        if word == "ALGORITHM":
            choices = ("DEFAULT", "COPY", "INPLACE", "INSTANT")
        found[word] = word_of(p, choices)
    text = "".join(f" {word} = {found[word]}" for word in ("ALGORITHM", "LOCK") if found.get(word, "DEFAULT") != "DEFAULT")
    return p.dialect.part(Part.ALGORITHM, text) if text else ""


# Sequences


def _create_sequence(p: Parser) -> str:
    text = f"CREATE SEQUENCE {if_not_exists(p)}{p.table_name()}"
    while option := _accept_sequence_option(p):
        text += f" {option}"
    return text + "".join(f" {option.text}" for option in table_options(p, commas=True))


def _accept_sequence_option(p: Parser) -> str:
    if p.accept("INCREMENT"):
        p.accept_any(("=", "BY"))
        return f"INCREMENT BY {p.signed()}"
    if p.accept("START"):
        p.accept_any(("=", "WITH"))
        return f"START WITH {p.signed()}"
    for word in ("MINVALUE", "MAXVALUE", "CACHE", "CYCLE"):
        printed = f"NO {word}" if word.endswith("VALUE") else f"NO{word}"
        if p.accept(f"NO{word}") or p.accept("NO", word):
            return printed
        if p.accept(word):
            if word == "CYCLE":
                return word
            equals(p)
            return f"{word} {p.signed()}"
    return ""


def _alter_sequence(p: Parser) -> str:
    text = f"ALTER SEQUENCE {if_exists(p)}{p.table_name()}"
    if p.at_end():
        raise p.fail("an option")
    while True:
        if p.accept("RESTART"):
            valued = p.accept_any(("=", "WITH")) or p.token.kind is Kind.INT or p.at_any(("+", "-"))
            text += f" RESTART WITH {p.signed()}" if valued else " RESTART"
        elif option := _accept_sequence_option(p):
            text += f" {option}"
        else:
            return text


# DROP and the short ones


def _drop(p: Parser) -> str:
    if p.accept_any(("DATABASE", "SCHEMA")):
        return f"DROP DATABASE {if_exists(p)}{p.schema_name()}"
    if p.accept("INDEX") or p.accept("HYPO", "INDEX"):
        exists = special("", "IF EXISTS ") if if_exists(p) else ""
        text = of_index(p, f"DROP INDEX {exists}", "")
        p.expect("ON")
        tail = f" ON {p.table_name()}{_lock_and_algorithm(p)}"
        return text + tail if text else ""
    if p.accept("SEQUENCE"):
        return f"DROP SEQUENCE {if_exists(p)}{p.list_of(p.table_name)}"
    if p.accept("VIEW"):
        text = "DROP VIEW "
    else:
        text = f"DROP {_temporary(p)}TABLE "
        p.expect_any(("TABLE", "TABLES"))
    text += if_exists(p) + p.list_of(p.table_name)
    p.accept_any(("RESTRICT", "CASCADE"))
    return text


def _rename_tables(p: Parser) -> str:
    p.expect("TABLE")

    def pair() -> str:
        old = p.table_name()
        p.expect("TO")
        return f"{old} TO {p.table_name()}"

    return f"RENAME TABLE {p.list_of(pair)}"


def _truncate(p: Parser) -> str:
    p.accept("TABLE")
    return f"TRUNCATE TABLE {p.table_name()}"


def _recover(p: Parser) -> str:
    p.expect("TABLE")
    if p.accept("BY", "JOB"):
        return p.dialect.part(Part.RECOVER, f"RECOVER TABLE BY JOB {p.positive()}")
    text = f"RECOVER TABLE {p.table_name()}"
    if p.token.kind is Kind.INT and (number := p.positive()):
        text += f" {number}"
    return p.dialect.part(Part.RECOVER, text)


def _flashback(p: Parser) -> str:
    return p.dialect.part(Part.RECOVER, _read_flashback(p))


def _read_flashback(p: Parser) -> str:
    if p.accept("CLUSTER"):
        return f"FLASHBACK CLUSTER{_flashback_time(p)}"
    if p.accept_any(("DATABASE", "SCHEMA")):
        text, names = f"FLASHBACK DATABASE {p.schema_name()}", 1
        new_name = p.schema_name
    else:
        p.expect("TABLE")
        start = p.index
        new_name = partial(_new_table_name, p, _peek_table_name(p)[0])
        text = f"FLASHBACK TABLE {p.list_of(p.table_name)}"
        names = sum(token.upper == "," for token in p.tokens[start : p.index]) + 1
    if p.at("TO", "TIMESTAMP") and p.peek(2).kind is Kind.STRING:
        return text + _flashback_time(p)
    if p.at("TO", "TSO") and p.peek(2).kind is Kind.INT:
        return text + _flashback_time(p)
    if names > 1:
        raise p.fail("TO TIMESTAMP or TO TSO")
    return f"{text} TO {new_name()}" if p.accept("TO") else text


def _new_table_name(p: Parser, schema: str) -> str:
    """Parse the new name of a table that stays in its schema."""
    return quote_name(p.names.table((schema, p.identifier()))[1])


def _peek_table_name(p: Parser) -> Name:
    """Return the table name that follows, and stay before it."""
    start, name = p.index, p.parse_table_name()
    p.index = start
    return name


def _flashback_time(p: Parser) -> str:
    p.expect("TO")
    if p.accept("TSO"):
        tso = p.unsigned()
        if not tso:
            raise p.fail("a timestamp")
        return f" TO TSO {tso}"
    p.expect("TIMESTAMP")
    return f" TO TIMESTAMP {p.plain_string()}"


def _alter(p: Parser) -> str:
    if p.accept_any(("DATABASE", "SCHEMA")):
        return alter_database(p)
    if p.accept("SEQUENCE"):
        return _alter_sequence(p)
    p.accept("IGNORE")
    p.expect("TABLE")
    return alter_table(p)
