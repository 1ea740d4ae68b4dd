"""What the database looks like before a DDL, and after it: by this a DDL that ran is told from one that did not.

ALTER TABLE         SHOW CREATE TABLE before. What it is afterwards is asked of the server: the same ALTER over a copy of that in a database
                    of its own. So a part that runs twice without an error (an index without a name, ADD PARTITION PARTITIONS n, columns or
                    indexes that change names) is seen.
RENAME TABLE        a table of ours takes part in the statement, and has its new name once it ran.
EXCHANGE PARTITION  the storage engine's ids of the partition and the table, which change places.
others              refuse a repeat, or come to the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tidemill.budget import STATE, Budget
from tidemill.errors import SinkError
from tidemill.sinks.mysql.connection import Connection, ServerFault
from tidemill.sinks.mysql.ddls.lock import lock_name
from tidemill.sinks.mysql.ddls.parsed import Name, Parsed, What, qualified, renamed_text
from tidemill.tidb.ddltext.synthesized import rename_tables
from tidemill.tidb.names import quote_name

Run = Callable[[Connection, str], None]
"""Runs a statement as the server takes it."""

_HEAD = re.compile(r"^CREATE TABLE `(?:[^`]|``)*`")
_MOVES_BY_ITSELF = re.compile(r" AUTO_INCREMENT=\d+|/\*T!\[auto_rand_base\] AUTO_RANDOM_BASE=\d+ \*/")
_MISSING = (1049, 1146)
_NO_RIGHT = (1044, 1142, 1227)
_MARIADB = "SELECT table_id FROM information_schema.innodb_sys_tables WHERE LOWER(name) = LOWER(CONVERT(CONCAT({encoded}) USING utf8mb4))"
_ENCODED = "CAST(CONVERT(%s USING filename) AS BINARY)"
_MYSQL = "SELECT table_id FROM information_schema.innodb_tables WHERE LOWER(name) REGEXP %s"
_TIDB = (
    "SELECT tidb_partition_id FROM information_schema.partitions WHERE table_schema = %s AND table_name = %s AND partition_name = %s",
    "SELECT tidb_table_id FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
)


class Refused(SinkError):
    """The server refuses a DDL, or nobody can tell whether it ran."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Where DDLs run: `books` is the schema of our own tables, `owner` names their writer, `run` runs statements."""

    books: str
    owner: str
    run: Run

    @property
    def scratch(self) -> str:
        """The name of a database for copies, which is there only while one is looked at."""
        return "tidemill_scratch_" + lock_name(self.books, self.owner)[-16:]

    def mark(self, *, done: bool) -> Name:
        """Return the name of the table that takes part in a RENAME TABLE, before it or once it ran."""
        return self.books, f"tidemill_{'renamed' if done else 'rename'}_{lock_name(self.owner)[-16:]}"


def shown(connection: Connection, table: Name) -> str | None:
    """Return SHOW CREATE TABLE, without the name and without what rows change, a character for each byte: binary defaults are in it.

    None: there is no such table. Raises ServerFault."""
    try:
        text = str(connection.byte_rows(f"SHOW CREATE TABLE {qualified(table)}")[0][1])
    except ServerFault as fault:
        if fault.code in _MISSING:
            return None
        raise
    return _MOVES_BY_ITSELF.sub("", _HEAD.sub("CREATE TABLE `t`", text))


def readable(text: str | None) -> str:
    """Return what `shown` returns as text for people."""
    return text.encode("latin1").decode("utf-8", "replace") if text is not None else "not there"


def lines(text: str | None) -> list[str]:
    """Return the lines of SHOW CREATE TABLE in any order: that of indexes says nothing."""
    return sorted(line.strip().rstrip(",") for line in (text or "").splitlines())


@contextmanager
def copied(connection: Connection, scene: Scene, table: Name, text: str) -> Iterator[Name]:
    """Have an empty table made by a text of `shown`, with the same name in the scratch database. Raises ServerFault."""
    place = scene.scratch, table[1]
    with scratch(connection, scene, table[0]):
        connection.run(f"CREATE TABLE {qualified(place)}".encode() + _HEAD.sub("", text).encode("latin1"))
        yield place


@contextmanager
def scratch(connection: Connection, scene: Scene, schema: str) -> Iterator[None]:
    """Have an empty database with the defaults of another one. Raises ServerFault."""
    name = quote_name(scene.scratch)
    connection.run(f"DROP DATABASE IF EXISTS {name}")
    defaults = connection.rows(
        "SELECT default_character_set_name, default_collation_name FROM information_schema.schemata WHERE schema_name = %s", schema
    )
    connection.run(f"CREATE DATABASE {name}" + "".join(f" CHARACTER SET {charset} COLLATE {collation}" for charset, collation in defaults))
    try:
        yield
    finally:
        connection.run(f"DROP DATABASE IF EXISTS {name}")


def before(connection: Connection, scene: Scene, parsed: Parsed) -> str:
    """Return the state before a statement, to be noted, and make ready what it needs. Raises ServerFault."""
    found: dict[str, object] = {}
    if parsed.what is What.ALTER:
        found["table"] = shown(connection, parsed.tables[0])
    elif parsed.what is What.EXCHANGE:
        found["ids"] = _ids(connection, parsed)
    elif is_marked(parsed):
        connection.run(f"DROP TABLE IF EXISTS {qualified(scene.mark(done=True))}")
        connection.run(f"CREATE TABLE IF NOT EXISTS {qualified(scene.mark(done=False))} (k INT)")
    return json.dumps(found)


def is_marked(parsed: Parsed) -> bool:
    """Return whether a table of ours takes part."""
    return parsed.what is What.RENAME


def marked(scene: Scene, parsed: Parsed) -> str:
    """Return the statement in which it does."""
    return rename_tables([*parsed.renames, (scene.mark(done=False), scene.mark(done=True))])


def unmark(connection: Connection, scene: Scene, parsed: Parsed) -> None:
    """Remove the table of ours, when the statement is noted as done."""
    if is_marked(parsed):
        tables = ", ".join(qualified(scene.mark(done=done)) for done in (True, False))
        connection.run(f"DROP TABLE IF EXISTS {tables}")


def ran(connection: Connection, scene: Scene, parsed: Parsed, schema: str, noted: str) -> bool:
    """Return whether a statement ran since its state before was noted. Raises ServerFault, Refused."""
    known = Budget(STATE).json(noted)
    if is_marked(parsed):
        return shown(connection, scene.mark(done=True)) is not None
    if parsed.what is What.EXCHANGE:
        return _exchanged(connection, parsed, known.get("ids"))
    if parsed.what is What.ALTER and known.get("table"):
        return _altered(connection, scene, parsed, schema, known["table"])
    return False


def _altered(connection: Connection, scene: Scene, parsed: Parsed, schema: str, text: str) -> bool:
    table = parsed.tables[0]
    now = shown(connection, table)
    if now == text:
        return False
    with copied(connection, scene, table, text) as place:
        scene.run(connection, renamed_text(parsed.text, schema, lambda name: place if name == table else name))
        wanted = shown(connection, place)
    if lines(now) == lines(wanted):
        return True
    raise Refused(
        f"{connection.where}: {'.'.join(table)} is neither as it was before a DDL nor as it is after it: {parsed.text}; "
        f"it was: {readable(text)}; it would be: {readable(wanted)}; it is: {readable(now)}",
        hint="Bring the table to one of both by hand, then `tidemill changefeed resume`.",
    )


def _in_files(name: str) -> str:
    """Return a pattern for a name as it is in those of files: for what is not a letter, digit or `_` of ASCII it has `@` and the number,
    of most letters of other alphabets `@` and two characters. MySQL 9 does not say which: its character set `filename` is not for users."""

    def spelled(char: str) -> str:
        if not char.isascii():
            return f"@({ord(char):04x}|[0-9a-z]{{2}})"
        return char.lower() if char.isalnum() or char == "_" else f"@{ord(char):04x}"

    return "".join(map(spelled, name)) + "(@@@)?"


def _ids(connection: Connection, parsed: Parsed) -> list[int] | None:
    """Return the engine's ids of the partition and the table that change places; None: they cannot be read."""
    (schema, table), other = parsed.tables
    whole, plain = (schema, table, parsed.partition), other
    queries: list[tuple[str, tuple[str, ...]]]
    if connection.server.is_tidb:
        queries = list(zip(_TIDB, (whole, plain), strict=True))
    elif connection.server.is_mariadb:
        parts = (f"{_ENCODED}, '/', {_ENCODED}, '#P#', {_ENCODED}", f"{_ENCODED}, '/', {_ENCODED}")
        queries = [(_MARIADB.format(encoded=part), given) for part, given in zip(parts, (whole, plain), strict=True)]
    else:
        patterns = ("{}/{}#p#{}".format(*map(_in_files, whole)), "{}/{}".format(*map(_in_files, plain)))
        queries = [(_MYSQL, (f"^{pattern}$",)) for pattern in patterns]
    try:
        found = [connection.rows(query, *given) for query, given in queries]
    except ServerFault as fault:
        if fault.code in _NO_RIGHT:
            return None
        raise
    return [int(rows[0][0]) for rows in found] if all(len(rows) == 1 for rows in found) else None


def _exchanged(connection: Connection, parsed: Parsed, known: list[int] | None) -> bool:
    now = _ids(connection, parsed)
    if known is not None and now == known[::-1]:
        return True
    if known is not None and now == known:
        return False
    raise Refused(
        f"{connection.where}: nobody can tell whether an EXCHANGE PARTITION ran before its answer was lost: {parsed.text}; "
        f"ids of the partition and the table before it: {known}; now: {now}",
        hint="See by hand which rows the table has. If it ran, leave the DDL out (ignore-sql); if not, delete its row from "
        "tidemill_plan_v1. Then `tidemill changefeed resume`. With the right PROCESS Tidemill sees the ids of MySQL and MariaDB.",
    )
