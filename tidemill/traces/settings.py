"""Whether traces are sent, by OpenTelemetry's own environment variables. Pure.

Sampling, queues, limits, headers, certificates and the names of the resource are read by OpenTelemetry itself.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""One of them asks for traces. The first is the whole URL, to the second `/v1/traces` is added."""
EXPORTER, DISABLED = "OTEL_TRACES_EXPORTER", "OTEL_SDK_DISABLED"
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"


class Asked(enum.Enum):
    """What the environment says."""

    OFF = "off"
    ON = "on"
    UNKNOWN = "unknown"
    """Traces by an exporter or a protocol that Tidemill does not have."""


def asked(environment: Mapping[str, str]) -> tuple[Asked, str]:
    """Return what the environment asks for, and for UNKNOWN the setting that says so."""
    exporters = [one.strip().lower() for one in environment.get(EXPORTER, "").split(",") if one.strip()]
    if environment.get(DISABLED, "").strip().lower() == "true" or "none" in exporters:
        return Asked.OFF, ""
    if exporters and "otlp" not in exporters:
        return Asked.UNKNOWN, f"{EXPORTER}={','.join(exporters)}"
    if not exporters and not any(environment.get(name, "").strip() for name in ENDPOINTS):
        return Asked.OFF, ""
    for name in PROTOCOLS:
        protocol = environment.get(name, "").strip().lower()
        if protocol:
            return (Asked.ON, "") if protocol == PROTOCOL else (Asked.UNKNOWN, f"{name}={protocol}")
    return Asked.ON, ""


def names_service(environment: Mapping[str, str]) -> bool:
    """Return whether the environment gives the service's name."""
    given = environment.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")
    return bool(environment.get("OTEL_SERVICE_NAME")) or any(one.strip().startswith("service.name=") for one in given)
