"""Whether the state that a DDL wants is there already: asked of `information_schema`, and of the server itself, which carries the statement
out over a copy. So what is compared is what this server makes of a text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.sinks.mysql.connection import Connection, ServerFault
from tidemill.sinks.mysql.ddls.parsed import Change, Name, Parsed, Part, Verb, What, alter, qualified, renamed_text
from tidemill.sinks.mysql.ddls.state import Scene, copied, lines, readable, scratch, shown
from tidemill.tidb.names import quote_name

_VIEW = "VIEW"
_NULLABLE = 2
"""The place in a row of _COLUMNS."""
_COLUMNS = """SELECT LOWER(column_name), column_type, is_nullable, character_set_name FROM information_schema.columns
WHERE table_schema = %s AND table_name = %s"""
_KEYS = """SELECT index_name, LOWER(column_name), sub_part FROM information_schema.statistics
WHERE table_schema = %s AND table_name = %s AND non_unique = 0 ORDER BY index_name, seq_in_index"""
_NAMES = {
    Part.COLUMN: "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
    Part.INDEX: "SELECT DISTINCT index_name FROM information_schema.statistics WHERE table_schema = %s AND table_name = %s",
    Part.CONSTRAINT: "SELECT constraint_name FROM information_schema.table_constraints WHERE table_schema = %s AND table_name = %s",
    Part.PARTITION: "SELECT partition_name FROM information_schema.partitions WHERE table_schema = %s AND table_name = %s",
}
_NAMES[Part.PRIMARY], _NAMES[Part.PARTITIONING] = _NAMES[Part.INDEX], _NAMES[Part.PARTITION]


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen. `is_so`: the wanted state is there. `rest`: what of an ALTER TABLE is still to be run. `states`: both, as text."""

    is_so: bool
    states: str
    rest: str = ""


def look(connection: Connection, scene: Scene, parsed: Parsed, schema: str) -> Look:
    """Look whether what a statement wants is there. Raises ServerFault."""
    match parsed.what:
        case What.CREATE_SCHEMA | What.DROP_SCHEMA:
            return _look_at_schema(connection, parsed)
        case What.DROP_TABLE | What.DROP_VIEW:
            return _look_at_dropped(connection, parsed)
        case What.CREATE_TABLE | What.CREATE_VIEW:
            return _look_at_created(connection, scene, parsed, schema)
        case What.RENAME:
            return _look_at_renamed(connection, parsed)
        case What.ALTER:
            return _look_at_altered(connection, scene, parsed)
    return Look(False, "what this statement wants cannot be looked up")


def _look_at_schema(connection: Connection, parsed: Parsed) -> Look:
    there = bool(connection.rows("SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", parsed.schema))
    wanted = parsed.what is What.CREATE_SCHEMA
    return Look(there is wanted, f"wanted: {_is(wanted)}; there: database {parsed.schema} {_is(there)}")


def _is(there: bool) -> str:
    return "is there" if there else "is not there"


def _kind(connection: Connection, table: Name) -> str | None:
    """Return whether a name is that of a `VIEW` or a `BASE TABLE`; None: it is free."""
    rows = connection.rows("SELECT table_type FROM information_schema.tables WHERE table_schema = %s AND table_name = %s", *table)
    return str(rows[0][0]) if rows else None


def _look_at_dropped(connection: Connection, parsed: Parsed) -> Look:
    """Of several tables those that are there are dropped by the rest."""
    is_view = parsed.what is What.DROP_VIEW
    left = [table for table in parsed.tables if ((kind := _kind(connection, table)) is not None and (kind == _VIEW) == is_view)]
    rest = f"{parsed.what.value} {', '.join(qualified(table) for table in left)}" if len(left) < len(parsed.tables) else ""
    return Look(not left, f"wanted: gone; there: {', '.join('.'.join(table) for table in left)}", rest if left else "")


def _look_at_created(connection: Connection, scene: Scene, parsed: Parsed, schema: str) -> Look:
    table = parsed.tables[0]
    kind = _kind(connection, table)
    is_view = parsed.what is What.CREATE_VIEW
    if kind is None or (kind == _VIEW) != is_view:
        return Look(False, f"wanted: {parsed.text}; there: {kind or 'nothing'}")
    place = scene.scratch, table[1]
    with scratch(connection, scene, table[0]):
        scene.run(connection, renamed_text(parsed.text, schema, lambda name: place if name == table else name))
        wanted, there = (_view if is_view else _described)(connection, place), (_view if is_view else _described)(connection, table)
    missing = [one for one in wanted if one not in there and _with_null(one) not in there]
    return Look(not missing, f"wanted: {_text(missing)}; there: {_text(there)}")


def _with_null(column: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a column that takes NULL as well: one that was made by hand may."""
    return tuple("YES" if place == _NULLABLE else value for place, value in enumerate(column))


def _text(parts: Sequence[Any]) -> str:
    return ", ".join(" ".join(map(str, part)) for part in parts)


def _described(connection: Connection, table: Name) -> list[tuple[Any, ...]]:
    """Return the columns with their types, and the unique keys: what rows depend on. The database may have more than is wanted."""
    keys: dict[str, list[str]] = {}
    for index, column, part in connection.rows(_KEYS, *table):
        keys.setdefault(str(index), []).append(f"{column}({part})" if part else str(column))
    primary = [("PRIMARY KEY", *columns) for name, columns in keys.items() if name == "PRIMARY"]
    unique = [("UNIQUE KEY", *columns) for name, columns in keys.items() if name != "PRIMARY"]
    return [*connection.rows(_COLUMNS, *table), *primary, *unique]


def _view(connection: Connection, view: Name) -> list[tuple[Any, ...]]:
    query = "SELECT view_definition FROM information_schema.views WHERE table_schema = %s AND table_name = %s"
    return connection.rows(query, *view)


def _look_at_renamed(connection: Connection, parsed: Parsed) -> Look:
    """A table that is there under its new name, and none under the old one. Names that change places say nothing."""
    moves = parsed.moves
    old, new = [*moves], [*moves.values()]
    states = "; ".join(
        f"{'.'.join(a)} {_is(_kind(connection, a) is not None)}, {'.'.join(b)} {_is(_kind(connection, b) is not None)}"
        for a, b in moves.items()
    )
    gone = [name for name in old if name not in new]
    is_so = bool(gone) and all(_kind(connection, name) is None for name in gone) and all(_kind(connection, name) for name in new)
    wanted = ", ".join(f"{'.'.join(b)} instead of {'.'.join(a)}" for a, b in moves.items())
    return Look(is_so, f"wanted: {wanted}; there: {states}")


# ALTER TABLE


def _look_at_altered(connection: Connection, scene: Scene, parsed: Parsed) -> Look:
    table = parsed.tables[0]
    text = shown(connection, table)
    if text is None:
        return Look(False, f"wanted: {parsed.text}; there: no table {'.'.join(table)}")
    names = {part: {str(row[0]).lower() for row in connection.rows(query, *table) if row[0]} for part, query in _NAMES.items()}
    seen = _Seen(connection, scene, table, text, names)
    touched: set[tuple[Part, str]] = set()
    rest = []
    for change in parsed.changes:
        # What an earlier part of the statement has touched does not count as it is now.
        if touched & change.names or not seen.has(change):
            rest.append(change)
        touched |= change.names
    states = f"wanted: {', '.join(change.text for change in rest)}; there: {readable(text)}"
    return Look(not rest, states, alter(table, rest) if 0 < len(rest) < len(parsed.changes) else "")


@dataclass(frozen=True, slots=True)
class _Seen:
    """A table as it is."""

    connection: Connection
    scene: Scene
    table: Name
    text: str
    names: dict[Part, set[str]]

    def has(self, change: Change) -> bool:
        """Return whether the table is as a part of an ALTER TABLE wants it. False as well where nobody can tell: then the part runs."""
        if change.part is Part.OTHER:
            return False
        old, new = (name.lower() in self.names[change.part] for name in (change.name, change.new))
        match change.verb:
            case Verb.DROP:
                return not self.names[Part.PARTITION] if change.part is Part.PARTITIONING else not old
            case Verb.RENAME:
                return new and not old
            case Verb.CHANGE:
                return new and not old and self._stays(f"MODIFY COLUMN {change.definition}")
            case Verb.ADD:
                return old and any(self._stays(*statements) for statements in _again(change))
        return False

    def _stays(self, *changes: str) -> bool:
        """Return whether a copy of the table stays as it is when these changes are carried out on it."""
        with copied(self.connection, self.scene, self.table, self.text) as place:
            try:
                for change in changes:
                    self.scene.run(self.connection, f"ALTER TABLE {qualified(place)} {change}")
            except ServerFault:
                return False
            return lines(shown(self.connection, place)) == lines(self.text)


def _again(change: Change) -> Iterator[tuple[str, ...]]:
    """Yield the statements that make a part again that is there: MariaDB does not take away an index that a foreign key needs, but for
    another one in the same statement, and TiDB does not make one in the statement that takes away its namesake."""
    match change.part:
        case Part.COLUMN:
            yield (f"MODIFY COLUMN {change.definition}",)
            return
        case Part.PRIMARY:
            drop = "DROP PRIMARY KEY"
        case Part.INDEX:
            drop = f"DROP INDEX {quote_name(change.name)}"
        case Part.PARTITION:
            drop = f"DROP PARTITION {quote_name(change.name)}"
        case _:
            drop = f"DROP CONSTRAINT {quote_name(change.name)}"
    if change.part in (Part.PRIMARY, Part.INDEX):
        yield (f"{drop}, {change.text}",)
    yield drop, change.text
