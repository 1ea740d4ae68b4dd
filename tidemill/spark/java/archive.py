"""The archive of the classes that Spark's Java loads for a delivery: where it is, and how Java is told of it.

Half of what a start costs is Java loading and checking the same classes. It does this once for an archive: see "class data sharing" in
Java's documentation. The archive is for one Java and one Spark, which its name says, and Java does not use one that does not fit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

PLACE = "TIDEMILL_JAVA_CACHE"
"""Environment variable with the folder of the archives."""
OPTIONS = "SPARK_SUBMIT_OPTS"
"""Spark's scripts add what it holds to the command line of a driver's Java."""
_NAMED = "SharedArchiveFile"
_MAKES = "ArchiveClassesAtExit"
"""Java takes one of the two."""


def archive_of(java: Path, environment: Mapping[str, str]) -> Path | None:
    """Where the archive for a Java is, or is to be; None: this user has no place for it. It holds code, so it is in a folder of the user's
    own, or in the one that is named."""
    from pyspark.find_spark_home import _find_spark_home

    if named := environment.get(PLACE):
        folder = Path(named)
    elif environment.get("XDG_CACHE_HOME") or environment.get("HOME"):
        folder = Path(environment.get("XDG_CACHE_HOME") or Path(environment["HOME"]) / ".cache") / "tidemill" / "java"
    else:
        return None
    release = java / "release"
    jars = sorted(path.name for path in Path(environment.get("SPARK_HOME") or _find_spark_home(), "jars").glob("*.jar"))
    digest = hashlib.sha256(f"{java.resolve()}\0{release.read_text() if release.is_file() else ''}\0{jars}".encode())
    return folder / f"spark-{digest.hexdigest()[:16]}.jsa"


def with_archive(java: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variable that makes Spark's Java use the archive. Nothing if there is none, if the user names one, or while one is
    made."""
    given = environment.get(OPTIONS, "")
    archive = archive_of(java, environment)
    if archive is None or not archive.is_file() or _NAMED in given or _MAKES in given:
        return {}
    return {OPTIONS: f"{given} -XX:{_NAMED}={archive}".strip()}
