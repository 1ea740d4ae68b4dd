"""Schema registries for tests: a real one (Apicurio), and a server in front of one that asks for a password or misbehaves as told."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import NamedTuple
from urllib.parse import unquote

import pytest

from tidemill.playground.programs.schema_registry import RegistryProcess


@pytest.fixture(scope="session")
def registry() -> Iterator[RegistryProcess]:
    """A real registry. Import it into a test module (or conftest) to use it."""
    with RegistryProcess() as process:
        yield process


class Reply(NamedTuple):
    status: int
    body: bytes
    encoding: str = ""  # Content-Encoding


Ask = Callable[[str, str, bytes], Reply]
"""Method, path, body -> what is answered."""


class MemoryRegistry:
    """Ids by text, versions by subject; every schema is compatible. For tests of faults, not of what a registry says."""

    def __init__(self) -> None:
        self.subjects: dict[str, list[str]] = {}
        self.ids: dict[str, int] = {}

    def __call__(self, method: str, path: str, body: bytes) -> Reply:
        parts = [unquote(p) for p in path.partition("?")[0].strip("/").split("/")]
        match method, parts:
            case "GET", [""]:
                return _json(200, {})
            case "GET", ["subjects"]:
                return _json(200, list(self.subjects))
            case "POST", ["subjects", subject, "versions"]:
                text = json.loads(body)["schema"]
                self.subjects.setdefault(subject, []).append(text)
                return _json(200, {"id": self.ids.setdefault(text, 1 + len(self.ids))})
            case "GET", ["schemas", "ids", number]:
                found = next((text for text, i in self.ids.items() if i == int(number)), None)
                return (
                    _json(200, {"schema": found}) if found is not None else _json(404, {"error_code": 40403, "message": "no such schema"})
                )
            case _:
                return _json(404, {"error_code": 404, "message": "HTTP 404 Not Found"})


def _json(status: int, content: object) -> Reply:
    return Reply(status, json.dumps(content).encode())


def forward(url: str) -> Ask:
    """Answers of another registry."""

    def ask(method: str, path: str, body: bytes) -> Reply:
        request = urllib.request.Request(url + path, body or None, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return Reply(answer.status, answer.read())
        except urllib.error.HTTPError as error:
            return Reply(error.code, error.read())

    return ask


class Fault(NamedTuple):
    """What is answered in place of the registry: a reply, after so many seconds, a byte at a time, or nothing at all."""

    reply: Reply | None = None  # None: the connection is closed
    hang: bool = False  # nothing comes until the server ends
    dribble: bool = False  # a byte every 50 ms, without end


class Front:
    """`with Front(forward(registry.url), user="u:se", password="p/w") as front: … front.url … front.requests`.

    `faults`: taken one a request, the first first; None among them: the registry's own answer. `fault`: for all requests, as long as it
    is set.
    """

    def __init__(self, ask: Ask, *, user: str = "", password: str = "", path: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.faults: list[Fault | None] = []
        self.fault: Fault | None = None
        self._wanted = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode() if user or password else None
        self._over = threading.Event()
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else a body waits until the client has acknowledged the head, up to 40 ms

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                front.requests.append((self.command, self.path))
                front.headers.append(dict(self.headers.items()))
                fault = front.faults.pop(0) if front.faults else front.fault
                if fault is not None:
                    self._fail(fault)
                elif front._wanted is not None and self.headers.get("Authorization") != front._wanted:
                    self._reply(_json(401, {"error_code": 40101, "message": "Unauthorized"}))
                else:
                    self._reply(ask(self.command, self.path.removeprefix(path), body))

            def _fail(self, fault: Fault) -> None:
                if fault.hang:
                    front._over.wait()
                if fault.dribble:
                    self._dribble()
                elif fault.reply is not None:
                    self._reply(fault.reply)
                self.close_connection = True

            def _dribble(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", "1000000")
                self.end_headers()
                try:
                    while not front._over.wait(0.05):
                        self.wfile.write(b" ")
                        self.wfile.flush()
                except OSError:
                    return

            def _reply(self, reply: Reply) -> None:
                self.send_response(reply.status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(reply.body)))
                if reply.encoding:
                    self.send_header("Content-Encoding", reply.encoding)
                self.end_headers()
                self.wfile.write(reply.body)

            do_GET = do_POST = do_PUT = do_DELETE = _serve

            def log_message(self, format: str, *args: object) -> None: ...

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: object, client_address: object) -> None:
                """A client that hangs up is what tests want."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._path = path

    @property
    def address(self) -> str:
        """HOST:PORT and path."""
        return f"127.0.0.1:{self._server.server_address[1]}{self._path}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def registered(self) -> list[str]:
        """Subjects under which schemas were registered, in the order of the requests."""
        posts = [unquote(path) for method, path in self.requests if method == "POST" and path.endswith("/versions")]
        return [path.removeprefix(self._path).split("/")[2] for path in posts]

    def __enter__(self) -> Front:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def memory() -> MemoryRegistry:
    """A registry in this process."""
    return MemoryRegistry()


@pytest.fixture
def front(memory: MemoryRegistry) -> Iterator[Front]:
    """It at an address."""
    with Front(memory) as front:
        yield front
