"""kafka:// over TLS and with SASL: a second broker that asks for both."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.kafka import new_topic_name, read_topic
from tests.support.messages import context, messages_of
from tidemill.changefeed.uri import parse_sink_uri
from tidemill.errors import SinkError
from tidemill.playground.kafka_broker import KafkaBroker
from tidemill.playground.kafka_broker.broker import free_ports
from tidemill.sinks.base import open_driver_sink
from tidemill.sinks.kafka import options
from tidemill.sinks.kafka.task import KafkaTaskSink

pytestmark = pytest.mark.kafka

_PASSWORD = "zq7secret"
_STORE = "changeit"


@dataclass(frozen=True)
class Secured:
    plain: str
    tls: str
    sasl: str
    ca: Path


def _keys(folder: Path) -> tuple[Path, Path]:
    """A key store for 127.0.0.1 and its certificate as PEM."""
    store, ca = folder / "broker.p12", folder / "ca.pem"
    common = ["-keystore", str(store), "-storepass", _STORE, "-alias", "broker"]
    name = ["-dname", "CN=127.0.0.1", "-ext", "SAN=IP:127.0.0.1", "-validity", "2"]
    make = ["keytool", "-genkeypair", "-keyalg", "RSA", "-keysize", "2048", "-storetype", "PKCS12", *name, *common]
    subprocess.run(make, check=True, capture_output=True)
    subprocess.run(["keytool", "-exportcert", "-rfc", "-file", str(ca), *common], check=True, capture_output=True)
    return store, ca


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    store, ca = _keys(tmp_path_factory.mktemp("keys"))
    broker = KafkaBroker()
    tls, sasl = (f"127.0.0.1:{port}" for port in free_ports(2))
    listeners = f"PLAINTEXT://{broker.address},TLS://{tls},SAFE://{sasl}"
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    broker.settings.update(
        {
            "listeners": f"{listeners},CONTROLLER://{broker.controller_address}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,SAFE:SASL_SSL",
            "ssl.keystore.location": str(store),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": _STORE,
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.safe.plain.sasl.jaas.config": f'{login} user_bob="{_PASSWORD}";',
        }
    )
    with broker:
        yield Secured(broker.address, tls, sasl, ca)


def deliver(uri: str, topic: str) -> None:
    driver, sink = open_driver_sink(uri), KafkaTaskSink(parse_sink_uri(uri))
    try:
        driver.ensure_topics({topic})
        sink.begin(context())
        sink.deliver(messages_of([(0, b"row", b"")]), [(topic, 0)])
        assert sink.flush() == 1
        driver.resolved([(topic, 0)], b"resolved", b"")
        driver.finish_batch(context())
    finally:
        sink.abandon()
        driver.close()


def test_tls(secured: Secured) -> None:
    topic = new_topic_name("tls")
    deliver(f"kafka+ssl://{secured.tls}/{topic}?protocol=open-protocol&partition-num=1&ca={secured.ca}", topic)
    assert [r.key for r in read_topic(secured.plain, topic)] == [b"row", b"resolved"]


def test_an_unknown_authority_is_refused_unless_told_otherwise(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "METADATA_TIMEOUT", 2.0)
    topic = new_topic_name("tls")
    uri = f"kafka+ssl://{secured.tls}/{topic}?protocol=open-protocol&partition-num=1"
    with pytest.raises(SinkError, match="certificate"):
        deliver(uri, topic)
    deliver(f"{uri}&insecure-skip-verify=true", topic)
    assert [r.key for r in read_topic(secured.plain, topic)] == [b"row", b"resolved"]


def test_sasl_over_tls(secured: Secured) -> None:
    topic = new_topic_name("sasl")
    uri = f"kafka+ssl://{secured.sasl}/{topic}?protocol=open-protocol&partition-num=1&ca={secured.ca}"
    deliver(f"{uri}&sasl-user=bob&sasl-password={_PASSWORD}", topic)
    assert [r.key for r in read_topic(secured.plain, topic)] == [b"row", b"resolved"]


def test_wrong_credentials_end_at_once_and_show_no_secret(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "METADATA_TIMEOUT", 3.0)
    topic = new_topic_name("sasl")
    uri = f"kafka+ssl://{secured.sasl}/{topic}?protocol=open-protocol&ca={secured.ca}&sasl-user=bob&sasl-password=zq7wrong"
    sink = KafkaTaskSink(parse_sink_uri(uri))
    sink.begin(context())
    told = []
    sink.deliver(messages_of([(0, b"row", b"")]), [(topic, 0)])
    with pytest.raises(SinkError) as caught:
        sink.flush()
    told.append(caught.value)
    sink.abandon()
    driver = open_driver_sink(uri)
    with pytest.raises(SinkError) as caught:
        driver.ensure_topics({topic})
    told.append(caught.value)
    driver.resolved([(topic, 0)], b"resolved", b"")
    with pytest.raises(SinkError) as caught:
        driver.finish_batch(context())
    told.append(caught.value)
    driver.close()
    for error in told:
        assert "zq7" not in str(error)
        assert "uthenticat" in str(error)
        assert not error.retryable
