"""Statements of the playground's SQL subset, from text. Definitions of tables and ALTER TABLE are in `definitions.py`."""

from __future__ import annotations

from tidemill.playground.sql.parse import ast
from tidemill.playground.sql.parse.cursor import Cursor
from tidemill.playground.sql.parse.definitions import alter_table, charset_options, create_table, table_name
from tidemill.playground.sql.parse.expressions import Scope, evaluate, parse_expression
from tidemill.tidb.sql.lexer import Kind


def parse(sql: str) -> ast.Statement:
    """One statement. Raises SqlError."""
    cursor = Cursor(sql)
    statement = _statement(cursor)
    if not cursor.at_end():
        raise cursor.fail("the end of the statement")
    return statement


def _statement(cursor: Cursor) -> ast.Statement:
    word = cursor.accept_any(*_STATEMENTS)
    if not word:
        raise cursor.fail("a statement")
    return _STATEMENTS[word](cursor)


def _create(cursor: Cursor) -> ast.Statement:
    if cursor.accept_any("DATABASE", "SCHEMA"):
        if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
        name = cursor.name()
        return ast.CreateDatabase(name, if_not_exists, *charset_options(cursor))
    if cursor.accept("OR", "REPLACE") or cursor.at("VIEW"):
        cursor.expect("VIEW")
        table = table_name(cursor)
        cursor.expect("AS")
        text = cursor.sql[cursor.token.position :]
        cursor.expect("SELECT")
        select = _select(cursor)
        assert isinstance(select, ast.Select)
        return ast.CreateView(table, text, tuple(label for label, _ in select.items), select.table)
    cursor.expect("TABLE")
    return create_table(cursor)


def _drop(cursor: Cursor) -> ast.Statement:
    if cursor.accept_any("DATABASE", "SCHEMA"):
        if_exists = cursor.accept("IF", "EXISTS")
        return ast.DropDatabase(cursor.name(), if_exists)
    view = cursor.accept("VIEW")
    if not view:
        cursor.expect("TABLE")
    if_exists = cursor.accept("IF", "EXISTS")
    return ast.DropTables(cursor.list_of(lambda: table_name(cursor)), if_exists, view)


def _truncate(cursor: Cursor) -> ast.Statement:
    cursor.accept("TABLE")
    return ast.Truncate(table_name(cursor))


def _rename(cursor: Cursor) -> ast.Statement:
    cursor.expect("TABLE")

    def pair() -> tuple[ast.TableName, ast.TableName]:
        old = table_name(cursor)
        cursor.expect("TO")
        return old, table_name(cursor)

    return ast.RenameTables(cursor.list_of(pair))


def _recover(cursor: Cursor) -> ast.Statement:
    cursor.expect("TABLE")
    if cursor.accept("BY", "JOB"):
        return ast.RecoverTable(ast.TableName("", ""), cursor.integer())
    return ast.RecoverTable(table_name(cursor))


def _flashback(cursor: Cursor) -> ast.Statement:
    if cursor.accept_any("DATABASE", "SCHEMA"):
        name = cursor.name()
        return ast.FlashbackDatabase(name, cursor.name() if cursor.accept("TO") else "")
    cursor.expect("TABLE")
    table = table_name(cursor)
    return ast.RecoverTable(table, 0, cursor.name() if cursor.accept("TO") else "")


def _alter(cursor: Cursor) -> ast.Statement:
    if cursor.accept_any("DATABASE", "SCHEMA"):
        name = "" if cursor.at("CHARACTER") or cursor.at("CHARSET") or cursor.at("COLLATE") else cursor.name()
        return ast.AlterDatabase(name, *charset_options(cursor))
    cursor.expect("TABLE")
    return alter_table(cursor)


def _insert(cursor: Cursor, on_conflict: ast.OnConflict = ast.OnConflict.FAIL) -> ast.Statement:
    if cursor.accept("IGNORE"):
        on_conflict = ast.OnConflict.IGNORE
    cursor.accept("INTO")
    table = table_name(cursor)
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[ast.Expr, ...], ...]
    if cursor.accept("SET"):
        assignments = _assignments(cursor)
        columns, rows = tuple(name for name, _ in assignments), (tuple(value for _, value in assignments),)
    else:
        if cursor.at("("):
            columns = () if cursor.accept("(", ")") else cursor.in_parentheses(cursor.name)
        if not cursor.accept_any("VALUES", "VALUE"):
            raise cursor.fail("VALUES")
        rows = cursor.list_of(lambda: _row(cursor))
    on_duplicate: tuple[tuple[str, ast.Expr], ...] = ()
    if cursor.accept("ON", "DUPLICATE", "KEY", "UPDATE"):
        on_duplicate = _assignments(cursor)
    return ast.Insert(table, columns, rows, on_conflict, on_duplicate)


def _row(cursor: Cursor) -> tuple[ast.Expr, ...]:
    if cursor.accept("(", ")"):
        return ()
    return cursor.in_parentheses(lambda: parse_expression(cursor))


def _replace(cursor: Cursor) -> ast.Statement:
    return _insert(cursor, ast.OnConflict.REPLACE)


def _assignments(cursor: Cursor) -> tuple[tuple[str, ast.Expr], ...]:
    def assignment() -> tuple[str, ast.Expr]:
        name = cursor.name()
        while cursor.accept("."):
            name = cursor.name()
        cursor.expect("=")
        return name, parse_expression(cursor)

    return cursor.list_of(assignment)


def _where(cursor: Cursor) -> ast.Expr | None:
    return parse_expression(cursor) if cursor.accept("WHERE") else None


def _limit(cursor: Cursor) -> int | None:
    if cursor.accept("ORDER", "BY"):  # rows come in key order anyway
        cursor.list_of(lambda: (parse_expression(cursor), cursor.accept_any("ASC")))
    return cursor.integer() if cursor.accept("LIMIT") else None


def _update(cursor: Cursor) -> ast.Statement:
    table = table_name(cursor)
    cursor.expect("SET")
    return ast.Update(table, _assignments(cursor), _where(cursor), _limit(cursor))


def _delete(cursor: Cursor) -> ast.Statement:
    cursor.expect("FROM")
    return ast.Delete(table_name(cursor), _where(cursor), _limit(cursor))


def _select(cursor: Cursor) -> ast.Statement:
    def item() -> tuple[str, ast.Expr | None]:
        if cursor.accept("*"):
            return "*", None
        start = cursor.token.position
        expr = parse_expression(cursor)
        label = cursor.sql[start : cursor.token.position].strip()
        return (cursor.name() if cursor.accept("AS") else label), expr

    items = cursor.list_of(item)
    cursor.expect("FROM")
    return ast.Select(table_name(cursor), items, _where(cursor), _limit(cursor), cursor.accept("FOR", "UPDATE"))


def _set(cursor: Cursor) -> ast.Statement:
    cursor.accept_any("SESSION", "GLOBAL", "LOCAL")
    name = cursor.advance().text if cursor.token.kind is Kind.SYSTEM_VARIABLE else cursor.name()
    if not cursor.accept("="):
        cursor.expect(":=")
    if cursor.token.kind in (Kind.WORD, Kind.NAME):
        return ast.SetVariable(name.lower().rpartition(".")[2], cursor.advance().text)
    return ast.SetVariable(name.lower().rpartition(".")[2], evaluate(parse_expression(cursor), Scope({})))


def _begin(cursor: Cursor) -> ast.Statement:
    cursor.accept_any("PESSIMISTIC", "OPTIMISTIC")
    return ast.Begin()


def _start(cursor: Cursor) -> ast.Statement:
    cursor.expect("TRANSACTION")
    return ast.Begin()


def _split(cursor: Cursor) -> ast.Statement:
    cursor.expect("TABLE")
    table = table_name(cursor)
    if cursor.accept("BY"):
        return ast.SplitTable(table, cursor.list_of(lambda: _row(cursor)))
    cursor.expect("BETWEEN")
    low = _row(cursor)
    cursor.expect("AND")
    high = _row(cursor)
    cursor.expect("REGIONS")
    return ast.SplitTable(table, (), (low, high), cursor.integer())


def _show(cursor: Cursor) -> ast.Statement:
    if cursor.accept_any("DATABASES", "SCHEMAS"):
        return ast.ShowDatabases()
    if cursor.accept("CREATE", "TABLE"):
        return ast.ShowCreateTable(table_name(cursor))
    if cursor.accept_any("COLUMNS", "FIELDS"):
        if not cursor.accept_any("FROM", "IN"):
            raise cursor.fail("FROM")
        return ast.Describe(table_name(cursor))
    cursor.expect("TABLES")
    return ast.ShowTables(cursor.name() if cursor.accept_any("FROM", "IN") else "")


def _describe(cursor: Cursor) -> ast.Statement:
    return ast.Describe(table_name(cursor))


_STATEMENTS = {
    "SHOW": _show,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "CREATE": _create,
    "DROP": _drop,
    "TRUNCATE": _truncate,
    "RENAME": _rename,
    "RECOVER": _recover,
    "FLASHBACK": _flashback,
    "ALTER": _alter,
    "USE": lambda cursor: ast.Use(cursor.name()),
    "INSERT": _insert,
    "REPLACE": _replace,
    "UPDATE": _update,
    "DELETE": _delete,
    "SELECT": _select,
    "BEGIN": _begin,
    "START": _start,
    "COMMIT": lambda cursor: ast.Commit(),
    "ROLLBACK": lambda cursor: ast.Rollback(),
    "SET": _set,
    "SPLIT": _split,
}
