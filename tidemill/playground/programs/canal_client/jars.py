"""The client's jars, and programs of one Java file compiled for them. The compiler is among the jars: Java's runtime is enough."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

from tidemill.playground.programs.maven import ProgramError, installed, java

HERE = Path(__file__).parent
CACHE = "TIDEMILL_CANAL_CLIENT_JARS"
RELEASE = "17"


def jars() -> Path:
    """The folder with the client's jars, which are those of `checksums.txt`. See `maven.installed`."""
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    return installed("canal-client", HERE / "pom.xml", CACHE, goal, "canal.client-*.jar", checksums=HERE / "checksums.txt")


def compiled(source: Path, jars_: Path) -> Path:
    """The folder with the classes of a program, compiled once for these jars. Raises ProgramError."""
    compiler = next(iter(jars().glob("ecj-*.jar")))
    name = f"{source.stem}-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}"
    folder = jars_ / ".classes" / name
    if folder.is_dir():
        return folder
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            arriving = folder.parent / "arriving"
            shutil.rmtree(arriving, ignore_errors=True)
            path = ":".join(str(jar) for jar in sorted(jars_.glob("*.jar")))
            command = [java(), "-jar", str(compiler), "-source", RELEASE, "-target", RELEASE, "-proc:none", "-nowarn", "-encoding", "UTF-8"]
            done = subprocess.run([*command, "-cp", path, "-d", str(arriving), str(source)], capture_output=True, text=True, check=False)
            if done.returncode:
                raise ProgramError(f"{source.name} cannot be compiled:\n{(done.stdout + done.stderr)[-2000:]}")
            arriving.rename(folder)
    return folder
