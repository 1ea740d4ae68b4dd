"""Compile the Java class of Spark's catalog into the jar that wheels ship. Run by the set-up; it takes two seconds."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pyspark

from tidemill.spark.catalog.jar import JAR

SOURCES = JAR.parent / "java"
RELEASE = "17"
STAMP = "META-INF/tidemill-sources"
MOMENT = (2026, 1, 1, 0, 0, 0)
"""Of each member: the same sources give the same bytes."""


def main() -> None:
    sources = sorted(SOURCES.rglob("*.java"))
    digest = hashlib.sha256(b"\0".join(source.read_bytes() for source in sources) + pyspark.__version__.encode()).hexdigest()
    if is_current(digest):
        return
    with tempfile.TemporaryDirectory() as folder:
        jars = str(Path(pyspark.__file__).parent / "jars" / "*")
        command = ["javac", "--release", RELEASE, "-proc:none", "-nowarn", "-encoding", "UTF-8", "-cp", jars, "-d", folder]
        done = subprocess.run([*command, *map(str, sources)], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"the catalog's Java class cannot be compiled:\n{done.stdout}{done.stderr}")
        write(Path(folder), digest)


def is_current(digest: str) -> bool:
    """Return whether the jar is of these sources."""
    if not JAR.is_file():
        return False
    with zipfile.ZipFile(JAR) as jar:
        return STAMP in jar.namelist() and jar.read(STAMP).decode() == digest


def write(classes: Path, digest: str) -> None:
    """Write the jar, and put it in its place when it is whole."""
    arriving = JAR.with_suffix(".arriving")
    with zipfile.ZipFile(arriving, "w", zipfile.ZIP_DEFLATED) as jar:
        jar.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", MOMENT), "Manifest-Version: 1.0\n\n")
        jar.writestr(zipfile.ZipInfo(STAMP, MOMENT), digest)
        for path in sorted(classes.rglob("*.class")):
            jar.writestr(zipfile.ZipInfo(str(path.relative_to(classes)), MOMENT), path.read_bytes())
    arriving.rename(JAR)


if __name__ == "__main__":
    main()
