"""Start and stop one Kafka broker on this machine."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tidemill.playground.programs.kafka_broker.jars import BrokerError, archive, jars
from tidemill.playground.programs.maven import java
from tidemill.process.ports import free_ports

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
num.partitions=3
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
message.max.bytes=67108864
replica.fetch.max.bytes=67108864
auto.create.topics.enable=false
log.segment.bytes=268435456
"""
_START_SECONDS = 90.0


class KafkaBroker:
    """One broker with its own data folder. After `stop`, `start` brings it back on the same ports with the same data. `settings`: lines
    added to server.properties, or replaced there; they may be changed until `start`.
    """

    def __init__(self, data: Path | None = None, *, heap: str = "512m", settings: dict[str, str] | None = None) -> None:
        self._own = data is None
        self._data = Path(tempfile.mkdtemp(prefix="tidemill-kafka-")) if data is None else data
        self._heap = heap
        self.settings = dict(settings or {})
        self._port, self._controller = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        self._classes: Sequence[str] = _archived()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def controller_address(self) -> str:
        return f"127.0.0.1:{self._controller}"

    @property
    def log(self) -> Path:
        """What the broker printed."""
        return self._data / "broker.log"

    def start(self) -> None:
        """Return when clients can connect. Raises BrokerError with the end of the broker's log."""
        class_path = f"{jars()}/*"
        properties = self._data / "server.properties"
        self._data.mkdir(parents=True, exist_ok=True)
        text = _PROPERTIES.format(port=self._port, controller=self._controller, data=self._data / "log")
        properties.write_text(text + "".join(f"{name}={value}\n" for name, value in self.settings.items()))
        if not (self._data / "log" / "meta.properties").exists():
            self._format(class_path, properties)
        command = [java(BrokerError), "-Xms64m", f"-Xmx{self._heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *self._classes]
        command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", class_path, "kafka.Kafka", str(properties)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        self._await_port()

    def stop(self, *, kill: bool = False) -> None:
        """End the broker (`kill`: at once, as a crash would). Data stays until `close`."""
        if self._process is None:
            return
        if kill:
            self._process.kill()
        else:
            self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def close(self) -> None:
        """End the broker and remove its data if the folder was made here."""
        self.stop(kill=self._own)
        if self._own:
            shutil.rmtree(self._data, ignore_errors=True)

    def __enter__(self) -> KafkaBroker:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _format(self, class_path: str, properties: Path) -> None:
        cluster = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace("-", "A")
        command = [java(BrokerError), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *_archived(), "-cp", class_path]
        command += ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BrokerError(f"the Kafka broker's storage cannot be formatted:\n{(done.stdout + done.stderr)[-2000:]}")

    def _await_port(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            try:
                with socket.create_connection(("127.0.0.1", self._port), 0.2):
                    return
            except OSError:
                pass
            try:
                self._process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            break
        self.stop(kill=True)
        raise BrokerError(f"the Kafka broker did not start:\n{self.log.read_text(errors='replace')[-2000:]}")


def _archived() -> list[str]:
    """Options for Java: classes come from the archive, if there is one that this Java can use."""
    return [f"-XX:SharedArchiveFile={archive()}", "-Xlog:disable", "-Xlog:all=error:stderr"] if archive().is_file() else []


def make_archive() -> None:
    """Keep the classes that a broker loads until clients can connect, if that was not done before. Raises BrokerError."""
    if archive().is_file():
        return
    new = archive().with_suffix(f".{os.getpid()}.new")
    broker = KafkaBroker()
    broker._classes = [f"-XX:ArchiveClassesAtExit={new}", "-Xlog:disable", "-Xlog:all=error:stderr"]
    try:
        broker.start()
        broker.stop()
    finally:
        broker.close()
    if new.is_file():
        new.replace(archive())
