"""Checks the schema registry, the brokers and the topic, or the database, before anything is started for a delivery."""

from __future__ import annotations

import os
import threading
from contextlib import closing
from pathlib import Path

from tidemill.changelog.storage.open import make_folder
from tidemill.config.database import MysqlOptions
from tidemill.config.parameters import Scheme
from tidemill.config.uri import SinkUri
from tidemill.errors import SinkError
from tidemill.protocols.all import spec_of
from tidemill.sinks.parts import file_errors
from tidemill.sinks.spec import open_driver_sink


def check_sink_reachable(sink: SinkUri, stop: threading.Event | None = None) -> None:
    """Check that registry and sink answer and accept the credentials. Like TiCDC when a changefeed is created, this makes the sink's topic,
    or its folder.

    Each is asked once. Raises ConfigError, SinkError and SinkUnavailable, of a registry RegistryError and RegistryUnavailable.
    """
    if sink.protocol is not None and spec_of(sink.protocol).uses_registry:
        from tidemill.registry.registrar import open_registrar  # an HTTP client; other protocols need not load it

        registrar = open_registrar(sink.encoding, None, stop)
        try:
            registrar.meet()
        finally:
            registrar.close()
    if sink.mysql is not None:
        _check_database(sink.mysql)
        return
    if (folder := _local_folder(sink)) is not None:
        _check_folder(folder)
    driver = open_driver_sink(sink.text)
    try:
        driver.ensure_topics({sink.topic})
    finally:
        driver.close()


def _local_folder(sink: SinkUri) -> Path | None:
    """The folder of this machine that a sink writes to; None for other sinks."""
    match sink.scheme:
        case Scheme.FILE:
            return Path(sink.path)
        case Scheme.MESSAGES:
            return Path(sink.path).parent
        case Scheme.DELTA if sink.storage is None or sink.storage.s3 is None:
            return Path(sink.path)
    return None


def _check_folder(folder: Path) -> None:
    try:
        with file_errors("the sink's folder cannot be made", folder):
            try:
                make_folder(str(folder), sync=True)
            except FileExistsError as error:
                raise SinkError(f"the sink's folder cannot be made: {error.filename} is a file") from error
        if not os.access(folder, os.W_OK | os.X_OK):
            raise SinkError(f"the sink's folder cannot be written: {folder}")
    except SinkError as error:
        hint = "Name a folder that this user can make and write, here and on each machine with Spark's executors."
        raise type(error)(error.message, hint=hint) from error


def _check_database(options: MysqlOptions) -> None:
    from tidemill.sinks.mysql.connection import Connection, ServerFault  # a client of databases; other sinks need not load it

    try:
        with closing(Connection(options)) as connection:
            connection.rows("SELECT 1")
    except ServerFault as fault:
        raise fault.error(f"{options.host}:{options.port}") from fault
