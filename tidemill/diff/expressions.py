"""SQL expressions by which a database writes its rows as the same texts that `protocols/sql/literals` writes. Pure.

They need not be right for every value: a bucket whose sums differ is compared row by row, where what is the same number or document counts
as the same (`rows`). They must never be the same for different values.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemill.diff.model import DiffTable, Hashed
from tidemill.protocols.sql.predicates import compared_as
from tidemill.tidb.names import quote_name
from tidemill.tidb.rows.cells import Family, family
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo

_ESCAPED = (("'\\\\'", "'\\\\\\\\'"), ("'\\''", "'\\\\\\''"), ("'\\r'", "'\\\\r'"), ("'\\n'", "'\\\\n'"))
"""What stands for a backslash, a quote, CR and LF, each as SQL writes it."""


def _quoted(text: str) -> str:
    for plain, escaped in _ESCAPED:
        text = f"REPLACE({text},{plain},{escaped})"
    return f"CONCAT('\\'',{text},'\\'')"


def literal_of(column: ColumnInfo) -> str:
    """Return the expression for a column's literal."""
    c = quote_name(column.name)
    if elements := compared_as(column).elements:  # the number of so wide a SET is a DOUBLE in TiDB
        text = f"CAST({'|'.join(f'((FIND_IN_SET({element},{c})>0)<<{bit})' for bit, element in enumerate(elements))} AS CHAR)"
    elif column.tp == MySQLType.ENUM:
        text = f"IF({c}+0=0,'0/*0*/',CAST({c}+0 AS CHAR))"
    else:
        match family(column):
            case Family.INT | Family.YEAR:
                text = f"CAST({c}+0 AS CHAR)"
            case Family.NUMBER:
                text = f"CAST(CAST({c} AS UNSIGNED) AS CHAR)"
            case Family.FLOAT:
                text = f"CAST({c}+0e0 AS CHAR)"
            case Family.DECIMAL:
                text = f"CAST({c} AS CHAR)"
            case Family.BYTES if column.is_binary:
                text = f"CONCAT('x\\'',LOWER(HEX({c})),'\\'')"
            case Family.BYTES:
                text = _quoted(f"CONVERT({c} USING utf8mb4)")
            case Family.TIME | Family.DURATION:
                text = f"CONCAT('\\'',CAST({c} AS CHAR),'\\'')"
            case _:
                text = _quoted(f"CAST({c} AS CHAR)")
    return text if column.not_null else f"IFNULL({text},'NULL')"


def _constant(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'" if text else ""


def key_text(table: DiffTable) -> str:
    """Return the expression for the text of a row's key."""
    parts: list[str] = []
    for number, one in enumerate(table.sql.conditions):
        parts += [_constant((" AND " if number else "") + one.before), literal_of(table.sql.key[one.place]), _constant(one.after)]
    parts = list(filter(None, parts))
    return f"CONCAT({','.join(parts)})"


def row_text(table: DiffTable) -> str:
    """Return the expression for the text of a row."""
    return f"CONCAT_WS(',',{','.join(map(literal_of, table.sql.columns))})" if table.sql.columns else "''"


def _bucket(table: DiffTable) -> str:
    return f"CAST(CONV(LEFT(SHA2({key_text(table)},256),8),16,10) AS UNSIGNED) % {table.buckets.count}"


def within(table: DiffTable, buckets: Iterable[int]) -> str:
    """Return the condition for the rows of buckets."""
    if table.buckets.count == 1:
        return "1"
    if isinstance(table.buckets, Hashed):
        return f"{_bucket(table)} IN ({','.join(map(str, sorted(buckets)))})"
    assert table.range_column is not None
    column, parts = quote_name(table.range_column.name), []
    for bucket in sorted(buckets):
        low, high = table.buckets.ends(bucket)
        ends = ([f"{column}>={low}"] if low is not None else []) + ([f"{column}<{high}"] if high is not None else [])
        parts.append("(" + " AND ".join(ends) + ")")
    return " OR ".join(parts)


def sums_query(table: DiffTable, buckets: Iterable[int] | None = None) -> str:
    """Return the query for the sums of buckets, of all of them without: bucket, rows, exclusive or, total.

    Of a table with ranges it asks for one bucket alone.
    """
    digest = f"SHA2(CONCAT({key_text(table)},'|',{row_text(table)}),256)"
    if isinstance(table.buckets, Hashed):
        bucket, where, grouped = (_bucket(table), "", " GROUP BY b") if table.buckets.count > 1 else ("0", "", "")
    else:
        wanted = list(range(table.buckets.count)) if buckets is None else list(buckets)
        assert len(wanted) == 1, "a range at a time"
        bucket, where, grouped = str(wanted[0]), f" WHERE {within(table, wanted)}", ""
    inner = f"SELECT {bucket} AS b,{digest} AS h FROM {table.quoted}{where}"
    xor = "BIT_XOR(CAST(CONV(LEFT(h,16),16,10) AS UNSIGNED))"
    total = "SUM(CAST(CONV(SUBSTRING(h,17,8),16,10) AS UNSIGNED))"
    return f"SELECT {'b' if grouped else bucket},COUNT(*),{xor},{total} FROM ({inner}) AS x{grouped}"


def rows_query(table: DiffTable, buckets: Iterable[int]) -> str:
    """Return the query for the rows of buckets: the literals of the key's columns, then those of all columns."""
    listed = ",".join(literal_of(column) for column in (*table.sql.key, *table.sql.columns)) or "1"
    return f"SELECT {listed} FROM {table.quoted} WHERE {within(table, buckets)}"
