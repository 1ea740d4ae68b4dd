"""What a table's metadata and a catalog's answers must not decide: which code runs here, and which files of this machine are touched.

pyiceberg imports the classes that properties name, and calls them with texts of the metadata: `builtins.exec` would do. It also opens,
writes and removes files at any path that metadata, manifests or a catalog name, `file://` too. Whoever may write to a bucket or set a
property of a table is not trusted with that. So such a property is refused unless it is of pyiceberg's own configuration on this machine,
and tables of a bucket have no files here. Credentials of that configuration go to its own address only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from tidemill.errors import SinkError
from tidemill.extras import extra

with extra("lake"):
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.io import load_file_io
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.serializers import FromInputFile
    from pyiceberg.table import StaticTable
    from pyiceberg.utils.config import Config

ADDRESS, FILES = "uri", "py-io-impl"
_CLASSES = (FILES, "write.py-location-provider.impl", "s3.retry-strategy-impl")
"""Properties that name a class, which pyiceberg imports and calls."""


class RemoteFiles(PyArrowFileIO):
    """pyiceberg's files, without those of this machine."""

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> Any:
        if scheme == "file":
            raise PermissionError("a table of a bucket names a file of this machine")
        return super()._initialize_fs(scheme, netloc)


def open_catalog(name: str, given: Mapping[str, str], *, remote: bool) -> Catalog:
    """Return a catalog whose tables name no classes. `given`: properties besides those of pyiceberg's configuration. `remote`: its tables
    lie in a bucket. Raises SinkError."""
    configured = Config().get_catalog_config(name) or {}
    own: dict[str, Any] = {**configured, **given}
    if str(configured.get(ADDRESS, own.get(ADDRESS, ""))).rstrip("/") != own.get(ADDRESS, "").rstrip("/"):
        raise SinkError(
            f"catalog-uri is not that of the catalog {name} in pyiceberg's configuration",
            hint="Its credentials would be sent there. Leave catalog-uri out, or give the catalog another name.",
        )
    if remote and FILES not in own:
        own[FILES] = f"{__name__}.{RemoteFiles.__name__}"
    catalog: Any = load_catalog(name, **own)
    for one in _CLASSES:  # a REST catalog answers with properties that win
        if catalog.properties.get(one) != own.get(one):
            raise _refused(f"the catalog {name}", one)
    load = catalog._load_file_io

    def load_checked(properties: Mapping[str, str] = {}, location: str | None = None) -> Any:
        """Every table is made with this: its properties are in `properties`."""
        check(properties, location or "a table")
        return load(properties, location)

    catalog._load_file_io = load_checked
    return cast(Catalog, catalog)


def check(properties: Mapping[str, str], what: str) -> None:
    """Raise SinkError for properties of a table that name a class."""
    for one in _CLASSES:
        if one in properties:
            raise _refused(what, one)


def static_table(metadata: str, properties: Mapping[str, str]) -> StaticTable:
    """Return the table of a metadata file. `properties`: the catalog's. Raises SinkError."""
    own = dict(properties)
    read = FromInputFile.table_metadata(load_file_io(own, metadata).new_input(metadata))
    check(read.properties, metadata)
    files = load_file_io({**own, **read.properties}, metadata)
    return StaticTable(("static-table", metadata), read, metadata, files, NoopCatalog("static-table"))


def _refused(what: str, name: str) -> SinkError:
    return SinkError(
        f"{what} has the property {name}, which names a class to run",
        hint="Whoever may write to the tables could run code here. Remove it from the table.",
    )
