"""The broker's jars."""

from __future__ import annotations

from pathlib import Path

from tidemill.errors import TidemillError
from tidemill.playground.programs.maven import installed

POM = Path(__file__).with_name("pom.xml")
CACHE = "TIDEMILL_KAFKA_JARS"


class BrokerError(TidemillError):
    """The embedded Kafka broker cannot be installed or started."""

    code = "TM:ErrBroker"


def archive() -> Path:
    """The file with the classes that a broker loads, as Java keeps them: a start with it costs half. See `broker.make_archive`."""
    folder = jars()
    return folder.with_name(f"{folder.name}.jsa")


def jars() -> Path:
    """The folder with the broker's jars. See `maven.installed`."""
    return installed("kafka", POM, CACHE, ["dependency:copy-dependencies", "-DincludeScope=runtime"], "kafka_*.jar", BrokerError)
