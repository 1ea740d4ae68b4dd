"""Canal's Java client in a process of its own: one command after the other. `CanalReader.java` says which there are."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tidemill.errors import TidemillError
from tidemill.playground.programs.canal_client.jars import compiled, jars
from tidemill.playground.programs.maven import java

PROGRAM = Path(__file__).with_name("CanalReader.java")


class ClientRefused(TidemillError):
    """A client in a process of its own raised an exception, or has ended."""

    code = "TM:ErrClientProcess"


class ClientProcess:
    """A program that answers each line of words with a line of JSON, as long as the block lasts."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8", env=environment
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    def tell(self, *words: object) -> None:
        """Send a command without waiting for its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write("\t".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def heard(self) -> dict[str, Any]:
        """The next answer. Raises ClientRefused with the text of the client's exception."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.endswith("\n"):
            raise ClientRefused("the client's process has ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ClientRefused(answer["error"])
        return answer

    def ask(self, *words: object) -> dict[str, Any]:
        """Send a command and wait for its answer. Raises ClientRefused."""
        self.tell(*words)
        return self.heard()

    def connect(self, address: str, destination: str, user: str = "", password: str = "", *, filter_: str | None = None) -> None:
        """A new connection, logged in; with `filter_` also subscribed."""
        host, _, port = address.rpartition(":")
        self.ask("open", host, port, destination, user, password)
        self.ask("connect")
        if filter_ is not None:
            self.ask("subscribe", filter_)

    def get(self, size: int = 1000, timeout_ms: int | None = None) -> tuple[int, list[dict[str, Any]]]:
        """The id of a batch, which stays open, and what the client says about its entries. Without entries the id means nothing."""
        answer = self.ask("get-without-ack", size, *(() if timeout_ms is None else (timeout_ms,)))
        return answer["id"], answer["entries"]

    def ack(self, batch: int) -> None:
        """Acknowledge a batch. The server answers nothing."""
        self.ask("ack", batch)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.communicate()


class JavaClient(ClientProcess):
    """Canal's client for TCP. `program` and `folder`: another program, other jars."""

    def __init__(self, program: Path = PROGRAM, folder: Path | None = None) -> None:
        found = folder or jars()
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        super().__init__([java(), *options, "-cp", f"{compiled(program, found)}:{found}/*", program.stem])
