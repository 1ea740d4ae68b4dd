"""A schema registry and a MariaDB for pages, until the process is ended: `python -m tests.support.pages.services` prints their ports."""

from __future__ import annotations

import threading

from tests.support.servers.registries import Front, MemoryRegistry
from tidemill.playground.programs.mariadb import MariaDbServer


def main() -> None:
    """Start both."""
    with Front(MemoryRegistry()) as registry, MariaDbServer() as database:
        print(f"REGISTRY={registry.url}\nMYSQL_PORT={database.port}\nready", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
