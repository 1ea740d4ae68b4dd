"""This machine: programs and their versions, limits, the folder of compiled kernels. Does IO."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from tidemill.doctor.findings import Finding, bad, doubtful, good

PYTHONS = ((3, 11), (3, 13))
JAVA = 17
FILES = 4096
"""Open files that a capture of a large cluster and Spark want, at least."""
_MEMORY_GIB = 3.0


def machine() -> Iterator[Finding]:
    """Look at Python, Java, Spark, memory, limits and kernels."""
    yield _python()
    yield _java()
    yield _spark()
    yield _files()
    yield _memory()
    yield _kernels()


def _python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    if PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        return good("python", found)
    return doubtful("python", f"{found} was not tried", "Use Python 3.11, 3.12 or 3.13.")


def _java() -> Finding:
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    remedy = f"Install Java {JAVA} or newer: apt-get install openjdk-17-jre-headless. JAVA_HOME, if set, must name it."
    if program is None:
        return bad("java", "there is no java, which Spark needs", remedy)
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False, timeout=30).stderr
    except OSError as error:
        return bad("java", f"{program} cannot be run: {error}", remedy)
    found = re.search(r'version "(?:1\.)?(\d+)([^"]*)"', said)
    if found is None:
        return doubtful("java", f"{program} does not tell its version", remedy)
    text = f"{found[1]}{found[2]} at {program}"
    return good("java", text) if int(found[1]) >= JAVA else bad("java", f"{text} is too old for Spark 4", remedy)


def _spark() -> Finding:
    try:
        found = version("pyspark")
        wanted = next((r.partition("==")[2].partition(";")[0].strip() for r in requires("tidemill") or () if r.startswith("pyspark==")), "")
    except PackageNotFoundError as error:
        return bad("spark", f"the package {error.name} is not installed", "Install Tidemill with pip, which brings PySpark along.")
    if wanted and found != wanted:
        return doubtful("spark", f"PySpark {found}, but {wanted} is the version that was tried", f"pip install pyspark=={wanted}")
    return good("spark", f"PySpark {found}")


def _files() -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= FILES:
        return good("open files", "no limit" if hard == resource.RLIM_INFINITY else f"up to {hard:,}")
    return doubtful("open files", f"at most {hard:,}", f"Raise the hard limit to {FILES:,} or more: ulimit -Hn, LimitNOFILE= of systemd.")


def _memory() -> Finding:
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    text = f"{gib:.1f} GiB, {os.cpu_count()} cores"
    if gib >= _MEMORY_GIB:
        return good("memory", text)
    return doubtful("memory", text, f"A run with Spark wants about {_MEMORY_GIB:.0f} GiB. Lower --memory-quota and Spark's memory.")


def _kernels() -> Finding:
    from tidemill.kernels.cache import use_cache

    folder = use_cache()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        return bad("kernels", f"{folder} cannot be written", "Set TIDEMILL_KERNEL_CACHE to a folder that this user may write to.")
    if not folder.exists():
        return doubtful("kernels", "not compiled yet: the first start takes a minute or two more", "python -m tidemill.kernels.warm")
    return good("kernels", f"compiled in {folder}")
