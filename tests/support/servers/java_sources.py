"""Java programs of one file, run from their source: they need a JDK, not only a JRE."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache


@cache
def java_version() -> float:
    """The version of the JDK on the path; 0: there is none, or it cannot compile."""
    if shutil.which("java") is None:
        return 0.0
    asked = ["java", "-XshowSettings:properties", "--list-modules"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=120)
    found = [line.split("=")[1].strip() for line in said.stderr.splitlines() if "java.specification.version =" in line]
    return float(found[0]) if found and "jdk.compiler@" in said.stdout else 0.0
