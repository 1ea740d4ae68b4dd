"""The port: plain and TLS, certificates of clients and their names, slow and broken clients."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
import time
from asyncio.sslproto import SSLProtocol
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest

from tests.support.server.apis import served, shared_app
from tests.support.server.fake_service import FakeService
from tests.support.servers.certificates import Authority, encrypt
from tidemill.errors import ConfigError
from tidemill.server.api import listener
from tidemill.server.api.listener import Certificates, Listener
from tidemill.server.api.requests import BODY_LIMIT


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("certificates")
    authority = Authority()
    (found / "ca.pem").write_bytes(authority.pem)
    for name in ("server", "ops", "stranger"):
        authority.sign(name).write(found, name)
    authority.sign("ops", expired=True).write(found, "expired")
    Authority("another CA").sign("ops").write(found, "foreign")
    return found


def certificates(folder: Path, *, ca: bool = False, allowed: tuple[str, ...] = ()) -> Certificates:
    return Certificates(folder / "server.pem", folder / "server.key", folder / "ca.pem" if ca else None, allowed)


def context(folder: Path, client: str | None = None) -> ssl.SSLContext:
    found = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if client is not None:
        found.load_cert_chain(folder / f"{client}.pem", folder / f"{client}.key")
    return found


def serves(certificates: Certificates | None = None) -> AbstractContextManager[str]:
    """A port. Its HOST:PORT."""
    service = FakeService()
    return served(service, certificates=certificates, app=shared_app(service))


def test_plain() -> None:
    with serves() as address, httpx.Client(base_url=f"http://{address}") as client:
        assert client.get("/status").json()["pid"] == 4711
        assert "server" not in client.get("/status").headers
        answer = client.post("/api/v2/changefeeds", content=b"x" * (BODY_LIMIT + 1))
        assert answer.status_code == 413
        answer = client.post("/api/v2/changefeeds", content=iter([b"x" * 65536] * 20))  # without a Content-Length
        assert answer.status_code == 413
        assert client.get("/status").status_code == 200


def test_tls(folder: Path) -> None:
    with serves(certificates(folder)) as address:
        assert httpx.get(f"https://{address}/status", verify=context(folder)).status_code == 200
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://{address}/status")


def test_clients_need_a_certificate_whose_name_is_allowed(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serves(certificates(folder, ca=True, allowed=("ops",))) as address:
        url = f"https://{address}/status"
        assert httpx.get(url, verify=context(folder, "ops")).status_code == 200
        answer = httpx.get(url, verify=context(folder, "stranger"))
        assert (answer.status_code, answer.json()["error_code"]) == (403, "CDC:ErrUnauthorized")
        assert "stranger" in answer.json()["error_msg"]
        for client in (None, "foreign", "expired"):
            with pytest.raises(httpx.HTTPError):
                httpx.get(url, verify=context(folder, client))
    assert "common name stranger is not allowed" in caplog.text


def test_a_ca_alone_asks_for_nothing_and_mtls_for_any_certificate(folder: Path) -> None:
    with serves(certificates(folder, ca=True)) as address:
        for client in (None, "stranger"):
            assert httpx.get(f"https://{address}/status", verify=context(folder, client)).status_code == 200
    mtls = Certificates(folder / "server.pem", folder / "server.key", folder / "ca.pem", mtls=True)
    with serves(mtls) as address:
        assert httpx.get(f"https://{address}/status", verify=context(folder, "stranger")).status_code == 200
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"https://{address}/status", verify=context(folder))


def test_certificates_are_replaced_while_it_serves(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority, files = Authority(), (tmp_path / "server.pem", tmp_path / "server.key")
    authority.sign("first").write(tmp_path, "server")
    (tmp_path / "ca.pem").write_bytes(authority.pem)

    def name(address: str) -> str:
        host, port = address.split(":")
        with socket.create_connection((host, int(port))) as plain, context(tmp_path).wrap_socket(plain, server_hostname=host) as secure:
            return str(secure.getpeercert()["subject"][0][0][1])  # type: ignore[index]

    with serves(Certificates(*files)) as address:
        assert name(address) == "first"
        authority.sign("second").write(tmp_path, "server")
        assert name(address) == "second"
        files[0].write_bytes(b"nothing")
        assert name(address) == "second"
    assert "the old ones are" in caplog.text


@pytest.mark.parametrize("reference", ["FILE", "COMMAND"])
def test_an_encrypted_key_is_read_with_the_password_that_the_environment_refers_to(
    tmp_path: Path, reference: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    authority, place = Authority(), tmp_path / "password"
    files = authority.sign("server").write(tmp_path, "server")
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    encrypt(files[1], b"zq7")
    with pytest.raises(ConfigError, match=r"(?s)server\.key.*TIDEMILL_KEY_PASSWORD_FILE"):
        Certificates(*files).context()
    monkeypatch.setenv(f"TIDEMILL_KEY_PASSWORD_{reference}", str(place) if reference == "FILE" else f"cat {place}")
    for wrong in ("", "wrong\n"):
        with pytest.raises(ConfigError, match=r"server\.key"):
            Certificates(*files).context()
        place.write_text(wrong)
    place.write_text("zq7\n")
    with serves(Certificates(*files)) as address:
        assert httpx.get(f"https://{address}/status", verify=context(tmp_path)).status_code == 200
        place.unlink()
        authority.sign("server").write(tmp_path, "server")
        encrypt(files[1], b"zq7")
        assert httpx.get(f"https://{address}/status", verify=context(tmp_path)).status_code == 200
    assert "the old ones are" in caplog.text


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"cert": "server.pem"}, "--cert and --key go together"),
        ({"allowed": ("a",)}, "--cert-allowed-cn needs --cert"),
        ({"cert": "server.pem", "key": "server.key", "allowed": ("a",)}, "--cert-allowed-cn needs --ca"),
        ({"cert": "server.pem", "key": "ops.key"}, "--cert .*server.pem"),
        ({"cert": "none.pem", "key": "server.key"}, "No such file"),
        ({"cert": "server.pem", "key": "server.key", "ca": "server.key"}, "--ca .*server.key"),
    ],
)
def test_certificates_that_do_not_fit(folder: Path, given: dict[str, object], why: str) -> None:
    paths = {name: folder / str(given[name]) for name in ("cert", "key", "ca") if name in given}
    with pytest.raises(ConfigError, match=why):
        Certificates(**paths, allowed_cn=given.get("allowed", ())).context()  # type: ignore[arg-type]


def test_a_port_that_is_taken_is_named() -> None:
    with serves() as address:

        async def second() -> None:
            await Listener(lambda *_: None).start(address)  # type: ignore[arg-type,return-value]

        with pytest.raises(ConfigError, match=rf"--addr {address}: the port is taken"):
            asyncio.run(second())


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:x", "127.0.0.1:99999", "256.0.0.1:0"])
def test_addresses_that_are_none(address: str) -> None:
    async def start() -> None:
        await Listener(lambda *_: None).start(address)  # type: ignore[arg-type,return-value]

    with pytest.raises(ConfigError, match="--addr"):
        asyncio.run(start())


@pytest.mark.parametrize("sent", [b"", b"GET /status HT", b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\nGET /sta"])
def test_a_head_that_does_not_come_ends_the_connection(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HEAD_S", 0.2)
    with serves() as address:
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.sendall(sent)
            told = b""
            while data := client.recv(4096):
                told += data
    assert told.count(b"HTTP/1.1 200") == (1 if b"\r\n\r\n" in sent else 0)


HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"r" * 20
"""The beginning of a ClientHello."""


@pytest.mark.parametrize("sent", [b"", HELLO])
def test_a_handshake_that_does_not_end_ends_the_connection(sent: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio itself would wait a minute."""
    monkeypatch.setattr(listener, "HEAD_S", 0.2)
    with serves(certificates(folder)) as address:
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), timeout=40) as client:
            client.sendall(sent)
            assert ended(client)


def test_an_unfinished_handshake_takes_little_memory(folder: Path) -> None:
    """asyncio gives each connection 256 KiB, unless it is told otherwise: a thousand of them would take a quarter of a GiB."""
    with serves(certificates(folder)) as address, httpx.Client(verify=context(folder)) as client:
        assert client.get(f"https://{address}/status").status_code == 200
        there = {len(one._ssl_buffer) for one in gc.get_objects() if isinstance(one, SSLProtocol) and one._transport is not None}  # type: ignore[attr-defined]
    assert there == {16 << 10}


def ended(client: socket.socket) -> bool:
    """Wait until the server has closed a connection."""
    with contextlib.suppress(ConnectionResetError):
        while client.recv(4096):
            pass
    return True


@pytest.mark.parametrize("sent", [b"", HELLO, b"GET /status HT"])
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_connections_that_ask_for_nothing_do_not_take_the_port(
    secure: bool, sent: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the newest of them stay, and a request is answered beside them."""
    monkeypatch.setattr(listener, "WAITING", 20)
    monkeypatch.setattr(listener, "BACKLOG", 16)
    monkeypatch.setattr(listener, "CONNECTIONS", 90)
    monkeypatch.setattr(listener, "HEAD_S", 600.0)
    with serves(certificates(folder) if secure else None) as address, contextlib.ExitStack() as stack:
        host, port = address.split(":")
        url, verify, clients = f"https://{address}/status" if secure else f"http://{address}/status", context(folder), list[socket.socket]()
        while len(clients) < 96:  # in the steps of the backlog: the kernel lets who comes besides wait for seconds
            clients += [stack.enter_context(socket.create_connection((host, int(port)), timeout=40)) for _ in range(16)]
            assert httpx.get(url, verify=verify).status_code == 200
        for client in clients:
            with contextlib.suppress(OSError):
                client.sendall(sent)
        with httpx.Client(verify=verify) as asking:
            assert asking.get(url).status_code == 200
            assert all(ended(client) for client in clients[:76])
            assert asking.get(url).status_code == 200
    assert caplog.text.count("more than 20 connections ask for nothing") == 1


def test_a_connection_between_two_requests_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "WAITING", 3)
    with serves() as address, contextlib.ExitStack() as stack:
        host, port = address.split(":")
        clients = []
        for _ in range(6):
            clients.append(stack.enter_context(socket.create_connection((host, int(port)), timeout=40)))
            clients[-1].sendall(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert clients[-1].recv(65536).startswith(b"HTTP/1.1 200")
        assert all(ended(client) for client in clients[:3])


@pytest.mark.parametrize("more", [b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding:\r\n chunked\r\n"], ids=["plain", "folded"])
def test_a_request_that_has_two_lengths_hides_no_second_one(more: bytes) -> None:
    hidden = b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n"
    length = f"Content-Length: {5 + len(hidden)}\r\n".encode()
    with serves() as address:
        host, port = address.split(":")
        told = b""
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.sendall(b"POST /api/v2/tso HTTP/1.1\r\nHost: localhost\r\n" + length + more + b"\r\n0\r\n\r\n" + hidden)
            while data := client.recv(4096):
                told += data
    assert told.startswith(b"HTTP/1.1 400")
    assert b"both Content-Length and Transfer-Encoding" in told
    assert told.count(b"HTTP/1.1") == 1


def send_on(client: socket.socket, chunk: bytes) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        client.sendall(chunk)


def test_a_body_without_end_ends_with_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is refused is answered before its body is read. Who sends on is cut off."""
    monkeypatch.setattr(listener, "HEAD_S", 0.2)
    chunk = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
    with serves() as address:
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.sendall(b"POST /api/v2/nothing HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 404")
            with pytest.raises(OSError, match=r"reset|pipe"):
                send_on(client, chunk)
        assert httpx.get(f"http://{address}/status").status_code == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /status HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 2_000_000,
        b"GET /status HTTP/1.1\r\nHost: localhost\r\nHost: b\r\n\r\n",
        b"POST /api/v2/tso HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /status\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused(sent: bytes) -> None:
    with serves() as address:
        host, port = address.split(":")
        told = b""
        with socket.create_connection((host, int(port)), timeout=60) as client, contextlib.suppress(OSError):
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            while data := client.recv(4096):
                told += data
        assert told == b"" or told.startswith(b"HTTP/1.1 4")
        assert httpx.get(f"http://{address}/status").status_code == 200
