"""DROP and RENAME of an Iceberg table that are tied to what the driver has read: a late one meets no other table of the name.

The specification of REST catalogs ties neither to a version. In a catalog in a database each is one statement here, which demands the
table's metadata file. With another catalog the file is compared right before: a driver that sleeps between the two requests, while another
one drops the table and makes a new one of its name, still hits the new one.
"""

from __future__ import annotations

from typing import Any

from tidemill.extras import extra

with extra("lake"):
    from pyiceberg.catalog import Catalog
    from pyiceberg.catalog.sql import IcebergTables as Entry
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
    from sqlalchemy import delete, update
    from sqlalchemy.exc import IntegrityError
    from sqlalchemy.orm import Session


def find_table(catalog: Catalog, place: str) -> Any | None:
    """Return a table, None if there is none."""
    try:
        return catalog.load_table(place)
    except NoSuchTableError:
        return None


def drop_exactly(catalog: Catalog, place: str, metadata: str) -> bool:
    """Drop the table whose metadata file this is. Returns whether it was there."""
    if isinstance(catalog, SqlCatalog):
        return _changed(catalog, delete(Entry).where(*_entry(catalog, place, metadata)))
    found = find_table(catalog, place)
    if found is None or found.metadata_location != metadata:
        return False
    catalog.drop_table(place)
    return True


def rename_exactly(catalog: Catalog, place: str, new: str, metadata: str) -> bool:
    """Rename the table whose metadata file this is. Returns whether it was there. Raises TableAlreadyExistsError."""
    if isinstance(catalog, SqlCatalog):
        namespace, _, name = new.rpartition(".")
        change = update(Entry).where(*_entry(catalog, place, metadata)).values(table_namespace=namespace, table_name=name)
        try:
            return _changed(catalog, change)
        except IntegrityError:
            raise TableAlreadyExistsError(f"{new} exists") from None
    found = find_table(catalog, place)
    if found is None or found.metadata_location != metadata:
        return False
    catalog.rename_table(place, new)
    return True


def _entry(catalog: Catalog, place: str, metadata: str) -> tuple[Any, ...]:
    namespace, _, name = place.rpartition(".")
    of_place = (Entry.catalog_name == catalog.name, Entry.table_namespace == namespace, Entry.table_name == name)
    return (*of_place, Entry.metadata_location == metadata)


def _changed(catalog: SqlCatalog, statement: Any) -> bool:
    with Session(catalog.engine) as session:
        result: Any = session.execute(statement)
        count: int = result.rowcount
        session.commit()
        return count > 0
