"""The broker's jars: fetched once with Maven into a cache folder, used offline afterwards."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tidemill.errors import TidemillError

POM = Path(__file__).with_name("pom.xml")
CACHE = "TIDEMILL_KAFKA_JARS"
"""Environment variable: another folder than `.tidemill/kafka` below the current one."""


class BrokerError(TidemillError):
    """The embedded Kafka broker cannot be installed or started."""

    code = "TM:ErrBroker"


def jars() -> Path:
    """The folder with the broker's jars; runs `mvn dependency:copy-dependencies` the first time or when the pom has changed."""
    root = Path(os.environ.get(CACHE) or Path.cwd() / ".tidemill" / "kafka").absolute()
    folder = root / hashlib.sha256(POM.read_bytes()).hexdigest()[:16]
    if folder.is_dir():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _fetch(root, folder)
    return folder


def _fetch(root: Path, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerError("the Kafka broker needs Maven (mvn) once, to fetch its jars", hint="On Debian: apt-get install maven")
    arriving = root / "arriving"
    shutil.rmtree(arriving, ignore_errors=True)
    command = [maven, "-B", "-q", "-f", str(POM), "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={arriving}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not any(arriving.glob("kafka_*.jar")):
        raise BrokerError(f"Maven could not fetch the Kafka broker:\n{(done.stdout + done.stderr)[-2000:]}")
    arriving.rename(folder)
