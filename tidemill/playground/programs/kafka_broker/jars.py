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
    """The folder with the broker's jars, which are those of `checksums.txt`. See `maven.installed`."""
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    return installed("kafka", POM, CACHE, goal, "kafka_*.jar", BrokerError, POM.with_name("checksums.txt"))
