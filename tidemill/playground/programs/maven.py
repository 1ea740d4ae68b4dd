"""Programs that Maven Central has: fetched once into a cache folder by a committed pom, used offline afterwards."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tidemill.errors import TidemillError


class ProgramError(TidemillError):
    """A program of the playground cannot be installed or started."""

    code = "TM:ErrPlaygroundProgram"


def installed(name: str, pom: Path, cache: str, goal: Sequence[str], expected: str, error: type[TidemillError] = ProgramError) -> Path:
    """The folder that a Maven goal of dependency-plugin filled; it runs the first time, or when the pom has changed.

    `cache`: an environment variable for another folder than `.tidemill/NAME` below the current one. `expected`: a glob that must match.
    """
    root = Path(os.environ.get(cache) or Path.cwd() / ".tidemill" / name).absolute()
    folder = root / hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    if folder.is_dir():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _fetch(name, root, folder, ["-f", str(pom), *goal], expected, error)
    return folder


def _fetch(name: str, root: Path, folder: Path, arguments: Sequence[str], expected: str, error: type[TidemillError]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise error(f"{name} needs Maven (mvn) once, to be fetched", hint="On Debian: apt-get install maven")
    arriving = root / "arriving"
    shutil.rmtree(arriving, ignore_errors=True)
    # Markers of what was unpacked belong with it: beside the pom they would make Maven believe that it is there already.
    command = [maven, "-B", "-q", *arguments, f"-DoutputDirectory={arriving}", f"-DmarkersDirectory={arriving / '.markers'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not any(arriving.glob(expected)):
        raise error(f"Maven could not fetch {name}:\n{(done.stdout + done.stderr)[-2000:]}")
    arriving.rename(folder)


def java(error: type[TidemillError] = ProgramError) -> str:
    """The Java program: JAVA_HOME's, else that of the path."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise error("Java 17 or newer is needed", hint="On Debian: apt-get install openjdk-17-jre-headless")
    return found
