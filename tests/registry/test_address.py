"""Addresses of registries: what is taken, what is refused, and that nothing secret is shown."""

from __future__ import annotations

import pytest

from tidemill.config.registry_address import RegistryAddress, parse_address, with_registry
from tidemill.errors import ConfigError


def test_a_plain_address() -> None:
    assert parse_address("http://127.0.0.1:8081") == RegistryAddress("http://127.0.0.1:8081")
    assert parse_address(" https://h.example/apis/ccompat/v7/ ").url == "https://h.example/apis/ccompat/v7"
    assert parse_address("http://[::1]:8081").url == "http://[::1]:8081"
    assert parse_address("http://[::1]:8081").is_local
    assert not parse_address("http://h:8081").is_local


def test_user_and_password_are_decoded_and_not_shown() -> None:
    address = parse_address("https://us%40er:p%3Aa%2Fs%23s%20%C3%A9@h:8081/x")
    assert (address.user, address.password.value) == ("us@er", "p:a/s#s é")
    assert str(address) == "https://h:8081/x"
    assert "er" not in repr(address).replace("cert", "").replace("verify", "")
    assert "p:a" not in repr(address)
    assert parse_address("https://user@h").password.value == ""


def test_certificates_and_time_outs_are_parameters() -> None:
    address = parse_address("https://h:8081/?ca=/a/ca.pem&cert=c.pem&key=k.pem&timeout=1m30s&insecure-skip-verify=false")
    assert (address.url, address.ca, address.cert, address.key) == ("https://h:8081", "/a/ca.pem", "c.pem", "k.pem")
    assert (address.timeout_ms, address.insecure_skip_verify) == (90_000, False)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "has to be http"),
        ("h:8081", "has to be http"),
        ("u:SECRET@h:8081", "'u:xxxxx@h:8081': the address has to be http"),
        ("SECRET@h:8081", "'xxxxx@h:8081': the address has to be http"),
        ("u:SEC/RET@h", "has to be http"),
        ("ftp://u:SECRET@h", "'ftp://u:xxxxx@h': the address has to be http"),
        ("ftp://h", "has to be http"),
        ("http://", "has to be http"),
        ("http://a b", "has to be http"),
        ("http://h:port", "cannot be read"),
        ("http://h:99999", "cannot be read"),
        ("https://u:SECRET#x@h", ""),
        ("https://u:SEC/RET@h:1", "cannot be read"),
        ("https://u:SECRET@h?tls=1", "unknown parameter tls"),
        ("https://u:SECRET@h?cert=a", "cert and key belong together"),
        ("http://u:SECRET@h?ca=a", "ca needs an address that begins with https://"),
        ("https://u:SECRET@h?timeout=5", "timeout: expected a duration"),
        ("https://u:SECRET@h?ca=a&ca=b", "ca is given twice"),
        ("https://u:SECRET@h?ca=", "ca: expected a file"),
        ("https://u:SECRET@h?insecure-skip-verify=maybe", "insecure-skip-verify: expected true or false"),
    ],
)
def test_what_cannot_be_used_is_refused_without_a_secret(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_address(text)
    assert told in caught.value.message
    assert "SEC" not in str(caught.value)


def test_a_given_registry_replaces_that_of_the_sink_uri() -> None:
    uri = "kafka://h:9092/t?protocol=avro&schema-registry=http%3A%2F%2Fa%3A1&x=%26"
    assert with_registry(uri, None) == uri
    assert with_registry(uri, "http://u:p%40@b:2?ca=c") == (
        "kafka://h:9092/t?protocol=avro&x=%26&schema-registry=http%3A%2F%2Fu%3Ap%2540%40b%3A2%3Fca%3Dc"
    )
    assert with_registry("kafka://h:9092/t", "http://b") == "kafka://h:9092/t?schema-registry=http%3A%2F%2Fb"
