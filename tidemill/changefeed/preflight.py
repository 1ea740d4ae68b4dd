"""Checks the schema registry, the brokers and the topic, or the database, before anything is started for a delivery."""

from __future__ import annotations

import threading

from tidemill.config.uri import SinkUri
from tidemill.protocols.all import spec_of
from tidemill.sinks.spec import open_driver_sink


def check_sink_reachable(sink: SinkUri, stop: threading.Event | None = None) -> None:
    """Check that registry and sink answer and accept the credentials. Like TiCDC when a changefeed is created, this makes the sink's topic.

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
    driver = open_driver_sink(sink.text)
    try:
        driver.ensure_topics({sink.topic})
    finally:
        driver.close()
