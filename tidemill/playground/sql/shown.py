"""SHOW and DESCRIBE: what a catalog has, as MySQL's clients show it. Pure."""

from __future__ import annotations

from datetime import UTC

from tidemill.playground.sql.catalog import Catalog, Table
from tidemill.playground.sql.parse import ast
from tidemill.tidb.schema.codes import ColumnFlag, SchemaState
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tidb.schema.show import create_table, type_text

Shown = tuple[tuple[str, ...], tuple[tuple[ast.Value, ...], ...]]
"""Labels and rows."""


def databases(catalog: Catalog) -> Shown:
    """SHOW DATABASES."""
    return ("Database",), tuple((name,) for name in sorted(catalog.schema_name(id_) for id_ in catalog.schemas))


def tables(catalog: Catalog, schema: str) -> Shown:
    """SHOW TABLES. Raises SqlError."""
    schema_id = catalog.schema_id(schema)
    names = sorted(table.name for table in catalog.tables.values() if table.schema_id == schema_id)
    return (f"Tables_in_{catalog.schema_name(schema_id)}",), tuple((name,) for name in names)


def create(catalog: Catalog, table: Table) -> Shown:
    """SHOW CREATE TABLE."""
    text = create_table(catalog.schema_name(table.schema_id), table.model, UTC)
    return ("Table", "Create Table"), ((table.name, text),)


def columns(table: Table) -> Shown:
    """DESCRIBE."""
    public = [column for column in table.model.columns if column.state == SchemaState.PUBLIC and not column.hidden]
    labels = ("Field", "Type", "Null", "Key", "Default", "Extra")
    return labels, tuple(
        (c.name, type_text(c).lower(), "NO" if c.not_null else "YES", _key(c), None if c.default is None else str(c.default), _extra(c))
        for c in public
    )


def _key(column: ColumnInfo) -> str:
    for flag, text in ((ColumnFlag.PRIMARY_KEY, "PRI"), (ColumnFlag.UNIQUE_KEY, "UNI"), (ColumnFlag.MULTIPLE_KEY, "MUL")):
        if column.flag & flag:
            return text
    return ""


def _extra(column: ColumnInfo) -> str:
    if column.is_generated:
        return "VIRTUAL GENERATED" if column.is_virtual else "STORED GENERATED"
    return "auto_increment" if column.flag & ColumnFlag.AUTO_INCREMENT else ""
