"""Pages of a program that has no event loop of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tidemill.metrics.http import PageServer
from tidemill.metrics.pages import Page

log = logging.getLogger(__name__)


@contextmanager
def served(address: str, pages: Mapping[str, Page]) -> Iterator[str]:
    """Serve pages at HOST:PORT, from a thread. Yields the address. Raises ConfigError."""
    loop = asyncio.new_event_loop()
    server = PageServer(pages)
    loop.run_until_complete(server.start(address))
    log.info("%s %s served at http://%s", " and ".join(pages), "is" if len(pages) == 1 else "are", server.address)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield server.address
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(server.stop())
        loop.close()
