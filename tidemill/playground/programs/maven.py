"""Installs programs from Maven Central: a pom of this repository fetches them once into a cache folder. Later starts need no network."""

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


def installed(
    name: str,
    pom: Path,
    cache: str,
    goal: Sequence[str],
    expected: str,
    error: type[TidemillError] = ProgramError,
    checksums: Path | None = None,
) -> Path:
    """The folder that a Maven goal of dependency-plugin filled; it runs the first time, or when the pom has changed.

    `cache`: an environment variable for another folder than `.tidemill/NAME` below the current one. `expected`: a glob that must match.
    `checksums`: the jars that have to come, and none more, as sha256sum writes them.
    """
    root = Path(os.environ.get(cache) or Path.cwd() / ".tidemill" / name).absolute()
    folder = root / hashlib.sha256(pom.read_bytes() + (b"" if checksums is None else checksums.read_bytes())).hexdigest()[:16]
    if folder.is_dir():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            arriving = _fetch(name, root, ["-f", str(pom), *goal], expected, error)
            if checksums is not None:
                check_sums(name, arriving, checksums.read_text(), error)
            arriving.rename(folder)
    return folder


def told(name: str, folder: Path) -> str:
    """A line for a person: what lies in a folder that `installed` returned, and how large it is."""
    jars = [path.stat().st_size for path in folder.rglob("*.jar")]
    return f"      {name}: {len(jars)} jars, {sum(jars) >> 20} MB, in {folder}"


def check_sums(name: str, folder: Path, wanted: str, error: type[TidemillError] = ProgramError) -> None:
    """Raises `error` if the jars in a folder and those below it are not those of a list, as sha256sum writes it."""
    listed = {jar: digest for digest, jar in (line.split() for line in wanted.splitlines())}
    found = {jar.relative_to(folder).as_posix(): hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.rglob("*.jar")}
    if wrong := sorted(jar for jar in listed.keys() | found.keys() if listed.get(jar) != found.get(jar)):
        raise error(f"what was fetched for {name} is not what was expected: {', '.join(wrong)}")


def _fetch(name: str, root: Path, arguments: Sequence[str], expected: str, error: type[TidemillError]) -> Path:
    maven = shutil.which("mvn")
    if maven is None:
        raise error(f"{name} needs Maven (mvn) once, to be fetched", hint="On Debian: apt-get install maven")
    arriving = root / "arriving"
    shutil.rmtree(arriving, ignore_errors=True)
    # Maven notes by marker files what it has unpacked. They lie in the same folder: when it is removed, Maven unpacks again.
    command = [maven, "-B", "-q", *arguments, f"-DoutputDirectory={arriving}", f"-DmarkersDirectory={arriving / '.markers'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not any(arriving.glob(expected)):
        raise error(f"Maven could not fetch {name}:\n{(done.stdout + done.stderr)[-2000:]}")
    return arriving


def java(error: type[TidemillError] = ProgramError) -> str:
    """The Java program: JAVA_HOME's, else that of the path."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise error("Java 17 or newer is needed", hint="On Debian: apt-get install openjdk-17-jre-headless")
    return found
