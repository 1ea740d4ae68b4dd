"""Definitions in the playground's SQL subset: tables, columns, keys, partitions, ALTER TABLE."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidemill.playground.sql.parse import ast
from tidemill.playground.sql.parse.cursor import Cursor
from tidemill.playground.sql.parse.expressions import Scope, evaluate, parse_expression

_SYNONYMS = {
    "integer": "int", "int1": "tinyint", "int2": "smallint", "int3": "mediumint", "int4": "int", "int8": "bigint",
    "dec": "decimal", "numeric": "decimal", "fixed": "decimal", "real": "double", "character": "char", "bool": "boolean",
}  # fmt: skip
_INDEX_WORDS = ("PRIMARY", "UNIQUE", "KEY", "INDEX", "CONSTRAINT")


def table_name(cursor: Cursor) -> ast.TableName:
    """`table` or `schema.table`."""
    first = cursor.name()
    return ast.TableName(first, cursor.name()) if cursor.accept(".") else ast.TableName("", first)


def charset_options(cursor: Cursor) -> tuple[str, str]:
    """Charset and collation, in any order; empty where not given."""
    charset = collate = ""
    while True:
        if any(cursor.at("DEFAULT", word) for word in ("CHARACTER", "CHARSET", "COLLATE")):
            cursor.advance()
        if cursor.accept("CHARACTER", "SET") or cursor.accept("CHARSET"):
            cursor.accept("=")
            charset = cursor.word_or_string().lower()
        elif cursor.accept("COLLATE"):
            cursor.accept("=")
            collate = cursor.word_or_string().lower()
        else:
            return charset, collate


# Types and columns


def type_spec(cursor: Cursor) -> ast.TypeSpec:
    """A column type."""
    word = cursor.advance().text.lower()
    name = _SYNONYMS.get(word, word)
    if name == "double":
        cursor.accept("PRECISION")
    if name == "char" and cursor.accept("VARYING"):
        name = "varchar"
    arguments: tuple[int, ...] = ()
    elems: tuple[str, ...] = ()
    if name in ("enum", "set"):
        elems = cursor.in_parentheses(cursor.string)
    elif cursor.at("("):
        arguments = cursor.in_parentheses(cursor.integer)
    spec = ast.TypeSpec(name, arguments, elems)
    while option := cursor.accept_any("UNSIGNED", "SIGNED", "ZEROFILL", "BINARY"):
        if option == "BINARY":
            spec = replace(spec, collate="binary-collation")
        else:
            spec = replace(spec, unsigned=spec.unsigned or option != "SIGNED", zerofill=spec.zerofill or option == "ZEROFILL")
    charset, collate = charset_options(cursor)
    return replace(spec, charset=charset, collate=collate or spec.collate)


def column_def(cursor: Cursor) -> ast.ColumnDef:
    """A column: name, type, options."""
    column = ast.ColumnDef(cursor.name(), type_spec(cursor))
    while (changed := _column_option(cursor, column)) is not None:
        column = changed
    return column


def _column_option(cursor: Cursor, column: ast.ColumnDef) -> ast.ColumnDef | None:
    changes: dict[str, Any]
    if cursor.accept("NOT", "NULL"):
        changes = {"not_null": True}
    elif cursor.accept("NULL"):
        changes = {"explicit_null": True}
    elif cursor.accept("DEFAULT"):
        changes = {"default": parse_expression(cursor)}
    elif cursor.accept("AUTO_INCREMENT"):
        changes = {"auto_increment": True}
    elif cursor.accept("AUTO_RANDOM"):
        bits = cursor.in_parentheses(cursor.integer)[0] if cursor.at("(") else 5
        changes = {"auto_random": bits}
    elif cursor.accept("ON", "UPDATE"):
        parse_expression(cursor)
        changes = {"on_update_now": True}
    elif cursor.accept("PRIMARY", "KEY"):
        changes = {"primary": True, "not_null": True, "clustered": _clustered(cursor)}
    elif cursor.accept("UNIQUE"):
        cursor.accept("KEY")
        changes = {"unique": True}
    elif cursor.accept("KEY"):
        changes = {"primary": True, "not_null": True}
    elif cursor.accept("COMMENT"):
        changes = {"comment": cursor.string()}
    elif cursor.accept("COLLATE"):
        changes = {"type": replace(column.type, collate=cursor.word_or_string().lower())}
    elif cursor.accept("GENERATED", "ALWAYS", "AS") or cursor.accept("AS"):
        cursor.expect("(")
        expr = parse_expression(cursor)
        cursor.expect(")")
        changes = {"generated": expr, "stored": cursor.accept("STORED")}
        cursor.accept("VIRTUAL")
    else:
        return None
    return replace(column, **changes)


def _clustered(cursor: Cursor) -> bool | None:
    word = cursor.accept_any("CLUSTERED", "NONCLUSTERED")
    return None if not word else word == "CLUSTERED"


def _positioned(cursor: Cursor, column: ast.ColumnDef) -> ast.ColumnDef:
    if cursor.accept("FIRST"):
        return replace(column, position=ast.Position(""))
    if cursor.accept("AFTER"):
        return replace(column, position=ast.Position(cursor.name()))
    return column


# Keys


def key_def(cursor: Cursor) -> ast.KeyDef:
    """PRIMARY KEY, UNIQUE or INDEX with its columns."""
    if cursor.accept("CONSTRAINT") and not any(cursor.at(w) for w in ("PRIMARY", "UNIQUE")):
        cursor.name()
    kind = ast.KeyKind.INDEX
    if cursor.accept("PRIMARY", "KEY"):
        kind = ast.KeyKind.PRIMARY
    elif cursor.accept("UNIQUE"):
        cursor.accept_any("KEY", "INDEX")
        kind = ast.KeyKind.UNIQUE
    elif not cursor.accept_any("KEY", "INDEX"):
        raise cursor.fail("a key")
    name = "" if cursor.at("(") else cursor.name()

    def part() -> tuple[str, int]:
        column = cursor.name()
        length = cursor.in_parentheses(cursor.integer)[0] if cursor.at("(") else -1
        cursor.accept_any("ASC", "DESC")
        return column, length

    return ast.KeyDef(name, kind, cursor.in_parentheses(part), _clustered(cursor))


# Partitions


def partition_by(cursor: Cursor) -> ast.PartitionBy:
    """What follows PARTITION BY."""
    kind = cursor.accept_any("RANGE", "LIST", "HASH", "KEY").lower()
    if not kind:
        raise cursor.fail("RANGE, LIST, HASH or KEY")
    columns: tuple[str, ...] = ()
    expr: ast.Expr | None = None
    if cursor.accept("COLUMNS") or kind == "key":
        columns = cursor.in_parentheses(cursor.name) if not cursor.accept("(", ")") else ()
    else:
        cursor.expect("(")
        expr = parse_expression(cursor)
        cursor.expect(")")
    count = cursor.integer() if cursor.accept("PARTITIONS") else 0
    definitions = partition_definitions(cursor) if cursor.at("(") else ()
    return ast.PartitionBy(kind, expr, columns, count or len(definitions) or 1, definitions)


def partition_definitions(cursor: Cursor) -> tuple[ast.PartitionDef, ...]:
    """A list of PARTITION … in parentheses."""
    return cursor.in_parentheses(lambda: _partition_definition(cursor))


def _partition_definition(cursor: Cursor) -> ast.PartitionDef:
    cursor.expect("PARTITION")
    name = cursor.name()
    if cursor.accept("VALUES", "LESS", "THAN"):
        if cursor.accept("MAXVALUE"):
            return ast.PartitionDef(name, (None,))
        bounds = cursor.in_parentheses(lambda: None if cursor.accept("MAXVALUE") else parse_expression(cursor))
        return ast.PartitionDef(name, bounds)
    if cursor.accept("VALUES", "IN"):

        def value() -> tuple[ast.Expr, ...]:
            if cursor.at("("):
                return cursor.in_parentheses(lambda: parse_expression(cursor))
            return (parse_expression(cursor),)

        return ast.PartitionDef(name, (), cursor.in_parentheses(value))
    return ast.PartitionDef(name)


# CREATE TABLE


def create_table(cursor: Cursor) -> ast.Statement:
    """What follows CREATE TABLE."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    table = table_name(cursor)
    if cursor.accept("LIKE"):
        return ast.CreateTableLike(table, table_name(cursor), if_not_exists)
    columns: list[ast.ColumnDef] = []
    keys: list[ast.KeyDef] = []

    def element() -> None:
        if any(cursor.at(word) for word in _INDEX_WORDS):
            keys.append(key_def(cursor))
        else:
            columns.append(column_def(cursor))

    cursor.in_parentheses(element)
    charset, collate, comment = _table_options(cursor)
    partition = partition_by(cursor) if cursor.accept("PARTITION", "BY") else None
    return ast.CreateTable(table, if_not_exists, tuple(columns), tuple(keys), partition, charset, collate, comment)


def _table_options(cursor: Cursor) -> tuple[str, str, str]:
    charset = collate = comment = ""
    while not cursor.at_end() and not cursor.at("PARTITION"):
        found = charset_options(cursor)
        if any(found):
            charset, collate = found[0] or charset, found[1] or collate
        elif cursor.accept("COMMENT"):
            cursor.accept("=")
            comment = cursor.string()
        elif cursor.accept_any("ENGINE", "AUTO_INCREMENT", "AUTO_ID_CACHE", "SHARD_ROW_ID_BITS", "PRE_SPLIT_REGIONS", "ROW_FORMAT"):
            cursor.accept("=")
            cursor.advance()
        else:
            raise cursor.fail("a table option")
    return charset, collate, comment


# ALTER TABLE


def alter_table(cursor: Cursor) -> ast.AlterTable:
    """What follows ALTER TABLE."""
    table = table_name(cursor)
    actions: list[ast.AlterAction] = []

    def action() -> None:
        actions.extend(_alter_action(cursor))

    cursor.list_of(action)
    return ast.AlterTable(table, tuple(actions))


def _alter_action(cursor: Cursor) -> list[ast.AlterAction]:
    word = cursor.accept_any(*_ALTER)
    if word:
        return _ALTER[word](cursor)
    charset, collate = charset_options(cursor)
    if charset or collate:
        return [ast.TableCharset(charset, collate)]
    raise cursor.fail("an ALTER TABLE action")


def _add(cursor: Cursor) -> list[ast.AlterAction]:
    if cursor.accept("PARTITION"):
        return [ast.AddPartitions(partition_definitions(cursor))]
    if any(cursor.at(w) for w in _INDEX_WORDS):
        return [ast.AddIndex(key_def(cursor))]
    cursor.accept("COLUMN")
    if cursor.at("("):
        return [ast.AddColumn(c) for c in cursor.in_parentheses(lambda: column_def(cursor))]
    return [ast.AddColumn(_positioned(cursor, column_def(cursor)))]


def _drop(cursor: Cursor) -> list[ast.AlterAction]:
    if cursor.accept("PARTITION"):
        return [ast.DropPartitions(cursor.list_of(cursor.name))]
    if cursor.accept("PRIMARY", "KEY"):
        return [ast.DropIndex("PRIMARY")]
    if cursor.accept_any("INDEX", "KEY"):
        return [ast.DropIndex(cursor.name())]
    cursor.accept("COLUMN")
    return [ast.DropColumn(cursor.name())]


def _modify(cursor: Cursor) -> list[ast.AlterAction]:
    cursor.accept("COLUMN")
    column = _positioned(cursor, column_def(cursor))
    return [ast.ModifyColumn(column.name, column)]


def _change(cursor: Cursor) -> list[ast.AlterAction]:
    cursor.accept("COLUMN")
    name = cursor.name()
    return [ast.ModifyColumn(name, _positioned(cursor, column_def(cursor)))]


def _rename(cursor: Cursor) -> list[ast.AlterAction]:
    kind = cursor.accept_any("COLUMN", "INDEX", "KEY")
    if kind:
        name = cursor.name()
        cursor.expect("TO")
        return [ast.RenameColumn(name, cursor.name()) if kind == "COLUMN" else ast.RenameIndex(name, cursor.name())]
    cursor.accept_any("TO", "AS")
    return [ast.RenameTo(table_name(cursor))]


def _alter_column(cursor: Cursor) -> list[ast.AlterAction]:
    cursor.accept("COLUMN")
    name = cursor.name()
    if cursor.accept("DROP", "DEFAULT"):
        return [ast.SetDefault(name, None)]
    cursor.expect("SET", "DEFAULT")
    return [ast.SetDefault(name, parse_expression(cursor))]


def _comment(cursor: Cursor) -> list[ast.AlterAction]:
    cursor.accept("=")
    return [ast.TableComment(cursor.string())]


def _auto_increment(cursor: Cursor) -> list[ast.AlterAction]:
    cursor.accept("=")
    value = evaluate(parse_expression(cursor), Scope({}))
    if not isinstance(value, int):
        raise cursor.fail("a number")
    return [ast.AutoIncrement(value)]


def _truncate(cursor: Cursor) -> list[ast.AlterAction]:
    cursor.expect("PARTITION")
    return [ast.TruncatePartitions(() if cursor.accept("ALL") else cursor.list_of(cursor.name))]


def _reorganize(cursor: Cursor) -> list[ast.AlterAction]:
    cursor.expect("PARTITION")
    names = cursor.list_of(cursor.name)
    cursor.expect("INTO")
    return [ast.ReorganizePartitions(names, partition_definitions(cursor))]


def _exchange(cursor: Cursor) -> list[ast.AlterAction]:
    cursor.expect("PARTITION")
    name = cursor.name()
    cursor.expect("WITH", "TABLE")
    table = table_name(cursor)
    if cursor.accept_any("WITH", "WITHOUT"):
        cursor.expect("VALIDATION")
    return [ast.ExchangePartition(name, table)]


def _partition(cursor: Cursor) -> list[ast.AlterAction]:
    cursor.expect("BY")
    return [ast.PartitionTable(partition_by(cursor))]


def _remove(cursor: Cursor) -> list[ast.AlterAction]:
    cursor.expect("PARTITIONING")
    return [ast.RemovePartitioning()]


_ALTER = {
    "ADD": _add,
    "DROP": _drop,
    "MODIFY": _modify,
    "CHANGE": _change,
    "RENAME": _rename,
    "ALTER": _alter_column,
    "COMMENT": _comment,
    "AUTO_INCREMENT": _auto_increment,
    "TRUNCATE": _truncate,
    "REORGANIZE": _reorganize,
    "EXCHANGE": _exchange,
    "PARTITION": _partition,
    "REMOVE": _remove,
}
