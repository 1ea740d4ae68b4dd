"""The jar with the catalog's Java class. The set-up and `make wheel` write it beside this file; a wheel ships it."""

from __future__ import annotations

from pathlib import Path

from tidemill.errors import ConfigError

JAR = Path(__file__).parent / "tidemill-spark-catalog.jar"
CLASS = "io.tidemill.spark.TidemillCatalog"


def catalog_jar() -> str:
    """Return the path of the jar, for `spark.jars`. Raises ConfigError in a checkout whose set-up has not compiled it."""
    if not JAR.is_file():
        raise ConfigError(f"{JAR} is not there: it is compiled by the set-up", hint="In a checkout run `make setup`; wheels have it.")
    return str(JAR)
