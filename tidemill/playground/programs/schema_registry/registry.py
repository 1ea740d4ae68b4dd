"""Start and stop one schema registry on this machine."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

from tidemill.errors import TidemillError
from tidemill.playground.programs.maven import installed, java
from tidemill.process.ports import free_ports

POM = Path(__file__).with_name("pom.xml")
CACHE = "TIDEMILL_REGISTRY_PROGRAM"
API = "/apis/ccompat/v7"
"""Where Apicurio has Confluent's interface."""
_START_SECONDS = 120.0


class RegistryProcessError(TidemillError):
    """The embedded schema registry cannot be installed or started."""

    code = "TM:ErrRegistryProcess"


def program() -> Path:
    """The folder with the registry's program, whose jars are those of `checksums.txt`. See `maven.installed`."""
    goal, runner = ["dependency:unpack-dependencies"], "apicurio-registry-app-*-runner.jar"
    return installed("registry", POM, CACHE, goal, runner, RegistryProcessError, POM.with_name("checksums.txt"))


class RegistryProcess:
    """One registry with its schemas in memory: a stop loses them. After `stop`, `start` brings it back on the same ports.

    `certificate`: PEM files of a certificate and its key: it then speaks https as well, at `tls_url`.
    """

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        self._port, self._tls_port = free_ports(2)
        self._certificate = certificate
        self._folder = Path(tempfile.mkdtemp(prefix="tidemill-registry-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Address of Confluent's interface."""
        return f"http://127.0.0.1:{self._port}{API}"

    @property
    def tls_url(self) -> str:
        """The same over TLS."""
        return f"https://127.0.0.1:{self._tls_port}{API}"

    @property
    def log(self) -> Path:
        """What the registry printed."""
        return self._folder / "registry.log"

    def start(self) -> None:
        """Return when it answers, at compatibility BACKWARD as Confluent's does. Raises RegistryProcessError with the end of its log."""
        folder = program()
        runner = next(folder.glob("apicurio-registry-app-*-runner.jar"))
        options = {"quarkus.http.host": "127.0.0.1", "quarkus.http.port": self._port, "quarkus.log.level": "WARN"}
        if self._certificate is not None:
            options |= {"quarkus.http.ssl-port": self._tls_port, "quarkus.http.ssl.certificate.files": self._certificate[0]}
            options["quarkus.http.ssl.certificate.key-files"] = self._certificate[1]
        command = [java(RegistryProcessError), "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [f"-D{name}={value}" for name, value in options.items()]
        command += ["-cp", f"{runner}:{folder / 'lib'}/*", "io.quarkus.runner.GeneratedMain"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self._folder, start_new_session=True
            )
        self._await_answer()
        self.set_compatibility("BACKWARD")

    def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Set the compatibility of a subject, or of all subjects without one of their own. NONE removes a subject's own."""
        try:
            self._request("PUT", f"/config/{subject}" if subject else "/config", {"compatibility": level})
        except urllib.error.HTTPError as error:
            if level != "NONE" or error.code != 404:  # Apicurio removes a rule for NONE, and says so if there is none
                raise

    def delete_subject(self, subject: str) -> None:
        """Delete a subject for good."""
        self._request("DELETE", f"/subjects/{subject}")
        self._request("DELETE", f"/subjects/{subject}?permanent=true")

    def stop(self) -> None:
        """End it; its schemas are lost."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._process = None

    def close(self) -> None:
        """End it and remove its folder."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> RegistryProcess:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _request(self, method: str, path: str, body: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()

    def _await_answer(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            try:
                self._request("GET", "/subjects")
                return
            except (urllib.error.URLError, OSError):
                pass
            try:
                self._process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            break
        self.stop()
        raise RegistryProcessError(f"the schema registry did not start:\n{self.log.read_text(errors='replace')[-2000:]}")
