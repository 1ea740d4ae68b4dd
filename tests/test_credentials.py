"""Secrets are read when they are used, within bounds, and no error shows them."""

from __future__ import annotations

import base64
import os
import ssl
import sys
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from tidemill import credentials
from tidemill.canal.scramble import stored
from tidemill.canal.server.config import load_settings
from tidemill.config.registry_address import parse_address
from tidemill.config.uri import parse_sink_uri
from tidemill.errors import ConfigError, SinkError, SinkUnavailable
from tidemill.registry.client import RegistryClient
from tidemill.secret import Secret, Way
from tidemill.sinks.kafka.options import client_config
from tidemill.sinks.storage import store


def command(program: str) -> Secret:
    return Secret("password", way=Way.COMMAND, place=f"{quote(sys.executable)} -S -c {quote(program)}")


def test_a_value_is_itself() -> None:
    assert credentials.read(Secret("password", "x")) == "x"
    assert credentials.read(Secret()) == ""


def test_a_file_is_read_again_each_time(tmp_path: Path) -> None:
    secret = Secret("password", way=Way.FILE, place=str(tmp_path / "p"))
    for text in ("old\n", "new\r\n", " spaces stay "):
        (tmp_path / "p").write_text(text)
        assert credentials.read(secret) == text.rstrip("\r\n")
    (tmp_path / "p").unlink()
    with pytest.raises(SinkUnavailable, match=f"password-file {tmp_path}/p: No such file"):
        credentials.read(secret)
    with pytest.raises(ConfigError, match="No such file"):
        credentials.read_setting(secret)


@pytest.mark.parametrize("data", [b"zq7" * 30_000, b"zq7\xff"], ids=["long", "no text"])
def test_a_file_is_short_text(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "p").write_bytes(data)
    with pytest.raises(SinkError, match="password-file") as raised:
        credentials.read(Secret("password", way=Way.FILE, place=str(tmp_path / "p")))
    assert "zq7" not in str(raised.value)


def test_a_variable_is_read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = Secret("sasl-password", way=Way.ENV, place="THE_PASSWORD")
    with pytest.raises(SinkError, match="sasl-password-env THE_PASSWORD: the environment has no THE_PASSWORD") as raised:
        credentials.read(secret)
    assert not raised.value.retryable
    for text in ("a", "b"):
        monkeypatch.setenv("THE_PASSWORD", text)
        assert credentials.read(secret) == text


def test_a_command_runs_without_a_shell_and_without_other_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_SINK_URI", "zq7")
    monkeypatch.setenv("TIDEMILL_SECRET_A", "zq7")
    shown = credentials.read(command("import os, sys; print(*sorted(os.environ), sys.stdin.read(), '$HOME;x')"))
    assert "TIDEMILL_S" not in shown
    assert shown.endswith(" $HOME;x")


def test_what_a_command_says_is_not_shown() -> None:
    failing = command("import sys; print('zq7'); sys.exit('zq7 is wrong')")
    with pytest.raises(SinkUnavailable, match="it ended with status 1") as raised:
        credentials.read(failing)
    assert "zq7" not in str(raised.value)
    with pytest.raises(SinkUnavailable, match=r"password-command /no/program: No such file"):
        credentials.read(Secret("password", way=Way.COMMAND, place="/no/program zq7"))


def test_a_command_prints_so_much() -> None:
    with pytest.raises(SinkUnavailable, match="more than 65536 bytes"):
        credentials.read(command("while True: print('zq7' * 1000)"))


@pytest.mark.parametrize("program", ["time.sleep(1000)", "os.close(1); time.sleep(1000)"])
def test_a_command_ends_in_time_with_all_that_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(credentials, "COMMAND_S", 1.0)
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(SinkUnavailable, match="did not end within 1 s"):
            credentials.read(command(f"import os, time; os.open({str(fifo)!r}, os.O_WRONLY); os.fork(); {program}"))
        os.set_blocking(reading, True)
        assert os.read(reading, 1) == b""  # the last writer is gone
    finally:
        os.close(reading)


def test_kafkas_clients_have_them_as_they_are_now(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("one\n")
    uri = f"kafka+ssl://h:1/t?protocol=canal-json&sasl-user=u&sasl-password-file={tmp_path}/p&cert=/c&key=/k&key-password-file={tmp_path}/p"
    kafka = parse_sink_uri(uri).broker
    for text in ("one", "two"):
        (tmp_path / "p").write_text(f"{text}\n")
        config = client_config(kafka)
        assert (config["sasl.password"], config["ssl.key.password"]) == (text, text)


def test_a_registry_has_them(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("p:w\n")

    def answer(request: httpx.Request) -> httpx.Response:
        login = base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode()
        return httpx.Response(200, json=["a"] if login == "u:p:w" else [])

    with RegistryClient(parse_address(f"http://u@127.0.0.1:1?password-file={tmp_path}/p")) as client:
        auth = client._http.auth
    with httpx.Client(transport=httpx.MockTransport(answer), auth=auth) as http:
        assert http.get("http://h/subjects").json() == ["a"]


def test_a_canal_server_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = stored("Canal@123")
    (tmp_path / "digest").write_text(f"{digest}\n")
    (tmp_path / "c.toml").write_text(
        '[canal]\n"canal.user" = "u"\n"canal.passwd-file" = "digest"\n[canal.destinations."d"]\n"canal.passwd-env" = "D"\n'
    )
    with pytest.raises(ConfigError, match=r"canal\.passwd-env D: the environment has no D"):
        load_settings(tmp_path / "c.toml")
    monkeypatch.setenv("D", stored("other"))
    found = load_settings(tmp_path / "c.toml")
    own = found.destinations["d"].credential
    assert own is not None
    assert (found.access.credential.digest.hex(), own.digest.hex()) == (digest, stored("other"))


def test_a_buckets_keys_are_read_again_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that was replaced is no reason to give up; one that stayed the same is."""
    (tmp_path / "k").write_text("old")
    given: list[str] = []

    class Refusing:
        def __init__(self, **options: object) -> None:
            given.append(str(options["secret_key"]))

        def open_input_stream(self, name: str) -> None:
            raise OSError("AWS Error ACCESS_DENIED during GetObject operation: no")

    monkeypatch.setattr(store.pyarrow.fs, "S3FileSystem", Refusing)
    sink = parse_sink_uri(f"s3://b/p?protocol=canal-json&access-key=a&secret-access-key-file={tmp_path}/k")
    assert sink.storage is not None
    assert sink.storage.s3 is not None
    bucket = store.S3Store(sink.storage.s3, "p")
    with pytest.raises(SinkError) as raised:
        bucket.read("x")
    assert not raised.value.retryable
    (tmp_path / "k").write_text("new")
    with pytest.raises(SinkUnavailable):
        bucket.read("x")
    assert given == ["old", "new"]


def test_an_encrypted_key_asks_nobody(tmp_path: Path) -> None:
    """Without a password OpenSSL would ask on the terminal, and a server would wait for the answer."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a")])
    begin, end = datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    cert = made.not_valid_before(begin).not_valid_after(end).sign(key, hashes.SHA256())
    (tmp_path / "c").write_bytes(cert.public_bytes(Encoding.PEM))
    (tmp_path / "k").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"zq7")))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ssl.SSLError):
        context.load_cert_chain(tmp_path / "c", tmp_path / "k", credentials.key_password())
    context.load_cert_chain(tmp_path / "c", tmp_path / "k", credentials.key_password(Secret("key-password", "zq7")))
