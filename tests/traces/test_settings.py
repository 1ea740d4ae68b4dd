"""Whether the environment asks for traces."""

from __future__ import annotations

import pytest

from tidemill.traces.settings import Asked, asked, names_service

COLLECTOR = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, Asked.OFF),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, Asked.OFF),
        ({"OTEL_SERVICE_NAME": "cdc", "OTEL_TRACES_SAMPLER": "always_on"}, Asked.OFF),
        (COLLECTOR, Asked.ON),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, Asked.ON),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, Asked.ON),
        ({"OTEL_TRACES_EXPORTER": "console, OTLP"}, Asked.ON),
        (COLLECTOR | {"OTEL_TRACES_EXPORTER": "none"}, Asked.OFF),
        (COLLECTOR | {"OTEL_SDK_DISABLED": "TRUE"}, Asked.OFF),
        (COLLECTOR | {"OTEL_SDK_DISABLED": "false"}, Asked.ON),
        (COLLECTOR | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, Asked.ON),
        (COLLECTOR | {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, Asked.ON),
    ],
)
def test_what_asks_for_traces(environment: dict[str, str], found: Asked) -> None:
    assert asked(environment) == (found, "")


@pytest.mark.parametrize(
    "name_and_value", ["OTEL_TRACES_EXPORTER=jaeger", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json"]
)
def test_what_there_is_not_is_named(name_and_value: str) -> None:
    name, _, value = name_and_value.partition("=")
    assert asked(COLLECTOR | {name: value}) == (Asked.UNKNOWN, name_and_value)


def test_the_services_name() -> None:
    assert not names_service({"OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=x"})
    assert names_service({"OTEL_RESOURCE_ATTRIBUTES": "a=b, service.name=cdc"})
    assert names_service({"OTEL_SERVICE_NAME": "cdc"})
