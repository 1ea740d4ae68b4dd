"""How a row is found: the comparison of a column with a literal that is that of the column's type. Pure.

All that writes into a database (`mysql://`, `redo apply`, `consume`, the Drainer, Reparo, `diff --fix-sql`) takes its predicates from here.

A key's values tell rows apart by the column's own `=`. Without a key a row is found by all of its columns, and then `=` is not enough:
under most collations `'a' = 'A'`, under nearly all `'a' = 'a '`. So texts are compared by their bytes too.

| column | compared as | why |
|---|---|---|
| FLOAT | the DOUBLE that it is, with all of its digits | `f = 3.3` is false for the FLOAT 3.3 |
| SET of more than 53 elements | `MAKE_SET(number, elements…)` | MariaDB takes its number as signed, others as a DOUBLE |
| the same with an empty or unknown element | `CAST(s AS UNSIGNED)` | its text does not tell its elements |
| JSON, without a key | the document, in MariaDB its text | MySQL and TiDB take a string that is compared with JSON as a JSON string |
| text, without a key | by the collation, and as bytes of UTF-8 | rows that differ only in case or trailing blanks are different rows |
| all others | the literal | |

What differs between servers stands in `DIALECTS`, as comments that only the one or the other reads: the text of a predicate is made by a
kernel, which does not know the server.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from tidemill.tidb.names import quote_name
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tidb.schema.show import quoted

EXACT_BITS = 53
"""Bits of an integer that a DOUBLE holds: MySQL and TiDB compare a SET with a number as DOUBLEs."""
_EMPTY_ELEMENT = "''"

DIALECTS = {
    "JSON": ("/*!80000 CAST(*/", "/*!80000  AS JSON)*/"),  # MySQL 8 and TiDB read it, MariaDB reads no comments of versions from 5.7 to 9
}
"""What stands around a literal."""


VALUES_BITS = 56
"""TiDB's VALUES() of a BIT of more of them has its bytes in the wrong order."""


class Form(enum.Enum):
    """How a column is compared."""

    AS_IS = enum.auto()
    AS_UNSIGNED = enum.auto()
    AS_ELEMENTS = enum.auto()
    AS_DOCUMENT = enum.auto()
    AS_TEXT = enum.auto()  # VARCHAR and CHAR
    AS_LONG_TEXT = enum.auto()  # TEXT types: too large to stand in a statement twice


@dataclass(frozen=True, slots=True)
class Compared:
    """How a column is compared. `elements`: those of a SET that is compared by them, as SQL literals."""

    form: Form = Form.AS_IS
    elements: tuple[str, ...] = ()

    @property
    def in_list(self) -> bool:
        """Whether `IN` with literals finds rows by it."""
        return self.form is not Form.AS_ELEMENTS

    @property
    def around(self) -> tuple[str, str]:
        """What stands around the literal."""
        match self.form:
            case Form.AS_ELEMENTS:
                return "MAKE_SET(", f",{','.join(self.elements)})"
            case Form.AS_DOCUMENT:
                return DIALECTS["JSON"]
            case _:
                return "", ""


AS_IS = Compared()


def as_set(elements: Sequence[str]) -> Compared:
    """Return how a SET is compared. `elements`: SQL literals, none if they are unknown."""
    if 0 < len(elements) <= EXACT_BITS:
        return AS_IS
    return Compared(Form.AS_ELEMENTS, tuple(elements)) if elements and _EMPTY_ELEMENT not in elements else Compared(Form.AS_UNSIGNED)


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on the column at a `place` of the key: what stands before its literal and behind it."""

    place: int
    before: str
    after: str = ""


def compared_as(column: ColumnInfo) -> Compared:
    """Return how a column is compared."""
    match column.tp:
        case MySQLType.SET:
            return as_set([quoted(element) for element in column.elems])
        case MySQLType.JSON:
            return Compared(Form.AS_DOCUMENT)
        case MySQLType.VARCHAR | MySQLType.VAR_STRING | MySQLType.STRING if not column.is_binary:
            return Compared(Form.AS_TEXT)
        case MySQLType.TINY_BLOB | MySQLType.BLOB | MySQLType.MEDIUM_BLOB | MySQLType.LONG_BLOB if not column.is_binary:
            return Compared(Form.AS_LONG_TEXT)
        case _:
            return AS_IS


def is_wide_bits(column: ColumnInfo) -> bool:
    """Return whether a column cannot be set to its VALUES() in every server."""
    return column.tp == MySQLType.BIT and column.flen > VALUES_BITS


def operand(name: str, compared: Compared) -> str:
    """Return a column of a key as it is compared with `=` or in a list."""
    column = quote_name(name)
    return f"CAST({column} AS UNSIGNED)" if compared.form is Form.AS_UNSIGNED else column


def conditions(columns: Sequence[tuple[str, Compared]], *, has_key: bool) -> tuple[Condition, ...]:
    """Return the conditions that find a row. `columns`: those of the key, or without a key all of them. A NULL equals a NULL there."""
    if has_key:
        return tuple(_condition(place, *column, "=") for place, column in enumerate(columns))
    return tuple(one for place, column in enumerate(columns) for one in _exact(place, *column))


def _condition(place: int, name: str, compared: Compared, operator: str) -> Condition:
    before, after = compared.around
    return Condition(place, operand(name, compared) + operator + before, after)


def _exact(place: int, name: str, compared: Compared) -> tuple[Condition, ...]:
    plain = _condition(place, name, compared, "<=>")
    as_bytes = Condition(place, f"CAST(CONVERT({quote_name(name)} USING utf8mb4) AS BINARY)<=>")
    match compared.form:
        case Form.AS_TEXT:  # the first one may use an index
            return plain, as_bytes
        case Form.AS_LONG_TEXT:
            return (as_bytes,)
        case _:
            return (plain,)


def joined(found: Sequence[Condition], literals: Sequence[str]) -> str:
    """Return the predicate, with the literals of the columns by their places."""
    return " AND ".join(one.before + literals[one.place] + one.after for one in found)
