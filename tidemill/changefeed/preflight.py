"""Asks what a delivery is going to need, before anything is started for it: the schema registry, the brokers, the topic."""

from __future__ import annotations

import threading

from tidemill.config.uri import SinkUri
from tidemill.protocols.all import spec_of
from tidemill.sinks.spec import open_driver_sink


def meet_sink(sink: SinkUri, stop: threading.Event | None = None) -> None:
    """Is everything there, and does it let us in? As TiCDC when a changefeed is created, this makes the sink's own topic.

    Asks once. Raises ConfigError, SinkError and SinkUnavailable, of a registry RegistryError and RegistryUnavailable.
    """
    if sink.protocol is not None and spec_of(sink.protocol).uses_registry:
        from tidemill.registry.registrar import open_registrar  # an HTTP client, which others need not load

        registrar = open_registrar(sink.encoding, None, stop)
        try:
            registrar.meet()
        finally:
            registrar.close()
    driver = open_driver_sink(sink.text)
    try:
        driver.ensure_topics({sink.topic})
    finally:
        driver.close()
