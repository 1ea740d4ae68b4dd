"""What the actions of ALTER TABLE on columns, indexes and table options do to a table's description, step by step.

A change first runs steps that could still be undone (new columns and indexes become writable), then the steps that make it
public or gone. Several actions in one statement share the first of the latter, as in TiDB's multi-schema changes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemill.errors import SqlError
from tidemill.playground.sql.parse import ast
from tidemill.playground.sql.schema.coltypes import charset_of
from tidemill.playground.sql.schema.tableinfo import (
    ci_name,
    column_json,
    find_column,
    index_json,
    index_name,
    mark_keys,
    origin_default,
    set_default,
)
from tidemill.tidb.schema.codes import Action, ColumnFlag, MySQLType, SchemaState

Json = dict[str, Any]
Mutate = Callable[[Json], None]
Step = tuple[SchemaState, Mutate]

WRITABLE_STATES = (SchemaState.DELETE_ONLY, SchemaState.WRITE_ONLY, SchemaState.WRITE_REORG)
LEAVING_STATES = (SchemaState.WRITE_ONLY, SchemaState.DELETE_ONLY, SchemaState.DELETE_REORG)
_INTEGERS = {MySQLType.TINY: 1, MySQLType.SHORT: 2, MySQLType.INT24: 3, MySQLType.LONG: 4, MySQLType.LONGLONG: 8}
_TEXT_FAMILY = (MySQLType.VARCHAR, MySQLType.VAR_STRING)


@dataclass(slots=True)
class SubChange:
    """One action as steps. `backfill` says that rows must be rewritten before the final steps, `index_backfill` that entries are made."""

    action: Action
    args: Json
    final: list[Step]
    revertible: list[Step] = field(default_factory=list)
    first_state: SchemaState = SchemaState.NONE
    done_args: Json | None = None
    backfill: bool = False
    index_backfill: bool = False
    unique_index: int = 0  # id of an index whose entries must be unique before it may become public


def plan(action: ast.AlterAction, info: Json, inherited: tuple[str, str], now: str) -> SubChange:
    """The steps of an action on a table as described. Raises SqlError."""
    match action:
        case ast.AddColumn(column):
            return _add_column(column, info, inherited, now)
        case ast.DropColumn(name):
            return _drop_column(name, info)
        case ast.ModifyColumn(name, column):
            return _modify_column(name, column, info, inherited, now)
        case ast.RenameColumn(name, new_name):
            return _rename_column(name, new_name, info)
        case ast.SetDefault(name, default):
            return _simple(Action.SET_DEFAULT_VALUE, {"column": name}, lambda t: set_default(find_column(t["cols"], name), default, now))
        case ast.AddIndex(key):
            return _add_index(key, info)
        case ast.DropIndex(name):
            return _drop_index(name, info)
        case ast.RenameIndex(name, new_name):
            return _rename_index(name, new_name, info)
        case ast.TableComment(comment):
            return _simple(Action.MODIFY_TABLE_COMMENT, {"comment": comment}, lambda t: t.update(comment=comment))
        case ast.TableCharset(charset, collate):
            found = charset_of(charset, collate, inherited)
            if found == inherited:
                return SubChange(Action.MODIFY_TABLE_CHARSET, {}, [])
            args = {"to_charset": found[0], "to_collate": found[1], "needs_overwrite_cols": False}
            return _simple(Action.MODIFY_TABLE_CHARSET, args, lambda t: t.update(charset=found[0], collate=found[1]))
        case ast.AutoIncrement(value):
            return _simple(Action.REBASE_AUTO_ID, {"new_base": value, "force": False}, lambda t: t.update(auto_inc_id=value))
    raise SqlError("this ALTER TABLE action cannot be combined with others")


def _simple(action: Action, args: Json, mutate: Mutate) -> SubChange:
    return SubChange(action, args, [(SchemaState.PUBLIC, mutate)])


# The order of columns


def arrange(info: Json, columns: Sequence[Json]) -> None:
    """Set a table's columns in a new order and keep its indexes pointing at the same ones."""
    moved = {column["offset"]: position for position, column in enumerate(columns)}
    for column in columns:
        change = column["change_state_info"]
        if change is not None and change["relative_col_offset"] in moved:
            change["relative_col_offset"] = moved[change["relative_col_offset"]]
    for position, column in enumerate(columns):
        column["offset"] = position
    for index in info["index_info"] or ():
        for part in index["idx_cols"]:
            part["offset"] = moved[part["offset"]]
    info["cols"] = list(columns)


def _placed(columns: list[Json], column: Json, position: ast.Position | None, default: int) -> list[Json]:
    """The columns with one put in its place: FIRST, AFTER, or at `default`."""
    rest = [c for c in columns if c is not column]
    at = default
    if position is not None:
        at = 0 if not position.after else next((i + 1 for i, c in enumerate(rest) if c["name"]["L"] == position.after.lower()), -1)
        if at < 0:
            raise SqlError(f"unknown column {position.after}")
    return [*rest[:at], column, *rest[at:]]


def _public_count(columns: Sequence[Json]) -> int:
    return sum(c["state"] == SchemaState.PUBLIC for c in columns)


# Columns


def _add_column(definition: ast.ColumnDef, info: Json, inherited: tuple[str, str], now: str) -> SubChange:
    if any(c["name"]["L"] == definition.name.lower() for c in info["cols"]):
        raise SqlError(f"column {definition.name} exists")
    if definition.primary or definition.unique or definition.auto_increment:
        raise SqlError("a column with a key cannot be added in one step")
    template = column_json(definition, 0, len(info["cols"]), inherited, now)
    origin_default(template, now)

    def appear(table: Json) -> None:
        table["max_col_id"] += 1
        column = {**copy.deepcopy(template), "id": table["max_col_id"], "offset": len(table["cols"]), "state": int(SchemaState.DELETE_ONLY)}
        table["cols"].append(column)

    def publish(table: Json) -> None:
        column = find_column(table["cols"], definition.name)
        column["state"] = int(SchemaState.PUBLIC)
        arrange(table, _placed(table["cols"], column, definition.position, _public_count(table["cols"]) - 1))

    steps: list[Step] = [(SchemaState.DELETE_ONLY, appear)]
    steps += [(state, _column_state(definition.name, state)) for state in WRITABLE_STATES[1:]]
    args = {"column_info": {**template, "state": 0}, "position": _position(definition.position), "offset": 0, "if_not_exists": False}
    return SubChange(Action.ADD_COLUMN, args, [(SchemaState.PUBLIC, publish)], steps)


def _position(position: ast.Position | None) -> Json:
    """Return a column's position as job arguments have it: default, first, or after another column."""
    if position is None:
        return {"Tp": 0, "RelativeColumn": None}
    return {"Tp": 2, "RelativeColumn": {"Name": ci_name(position.after)}} if position.after else {"Tp": 1, "RelativeColumn": None}


def _column_state(name: str, state: SchemaState) -> Mutate:
    return lambda table: find_column(table["cols"], name).update(state=int(state))


def _drop_column(name: str, info: Json) -> SubChange:
    column = find_column(info["cols"], name)
    if any(part["name"]["L"] == name.lower() for index in info["index_info"] or () for part in index["idx_cols"]):
        raise SqlError(f"column {name} is part of an index")
    if column["type"]["Flag"] & ColumnFlag.PRIMARY_KEY or _public_count(info["cols"]) < 2:
        raise SqlError(f"column {name} cannot be dropped")

    def hide(table: Json) -> None:
        leaving = find_column(table["cols"], name)
        leaving["state"] = int(SchemaState.WRITE_ONLY)
        flags = leaving["type"]["Flag"]
        if flags & ColumnFlag.NOT_NULL and leaving["default"] is None and leaving["origin_default"] is None:
            origin_default(leaving, "1970-01-01 00:00:00")  # what writers that no longer see the column write into it
        arrange(table, _placed(table["cols"], leaving, None, len(table["cols"]) - 1))

    def remove(table: Json) -> None:
        arrange(table, [c for c in table["cols"] if c["name"]["L"] != name.lower()])

    steps: list[Step] = [(SchemaState.WRITE_ONLY, hide)]
    steps += [(state, _column_state(name, state)) for state in LEAVING_STATES[1:]]
    blank = {**copy.deepcopy(column), "id": 0, "offset": 0, "state": 0}
    args = {"column_info": blank, "if_exists": False}
    return SubChange(Action.DROP_COLUMN, args, [*steps, (SchemaState.NONE, remove)], first_state=SchemaState.PUBLIC)


def _modify_column(name: str, definition: ast.ColumnDef, info: Json, inherited: tuple[str, str], now: str) -> SubChange:
    old = find_column(info["cols"], name)
    if definition.name.lower() != name.lower() and any(c["name"]["L"] == definition.name.lower() for c in info["cols"]):
        raise SqlError(f"column {definition.name} exists")
    new = column_json(definition, old["id"], old["offset"], inherited, now)
    new["type"]["Flag"] |= old["type"]["Flag"] & int(ColumnFlag.PRIMARY_KEY | ColumnFlag.UNIQUE_KEY | ColumnFlag.MULTIPLE_KEY)
    if old["type"]["Flag"] & ColumnFlag.PRIMARY_KEY:
        new["type"]["Flag"] |= int(ColumnFlag.NOT_NULL)
    if needs_rewrite(old["type"], new["type"]):
        return _rewrite_column(old, new, definition, info)

    def swap(table: Json) -> None:
        column = find_column(table["cols"], name)
        kept = {key: column[key] for key in ("id", "offset", "origin_default", "origin_default_bit", "state")}
        column.update({**copy.deepcopy(new), **kept})
        rename_parts(table, name, definition.name)
        arrange(table, _placed(table["cols"], column, definition.position, column["offset"]))

    args = {"column": new, "old_column_name": ci_name(name), "position": {"Tp": 0, "RelativeColumn": None}}
    return SubChange(Action.MODIFY_COLUMN, args, [(SchemaState.PUBLIC, swap)], done_args={"old_column_name": ci_name("")})


def needs_rewrite(old: Json, new: Json) -> bool:
    """Whether a change of type needs the rows rewritten: a smaller range, another family, another sign."""
    if old["Tp"] in _INTEGERS and new["Tp"] in _INTEGERS:
        same_sign = not (old["Flag"] ^ new["Flag"]) & ColumnFlag.UNSIGNED
        return not (same_sign and _INTEGERS[new["Tp"]] >= _INTEGERS[old["Tp"]])
    if old["Tp"] in _TEXT_FAMILY and new["Tp"] in _TEXT_FAMILY and old["Charset"] == new["Charset"]:
        return bool(new["Flen"] < old["Flen"])
    if old["Tp"] != new["Tp"] or old["Charset"] != new["Charset"]:
        return True
    if old["Elems"] != new["Elems"]:
        return bool((new["Elems"] or [])[: len(old["Elems"] or [])] != old["Elems"])
    if old["Tp"] in (MySQLType.NEWDECIMAL, MySQLType.DURATION, MySQLType.DATETIME, MySQLType.TIMESTAMP, MySQLType.STRING):
        return bool(old["Flen"] != new["Flen"] or old["Decimal"] != new["Decimal"])
    return bool(new["Flen"] < old["Flen"])


def _rewrite_column(old: Json, new: Json, definition: ast.ColumnDef, info: Json) -> SubChange:
    name = old["name"]["O"]
    if any(part["name"]["L"] == name.lower() for index in info["index_info"] or () for part in index["idx_cols"]):
        raise SqlError(f"column {name} is part of an index and would need rewriting: not supported here")
    if old["type"]["Flag"] & ColumnFlag.PRIMARY_KEY or info["partition"]:
        raise SqlError(f"column {name} cannot be rewritten here")
    copy_name = f"_Col$_{name}_0"

    def appear(table: Json) -> None:
        table["max_col_id"] += 1
        changing = copy.deepcopy(new)
        changing.update(
            id=table["max_col_id"], name=ci_name(copy_name), offset=len(table["cols"]), state=int(SchemaState.DELETE_ONLY),
            change_state_info={"relative_col_offset": find_column(table["cols"], name)["offset"]},
        )  # fmt: skip
        if changing["type"]["Flag"] & ColumnFlag.NOT_NULL:
            origin_default(changing, "1970-01-01 00:00:00")
        table["cols"].append(changing)

    def swap(table: Json) -> None:
        before, after = find_column(table["cols"], name), find_column(table["cols"], copy_name)
        place = before["offset"]
        after.update(name=ci_name(definition.name), state=int(SchemaState.PUBLIC), change_state_info=None)
        columns = [c for c in table["cols"] if c is not after]
        columns[columns.index(before)] = after
        after["offset"] = place
        arrange(table, _placed(columns, after, definition.position, place))

    steps: list[Step] = [(SchemaState.DELETE_ONLY, appear)]
    steps += [(state, _column_state(copy_name, state)) for state in WRITABLE_STATES[1:]]
    args = {"column": new, "old_column_name": ci_name(name), "position": {"Tp": 0, "RelativeColumn": None}}
    return SubChange(Action.MODIFY_COLUMN, args, [(SchemaState.PUBLIC, swap)], steps, backfill=True)


def _rename_column(name: str, new_name: str, info: Json) -> SubChange:
    column = find_column(info["cols"], name)
    if any(c["name"]["L"] == new_name.lower() for c in info["cols"] if c is not column):
        raise SqlError(f"column {new_name} exists")

    def rename(table: Json) -> None:
        find_column(table["cols"], name)["name"] = ci_name(new_name)
        rename_parts(table, name, new_name)

    args = {"column": {**copy.deepcopy(column), "name": ci_name(new_name)}, "old_column_name": ci_name(name)}
    return SubChange(Action.MODIFY_COLUMN, args, [(SchemaState.PUBLIC, rename)], done_args={"old_column_name": ci_name("")})


def rename_parts(table: Json, name: str, new_name: str) -> None:
    """Follow the renaming of a column in indexes."""
    for index in table["index_info"] or ():
        for part in index["idx_cols"]:
            if part["name"]["L"] == name.lower():
                part["name"] = ci_name(new_name)


# Indexes


def _add_index(key: ast.KeyDef, info: Json) -> SubChange:
    taken = {i["idx_name"]["L"] for i in info["index_info"] or ()}
    name = index_name(key, taken)
    if name.lower() in taken or (key.kind is ast.KeyKind.PRIMARY and (info["pk_is_handle"] or info["is_common_handle"])):
        raise SqlError(f"index {name} exists")
    index_id = info["max_idx_id"] + 1

    def appear(table: Json) -> None:
        table["max_idx_id"] = max(table["max_idx_id"], index_id)
        public = [c for c in table["cols"] if c["state"] == SchemaState.PUBLIC or _named(key, c)]
        made = index_json(key, index_id, name, public, SchemaState.DELETE_ONLY)
        table["index_info"] = [*(table["index_info"] or ()), made]

    def publish(table: Json) -> None:
        _index(table, name)["state"] = int(SchemaState.PUBLIC)
        mark_keys(table["cols"], [i for i in table["index_info"] if i["state"] == SchemaState.PUBLIC])

    parts = [
        {"Column": {"Schema": ci_name(""), "Table": ci_name(""), "Name": ci_name(c)}, "Length": n, "Desc": False, "Expr": None}
        for c, n in key.columns
    ]
    args = {"index_args": [{"index_name": ci_name(name), "index_part_specifications": parts, "unique": key.kind is not ast.KeyKind.INDEX}]}
    done = {"index_args": [{"index_name": ci_name(""), "index_part_specifications": None, "index_id": index_id}]}
    steps: list[Step] = [(SchemaState.DELETE_ONLY, appear)]
    steps += [(state, _index_state(name, state)) for state in WRITABLE_STATES[1:]]
    action = Action.ADD_PRIMARY_KEY if key.kind is ast.KeyKind.PRIMARY else Action.ADD_INDEX
    unique = 0 if key.kind is ast.KeyKind.INDEX else index_id
    return SubChange(action, args, [(SchemaState.PUBLIC, publish)], steps, done_args=done, index_backfill=True, unique_index=unique)


def _named(key: ast.KeyDef, column: Json) -> bool:
    return any(name.lower() == column["name"]["L"] for name, _ in key.columns)


def _index(table: Json, name: str) -> Json:
    for index in table["index_info"] or ():
        if index["idx_name"]["L"] == name.lower():
            found: Json = index
            return found
    raise SqlError(f"unknown index {name}")


def _index_state(name: str, state: SchemaState) -> Mutate:
    return lambda table: _index(table, name).update(state=int(state))


def _drop_index(name: str, info: Json) -> SubChange:
    primary = name.upper() == "PRIMARY"
    if primary and (info["pk_is_handle"] or info["is_common_handle"]):
        raise SqlError("a clustered primary key cannot be dropped")
    index_id = _index(info, name)["id"]

    def remove(table: Json) -> None:
        table["index_info"] = [i for i in table["index_info"] if i["idx_name"]["L"] != name.lower()] or None
        if primary:
            for column in table["cols"]:
                column["type"]["Flag"] &= ~int(ColumnFlag.PRIMARY_KEY)
        mark_keys(table["cols"], table["index_info"] or ())

    steps: list[Step] = [(state, _index_state(name, state)) for state in LEAVING_STATES]
    args = {"index_args": [{"index_name": ci_name(name), "index_part_specifications": None}]}
    done = {"index_args": [{"index_name": ci_name(name), "index_part_specifications": None, "index_id": index_id}]}
    action = Action.DROP_PRIMARY_KEY if primary else Action.DROP_INDEX
    return SubChange(action, args, [*steps, (SchemaState.NONE, remove)], first_state=SchemaState.PUBLIC, done_args=done)


def _rename_index(name: str, new_name: str, info: Json) -> SubChange:
    _index(info, name)
    args = {"index_args": [{"index_name": ci_name(name)}, {"index_name": ci_name(new_name)}]}
    return _simple(Action.RENAME_INDEX, args, lambda table: _index(table, name).update(idx_name=ci_name(new_name)))
