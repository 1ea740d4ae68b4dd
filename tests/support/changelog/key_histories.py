"""Random histories of rows that are found by their keys: columns of every type, as each kind of key, and without one.

Each statement is a transaction of its own, so that an insert, an update and a delete of a row do not meet before they are written.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

WIDE_SET = ",".join(f"'e{n}'" for n in range(64))
_TEXTS = ("'a'", "'b'", "'c '", "'it''s'", "'x\\\\y'", "'%s'", "''", "'long enough'")
_ALIKE = ("'a'", "'A'", "'a '", "'A '", "'b'", "'á'", "''", "' '", "NULL")
"""Texts that many collations take for the same."""


class Key(StrEnum):
    """What the column is in."""

    PRIMARY = "pk"
    PART = "part"
    UNIQUE = "uk"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Kind:
    """A type: its name in tables, its SQL, values that are different keys, further ones for tables without a key, and how much of it is in
    an index (0: all)."""

    name: str
    sql: str
    values: tuple[str, ...]
    more: tuple[str, ...] = ("NULL",)
    prefix: int = 0
    keys: tuple[Key, ...] = tuple(Key)

    def table(self, key: Key) -> str:
        """Return the name of its table."""
        return f"{self.name}_{key}"

    def create(self, key: Key) -> str:
        """Return the statement that makes its table."""
        part = f"k({self.prefix})" if self.prefix else "k"
        columns = {
            Key.PRIMARY: f"k {self.sql}, v INT, PRIMARY KEY ({part})",
            Key.PART: f"a INT, k {self.sql}, v INT, PRIMARY KEY (a, {part})",
            Key.UNIQUE: f"v INT, k {self.sql} NOT NULL, UNIQUE KEY ({part})",
            Key.NONE: f"k {self.sql}, v INT",
        }
        return f"CREATE TABLE app.{self.table(key)} ({columns[key]})"


def _text(name: str, sql: str, *more: str, prefix: int = 0, keys: tuple[Key, ...] = tuple(Key)) -> Kind:
    return Kind(name, sql, _TEXTS, more or _ALIKE, prefix, keys)


UNKNOWN = (Key.NONE,)
"""The playground does not know the weights of a collation, so it has no keys of it."""
_JSON = (
    '\'{"a": 1, "b": [1, 2.5, null, "x"]}\'',
    "'[1]'",
    "'[1, 1]'",
    "'\"a\"'",
    "'\"A\"'",
    "'null'",
    "'1e20'",
    "'{\"q\": \"it''s \\\\\\\\\"}'",
)
KINDS = (
    Kind("i1", "TINYINT", ("-128", "0", "127", "5")),
    Kind("u3", "MEDIUMINT UNSIGNED", ("0", "16777215", "7")),
    Kind("i8", "BIGINT", ("-9223372036854775808", "9007199254740991", "9007199254740992", "9007199254740993", "-1")),
    Kind("u8", "BIGINT UNSIGNED", ("18446744073709551615", "18446744073709551614", "9223372036854775808", "0")),
    Kind("f4", "FLOAT", ("1.1", "3.3", "-0.0", "0.1", "16777216", "3.4028235e38", "1e-45", "-1e-30"), ("NULL", "0", "1.1")),
    Kind("f4d", "FLOAT(7,4)", ("1.1", "123.4567", "-0.0001"), ("NULL", "1.1")),
    Kind("f8", "DOUBLE", ("0.1", "1e300", "5e-324", "9007199254740992", "9007199254740994", "-1.7976931348623157e308"), ("NULL", "0.1")),
    Kind("dec", "DECIMAL(30,10)", ("-1.5", "0", "12345678901234567890.0123456789", "12345678901234567890.0123456788")),
    Kind("dec65", "DECIMAL(65,30)", ("0.000000000000000000000000000001", "99999999999999999999999999999999999", "-0.1")),
    Kind("b1", "BIT(1)", ("b'0'", "b'1'")),
    Kind("b64", "BIT(64)", ("18446744073709551615", "9223372036854775808", "9007199254740993", "9007199254740992", "0")),
    Kind("y", "YEAR", ("1999", "2155", "1901", "0")),
    Kind("da", "DATE", ("'2024-02-29'", "'1000-01-01'", "'9999-12-31'", "'0000-00-00'")),
    Kind("dt", "DATETIME", ("'2024-03-31 02:30:00'", "'0001-01-01 00:00:00'", "'9999-12-31 23:59:59'", "'0000-00-00 00:00:00'")),
    Kind("dt6", "DATETIME(6)", ("'2024-03-31 02:30:00.000001'", "'2024-03-31 02:30:00'", "'2024-03-31 02:30:00.1'")),
    Kind(
        "ts3", "TIMESTAMP(3)", ("'2024-10-27 00:30:00.125'", "'2024-10-27 00:30:00'", "'1970-01-01 00:00:01'", "'0000-00-00 00:00:00'"), ()
    ),
    Kind("t0", "TIME", ("'-838:59:59'", "'00:00:00'", "'838:59:59'")),
    Kind("t6", "TIME(6)", ("'-00:00:01.500000'", "'00:00:00.123456'", "'-838:59:59'", "'12:13:14.000001'")),
    Kind("en", "ENUM('a','b''c','d')", ("'a'", "'b''c'", "'d'")),
    Kind("st", "SET('x','y','z')", ("''", "'x'", "'x,z'", "'x,y,z'")),
    Kind("st64", f"SET({WIDE_SET})", ("18446744073709551615", "9223372036854775808", "9007199254740993", "9007199254740992", "1")),
    Kind("bi", "BINARY(4)", ("'a'", "x'00'", "x'610000ff'", "'b '")),
    Kind("vb", "VARBINARY(10)", ("''", "x'00'", "x'0000'", "'a'", "'A'", "'a '", "x'ff27005c'")),
    Kind("bl", "BLOB", ("''", "x'00'", "'a'", "'A'", "x'ff27005c'"), ("NULL", "'a '"), 5),
    _text("vbin", "VARCHAR(20)"),
    _text("vci", "VARCHAR(20) COLLATE utf8mb4_general_ci"),
    _text("vuni", "VARCHAR(20) COLLATE utf8mb4_unicode_ci", keys=UNKNOWN),
    _text("v0bin", "VARCHAR(20) COLLATE utf8mb4_0900_bin"),
    _text("v09", "VARCHAR(20) COLLATE utf8mb4_0900_ai_ci", keys=UNKNOWN),
    _text("cbin", "CHAR(20)", "'a'", "'A'", "NULL", "'á'"),
    _text("cci", "CHAR(20) COLLATE utf8mb4_general_ci", "'a'", "'A'", "NULL", "'á'"),
    _text("vgbk", "VARCHAR(20) CHARACTER SET gbk", "'你'", "'好 '", "'好'", "'A'", "NULL", keys=UNKNOWN),
    _text("vlat", "VARCHAR(20) CHARACTER SET latin1", "'é'", "'e'", "'é '", "NULL"),
    _text("vasc", "VARCHAR(20) CHARACTER SET ascii", "'A'", "'A '", "NULL"),
    _text("tx", "TEXT", *_ALIKE, prefix=12),
    _text("txci", "LONGTEXT COLLATE utf8mb4_general_ci", *_ALIKE, prefix=12),
    Kind("js", "JSON", _JSON, keys=(Key.NONE,)),
    Kind("ve", "VECTOR(2)", ("'[1,2]'", "'[1,2.5]'", "'[-0.1,1e-20]'"), keys=(Key.NONE,)),
)


class History:
    """A random history of one table, of about `steps` statements."""

    def __init__(self, kind: Kind, key: Key, rng: random.Random) -> None:
        self._kind, self._key, self._rng = kind, key, rng
        self._name = f"app.{kind.table(key)}"
        self._serial = 0
        self._values = [*kind.values, *(kind.more if key is Key.NONE else ())]

    def statements(self, rounds: int = 1) -> Iterator[str]:
        """Yield the statements: each value comes, its row is changed, its key is changed, and most rows go."""
        yield self._kind.create(self._key)
        for _ in range(rounds):
            yield from map(self._insert, self._values)
            if self._key is Key.NONE:  # rows that are there twice, and rows that differ in the number alone
                yield from map(self._insert, self._rng.sample(self._values, min(3, len(self._values))))
            yield from self._changes()

    def _insert(self, value: str) -> str:
        self._serial += 1
        number = self._rng.randint(1, 2) if self._key is Key.NONE else self._serial
        row = {Key.PART: f"7, {value}, {number}", Key.UNIQUE: f"{number}, {value}"}.get(self._key, f"{value}, {number}")
        return f"INSERT INTO {self._name} VALUES ({row})"

    def _changes(self) -> Iterator[str]:
        """In an order of chance. Rows are chosen by their number, so that not even the upstream has to find one by its value."""
        if self._key is Key.NONE:
            numbers: Sequence[int] = [1, 2, 1, 2, 1, 2]
            steps = [f"UPDATE {self._name} SET v = 3 - v WHERE v = {n} LIMIT 1" for n in numbers]
            steps += [f"DELETE FROM {self._name} WHERE v = {n} LIMIT 1" for n in numbers]
            self._rng.shuffle(steps)
            yield from steps
            return
        rows = list(range(self._serial - len(self._values) + 1, self._serial + 1))
        self._rng.shuffle(rows)
        moved, value = rows.pop(), self._rng.choice(self._values)
        taken = rows[-1] if rows else 0
        yield from (f"UPDATE {self._name} SET v = {number + 1000} WHERE v = {number}" for number in rows)
        yield f"DELETE FROM {self._name} WHERE v = {moved}"
        for number in rows[len(rows) // 2 :]:
            yield f"DELETE FROM {self._name} WHERE v = {number + 1000}"
        if taken:
            yield from self._moves(rows[: len(rows) // 2], value)
        yield f"DELETE FROM {self._name} WHERE v <> 1001" if self._rng.random() < 0.2 else f"UPDATE {self._name} SET v = v + 1 WHERE v > 0"

    def _moves(self, left: Sequence[int], value: str) -> Iterator[str]:
        """A row takes the key of one that is gone."""
        there = {self._values[(number - 1) % len(self._values)] for number in left}
        if left and value not in there:
            yield f"UPDATE {self._name} SET k = {value} WHERE v = {left[0] + 1000}"


def histories(seed: int, kinds: Sequence[Kind] = KINDS) -> Iterator[str]:
    """Yield the statements of all tables, of one after the other."""
    for kind in kinds:
        for key in kind.keys:
            yield from History(kind, key, random.Random(f"{seed} {kind.name} {key}")).statements()
