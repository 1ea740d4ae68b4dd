"""Registries over TLS: a real one whose certificate a given authority signed, and one that wants the client's own."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.servers.registries import Front, MemoryRegistry
from tidemill.config.registry_address import parse_address
from tidemill.errors import RegistryError, RegistryUnavailable
from tidemill.playground.programs.schema_registry import RegistryProcess
from tidemill.registry.client import RegistryClient

TEXT = '{"type":"record","name":"t","namespace":"default.a","fields":[{"name":"a","type":"int"}]}'


@dataclass(frozen=True)
class Keys:
    """PEM files of 127.0.0.1, of a client, and of a stranger. Each signs itself."""

    server: Path
    server_key: Path
    client: Path
    client_key: Path
    other: Path


def _pair(folder: Path, name: str) -> tuple[Path, Path]:
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    folder = tmp_path_factory.mktemp("keys")
    return Keys(*_pair(folder, "server"), *_pair(folder, "client"), _pair(folder, "other")[0])


@pytest.fixture
def mutual(keys: Keys) -> Iterator[Front]:
    """Wants a certificate of the client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys.server, keys.server_key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(keys.client)
    with Front(MemoryRegistry(), tls=context) as front:
        yield front


def client(address: str, **parameters: object) -> RegistryClient:
    query = "&".join(f"{name.replace('_', '-')}={value}" for name, value in parameters.items())
    return RegistryClient(parse_address(f"https://{address}?{query}"), pauses=())


def test_a_client_shows_its_certificate(mutual: Front, keys: Keys) -> None:
    with client(mutual.address, ca=keys.server, cert=keys.client, key=keys.client_key) as one:
        assert one.register("a", TEXT) == 1
    with client(mutual.address, ca=keys.server) as one, pytest.raises(RegistryUnavailable):
        one.register("a", TEXT)
    assert mutual.registered == ["a"]


def test_a_certificate_that_does_not_fit_is_not_waited_for(mutual: Front, keys: Keys) -> None:
    both = {"cert": keys.client, "key": keys.client_key}
    with client(mutual.address, ca=keys.other, **both) as one, pytest.raises(RegistryError, match="certificate is not accepted") as caught:
        one.register("a", TEXT)
    assert not caught.value.retryable
    assert "ca=FILE" in caught.value.hint
    with client(mutual.address, insecure_skip_verify="true", **both) as one:
        assert one.register("a", TEXT) == 1


@pytest.mark.thorough("the tests above have a server with TLS, test_delivery.py a real registry")
@pytest.mark.slow
def test_a_real_registry_over_tls(keys: Keys) -> None:
    with RegistryProcess((keys.server, keys.server_key)) as registry:
        address = registry.tls_url.removeprefix("https://")
        with client(address, ca=keys.server) as one:
            number = one.register("tls-value", TEXT)
            assert one.schema(number) == TEXT
        with client(address) as one, pytest.raises(RegistryError, match="certificate is not accepted"):
            one.subjects()
