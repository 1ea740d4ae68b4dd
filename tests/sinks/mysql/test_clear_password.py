"""A server that asks for the password in clear text does not get it without TLS."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.servers.certificates import Authority
from tidemill.config.database import MysqlOptions
from tidemill.secret import Secret
from tidemill.sinks.mysql.connection import Connection, ServerFault

PASSWORD = "geheim-geheim"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PEM = (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
CAPABILITIES = 0x2820F | 0x8000 | 0x0008 << 16 | 0x0020 << 16


class Greedy:
    """Asks for a password by a plugin, and keeps all that it is sent."""

    def __init__(self, plugin: bytes, tls: ssl.SSLContext | None = None) -> None:
        self._plugin, self._tls, self.heard = plugin, tls, b""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        client, _ = self._listening.accept()
        with ExitStack() as stack:
            stack.enter_context(client)
            offers = CAPABILITIES | (0x0800 if self._tls is not None else 0)
            greeting = b"\x0a8.0.11-TiDB-v8.1.0\0" + struct.pack("<I", 7) + b"A" * 8 + b"\0" + struct.pack("<H", offers & 0xFFFF)
            greeting += b"\x2d" + struct.pack("<HH", 2, CAPABILITIES >> 16) + bytes([21]) + bytes(10)
            greeting += b"B" * 12 + b"\0mysql_native_password\0"
            client.sendall(len(greeting).to_bytes(3, "little") + b"\0" + greeting)
            first = 2
            if self._tls is not None:
                client.recv(36)  # it wants TLS
                client, first = stack.enter_context(self._tls.wrap_socket(client, server_side=True)), 3
            self.heard += client.recv(65536)
            switch = b"\xfe" + self._plugin + b"\0Password: \0"
            client.sendall(len(switch).to_bytes(3, "little") + bytes([first]) + switch)
            for number in (first + 2, first + 4):  # a scrambled password is not enough; the second time it is encrypted
                self.heard += (data := client.recv(65536))
                if not self._plugin.startswith((b"caching", b"sha256")) or not data:
                    break
                more = (
                    b"\1\4" if self._plugin.startswith(b"caching") and number == first + 2 else b"\1" + KEY.public_key().public_bytes(*PEM)
                )
                client.sendall(len(more).to_bytes(3, "little") + bytes([number]) + more)
            while data := client.recv(65536):
                self.heard += data

    def close(self) -> None:
        self._listening.close()


ENCRYPTING = [b"caching_sha2_password", b"sha256_password"]


@pytest.fixture
def server(plugin: bytes) -> Iterator[Greedy]:
    greedy = Greedy(plugin)
    yield greedy
    greedy.close()


@pytest.mark.parametrize("plugin", [b"mysql_clear_password", b"dialog"])
def test_the_password_is_not_sent(server: Greedy) -> None:
    with pytest.raises(ServerFault, match="in clear text, and it is not sent without TLS") as caught:
        Connection(MysqlOptions("127.0.0.1", server.port, "root", Secret("password", PASSWORD)))
    assert PASSWORD.encode() not in server.heard
    error = caught.value.error("mysql")
    assert not error.retryable
    assert "ssl-ca" in error.hint


@pytest.mark.parametrize("plugin", ENCRYPTING)
def test_the_servers_own_key_is_not_taken(server: Greedy) -> None:
    """It is as good as clear text: whoever answers at the address has the other half."""
    with pytest.raises(ServerFault, match="get-server-public-key=true") as caught:
        Connection(MysqlOptions("127.0.0.1", server.port, "root", Secret("password", PASSWORD)))
    assert caught.value.code == 2059
    assert max(map(len, server.heard.split(b"\0"))) < KEY.key_size // 8


def test_tls_that_nobody_checks_is_none(tmp_path: Path) -> None:
    """`mysql://` takes TLS if the server offers it, with any certificate."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*Authority("nobody").sign("server").write(tmp_path, "server"))
    server = Greedy(b"caching_sha2_password", tls)
    try:
        with pytest.raises(ServerFault, match="get-server-public-key=true"):
            Connection(MysqlOptions("127.0.0.1", server.port, "root", Secret("password", PASSWORD)))
        assert PASSWORD.encode() not in server.heard
    finally:
        server.close()


@pytest.mark.parametrize("plugin", ENCRYPTING)
def test_it_is_taken_where_that_is_asked_for(server: Greedy) -> None:
    options = MysqlOptions("127.0.0.1", server.port, "root", Secret("password", PASSWORD), servers_key=True, read_timeout=1000)
    with pytest.raises(ServerFault) as caught:  # the server says nothing more
        Connection(options)
    assert caught.value.code != 2059
