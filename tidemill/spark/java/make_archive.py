"""`python -m tidemill.spark.java.make_archive`: makes the archive for this user's Java and Spark."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from tidemill.errors import ConfigError, TidemillError
from tidemill.process.ending import fail
from tidemill.spark.java.archive import OPTIONS, PLACE, archive_of
from tidemill.spark.session import find_java, start_context, stop_spark

MADE_WITHIN_S = 300.0


def make() -> Path:
    """Run a Spark job, and keep the classes that Java had loaded when it ended. Raises ConfigError, NoJava, SparkUnavailable."""
    archive = archive_of(find_java(), os.environ)
    if archive is None:
        raise ConfigError("there is no folder for the archive", hint=f"Let {PLACE} name one.")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as name:
        new = Path(name) / "new.jsa"
        os.environ[OPTIONS] = f"-XX:ArchiveClassesAtExit={new}"
        context: Any = start_context(Path(name) / "spark.log", master="local[2]")
        java = context._gateway.proc
        items = context.parallelize([1, 2], 2)
        assert items.mapPartitions(lambda numbers: [sum(numbers)]).collect() == [1, 2]
        stop_spark(context)
        java.stdin.close()
        java.wait(MADE_WITHIN_S)  # it writes the archive at its end
        if not new.is_file():
            raise ConfigError(f"Java made no archive: {(Path(name) / 'spark.log').read_text()[-500:].strip()}")
        new.chmod(0o444)
        new.replace(archive)
    return archive


def main() -> None:
    """Entry point."""
    try:
        made = make()
    except TidemillError as error:
        fail(error)
    print(f"      classes of Spark's Java: {made.stat().st_size >> 20} MiB, {made}")


if __name__ == "__main__":
    main()
