"""TLS on the port, with and without certificates of clients."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tests.support.canal.client import Closed, PlainClient
from tests.support.canal.server_runs import ServerThread, one_destination
from tests.support.canal.store import GrowingStore
from tests.support.servers.certificates import Authority
from tidemill.changelog.storage.open import LocalStorage
from tidemill.errors import ConfigError


def test_tls(tmp_path: Path) -> None:
    authority = Authority()
    cert, key = authority.sign("server").write(tmp_path, "server")
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    store = GrowingStore(LocalStorage(tmp_path / "store", sync=False))
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    names = {"canal.tls.cert": str(cert), "canal.tls.key": str(key)}
    with ServerThread(store.storage, one_destination(names)) as server:
        with PlainClient(server.address, tls=trusting) as client:
            assert client.get() == (-1, [])
        with pytest.raises((OSError, AssertionError)):
            PlainClient(server.address, tls=ssl.create_default_context())
    with ServerThread(store.storage, one_destination({**names, "canal.tls.ca": str(tmp_path / "ca.pem")})) as server:
        with pytest.raises((OSError, Closed)):
            PlainClient(server.address, tls=trusting)
        mine = authority.sign("client").write(tmp_path, "client")
        trusting.load_cert_chain(*map(str, mine))
        with PlainClient(server.address, tls=trusting) as client:
            assert client.get() == (-1, [])


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    store = GrowingStore(LocalStorage(tmp_path / "store", sync=False))
    names = {"canal.tls.cert": str(tmp_path / "none.pem"), "canal.tls.key": str(tmp_path / "none.key")}
    with pytest.raises(ConfigError, match=r"none\.pem"), ServerThread(store.storage, one_destination(names)):
        pass
