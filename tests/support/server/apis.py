"""The HTTP API over a fake service, and requests to it within the process or through a real server."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from fastapi import FastAPI

from tests.support.server.fake_service import FakeService
from tidemill.server.api import create_app
from tidemill.server.api.listener import Certificates, Listener
from tidemill.server.api.tokens import Tokens

BASE = "http://127.0.0.1:8300"


class Api:
    """Requests to an application, without a port."""

    def __init__(self, service: FakeService, tokens: Tokens | None = None) -> None:
        self.service = service
        self.app = create_app(service, tokens=tokens)

    def __call__(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
                return await client.request(method, path, **more)

        return asyncio.run(send())

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self("GET", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self("POST", path, **more)


class _Present:
    """The service of the test that runs."""

    service: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.service, name)


@functools.cache
def _shared() -> tuple[_Present, FastAPI]:
    present: Any = _Present()
    return present, create_app(present)


def shared_app(service: Any) -> FastAPI:
    """The application of all tests that do not look at the web page, which remembers what it has shown. To make one takes longer than most
    requests."""
    present, app = _shared()
    present.service = service
    return app


@contextmanager
def served(
    service: FakeService, tokens: Tokens | None = None, certificates: Certificates | None = None, *, app: FastAPI | None = None
) -> Iterator[str]:
    """Serve a service on a free port, in a thread. Yields HOST:PORT. `app`: its application."""
    with in_loop() as run:
        listener = Listener(app or create_app(service, tokens=tokens), certificates)
        run(listener.start("127.0.0.1:0"))
        try:
            yield listener.address
        finally:
            run(listener.stop())


@contextmanager
def in_loop() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """An event loop in a thread, and a call that runs something in it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(120)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
