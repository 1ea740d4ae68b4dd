"""The store and the layout of a sink URI."""

from __future__ import annotations

from pathlib import Path

from tidemill.config.uri import SinkUri
from tidemill.errors import ConfigError
from tidemill.protocols.all import spec_of
from tidemill.sinks.storage.paths import Layout
from tidemill.sinks.storage.store import LocalStore, S3Store, Store


def layout_of(uri: SinkUri) -> Layout:
    """Return the layout. Raises ConfigError for a protocol that it does not support."""
    options = uri.storage
    extension = spec_of(uri.protocol).file_extension if uri.protocol is not None else ""
    if options is None or not extension:
        raise ConfigError(f"{uri}: only canal-json and csv are written as files of tables")
    return Layout(
        extension=extension,
        partitions=options.partition_separator,
        date=options.date_separator,
        digits=options.file_index_digits,
        table_ids=options.use_table_id_as_path,
    )


def store_of(uri: SinkUri) -> Store:
    """Return the store. Raises SinkError if it refuses its settings."""
    assert uri.storage is not None
    return S3Store(uri.storage.s3, uri.path) if uri.storage.s3 is not None else LocalStore(Path(uri.path))
