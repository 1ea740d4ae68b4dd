"""The tables and the store of a sink URI."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tidemill.config.parameters import Scheme
from tidemill.config.uri import SinkUri, parse_sink_uri
from tidemill.errors import ConfigError
from tidemill.sinks.lake.base import Tables
from tidemill.sinks.storage.store import LocalStore, S3Store, Store


def lake_uri(place: str) -> SinkUri:
    """Return the sink URI of a lake that is named by it, or by a folder. Raises ConfigError."""
    found = parse_sink_uri(place if "://" in place else f"delta://{os.path.abspath(place)}")  # noqa: PTH100 – keeps the path as given
    if found.lake is None:
        raise ConfigError(f"{found} is not a place of tables", hint="Give a folder, or a delta:// or iceberg:// URI.")
    return found


def store_of(uri: SinkUri) -> Store:
    """Return where staged rows and manifests lie. Raises SinkError if it refuses its settings."""
    assert uri.storage is not None
    path = uri.path
    if uri.lake is not None and uri.scheme is Scheme.ICEBERG:
        path = unquote(urlsplit(uri.lake.warehouse).path) or uri.lake.warehouse
    return S3Store(uri.storage.s3, path) if uri.storage.s3 is not None else LocalStore(Path(path))


def tables_of(uri: SinkUri, store: Store) -> Tables:
    """Return the tables. Raises ExtraMissing without the library."""
    assert uri.lake is not None
    assert uri.storage is not None
    if uri.scheme is Scheme.DELTA:
        from tidemill.sinks.lake.delta import DeltaTables

        s3 = uri.storage.s3
        root = uri.path if s3 is None else f"s3://{s3.bucket}/{uri.path}".rstrip("/")
        return DeltaTables(root, store, s3, uri.lake.target_file_size)
    from tidemill.sinks.lake.iceberg import IcebergTables

    return IcebergTables(uri.lake, uri.storage.s3)
