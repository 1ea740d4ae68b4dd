"""Stands between a client and an S3 server, and spoils single requests: an HTTP proxy on a free port.

`spoil` is asked for each request with its method and path, and says what becomes of it.
"""

from __future__ import annotations

import enum
import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CONDITIONS = {"if-match", "if-none-match"}


class Fault(enum.Enum):
    """What becomes of a request."""

    NONE = "it is passed on, and its answer back"
    LOST_ANSWER = "it is passed on, and the connection ends without an answer"
    ERROR_AFTER_ALL = "it is passed on, and the answer says 500"
    LOST_REQUEST = "the connection ends at once"
    UNAVAILABLE = "the answer says 503, and nothing is passed on"
    UNCONDITIONAL = "it is passed on without its conditions"
    NOT_IMPLEMENTED = "the answer says 501 where there are conditions"


Spoil = Callable[[str, str], Fault]


@contextmanager
def spoiled(endpoint: str, spoil: Spoil) -> Iterator[str]:
    """The endpoint of a proxy before `endpoint` (http://…)."""
    target = endpoint.partition("://")[2]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else a body waits until the client has acknowledged the head, up to 40 ms

        def log_message(self, format: str, *args: object) -> None:
            pass

        def handle_any(self) -> None:
            body = self.body()
            headers = {name: value for name, value in self.headers.items() if name.lower() != "transfer-encoding"}
            is_conditional = any(name.lower() in CONDITIONS for name in headers)
            fault = spoil(self.command, self.path)
            if fault is Fault.LOST_REQUEST:
                self.close_connection = True
                return
            if fault is Fault.UNAVAILABLE:
                self.answer(503, {}, b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>")
                return
            if fault is Fault.NOT_IMPLEMENTED and is_conditional:
                self.answer(501, {}, b"<Error><Code>NotImplemented</Code><Message>no conditions</Message></Error>")
                return
            if fault is Fault.UNCONDITIONAL:
                headers = {name: value for name, value in headers.items() if name.lower() not in CONDITIONS}
            upstream = http.client.HTTPConnection(target)
            upstream.request(self.command, self.path, body, headers)
            response = upstream.getresponse()
            data = response.read()
            upstream.close()
            if fault is Fault.LOST_ANSWER:
                self.close_connection = True
            elif fault is Fault.ERROR_AFTER_ALL:
                self.answer(500, {}, b"<Error><Code>InternalError</Code><Message>so sorry</Message></Error>")
            else:
                self.answer(response.status, dict(response.getheaders()), data)

        def body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            pieces = []
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return b"".join(pieces)

        def answer(self, status: int, headers: dict[str, str], data: bytes) -> None:
            self.send_response_only(status)
            length = headers.pop("Content-Length", str(len(data))) if self.command == "HEAD" else str(len(data))
            for name, value in headers.items():
                if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
