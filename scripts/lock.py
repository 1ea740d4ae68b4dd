"""Write what the image (deploy/docker/requirements.lock) and the set-up (scripts/setup.lock, scripts/setup-demo.lock) install with Python
3.11, and what builds it (deploy/docker/build.lock): each package with the SHA-256 of its files, for x86-64 and ARM64.

    .venv/bin/python scripts/lock.py

Versions are those that pip chooses by pyproject.toml and constraints.txt. pyspark is a source archive and is built with build.lock.
Packages without a wheel for ARM64 have the hash of x86-64's alone: see SKIPPED.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "deploy/docker/build.lock"
LOCKS = {
    "all": ROOT / "deploy/docker/requirements.lock",
    "dev": ROOT / "scripts/setup.lock",
    "playground": ROOT / "scripts/setup-demo.lock",
}
"""By the extra of pyproject.toml that is locked."""
GLIBC = (36, 34, 31, 28, 27, 24, 17, 12, 5)
"""Of manylinux wheels: Debian 12 has glibc 2.36."""
SKIPPED = frozenset({"pyspark", "plyvel", "tidemill"})
"""Not asked for ARM64: a source archive for all, no wheel for ARM64 (an image there leaves the extra `binlog` out), and this project."""


def report(*arguments: str) -> list[dict[str, Any]]:
    """What pip would install."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.json"
        pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--dry-run", "--ignore-installed", "--quiet"]
        subprocess.run([*pip, "--report", str(out), *arguments], check=True, cwd=ROOT)
        found: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))["install"]
        return found


def platform(machine: str) -> list[str]:
    """The options of pip for another machine."""
    tags = [f"manylinux_2_{minor}_{machine}" for minor in GLIBC] + [f"manylinux2014_{machine}", f"linux_{machine}"]
    options = ["--python-version", "3.11", "--implementation", "cp", "--only-binary=:all:", "--target", tempfile.gettempdir(), "--no-deps"]
    return [*options, *(f"--abi={abi}" for abi in ("cp311", "abi3", "none")), *(f"--platform={tag}" for tag in tags)]


def hashes(*reports: list[dict[str, Any]]) -> dict[str, set[str]]:
    """The SHA-256 of the files of each NAME==VERSION."""
    found: dict[str, set[str]] = defaultdict(set)
    for one in (part for whole in reports for part in whole if part["metadata"]["name"] != "tidemill"):
        name = one["metadata"]["name"].lower().replace("_", "-").replace(".", "-")
        found[f"{name}=={one['metadata']['version']}"].add(one["download_info"]["archive_info"]["hashes"]["sha256"])
    return found


def write(path: Path, found: dict[str, set[str]]) -> None:
    """Write a file of requirements."""
    lines = ["# Written by scripts/lock.py: pip install --require-hashes --no-deps -r FILE"]
    for pin in sorted(found):
        lines.append(" \\\n".join([pin, *(f"    --hash=sha256:{one}" for one in sorted(found[pin]))]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def lock(extra: str, path: Path) -> None:
    """Write the file of an extra."""
    local = report("--constraint", "constraints.txt", f".[{extra}]")
    pins = [f"{one['metadata']['name']}=={one['metadata']['version']}" for one in local if one["metadata"]["name"].lower() not in SKIPPED]
    write(path, hashes(local, report(*platform("x86_64"), *pins), report(*platform("aarch64"), *pins)))


def main() -> None:
    """Ask pip, and write."""
    for extra, path in LOCKS.items():
        lock(extra, path)
    build: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    write(BUILD, hashes(report(*build)))


if __name__ == "__main__":
    main()
