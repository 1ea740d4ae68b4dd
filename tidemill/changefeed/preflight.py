"""Checks the schema registry, the brokers and the topic, or the database, before anything is started for a delivery."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from tidemill.changelog.storage.open import make_folder
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
    if sink.spec.reach:
        sink.spec.load(sink.spec.reach)(sink)
        return
    if folder := sink.spec.folder(sink):
        _check_folder(Path(folder))
    driver = open_driver_sink(sink.text)
    try:
        driver.ensure_topics({sink.topic})
    finally:
        driver.close()


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
