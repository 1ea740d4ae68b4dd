"""kafka:// over TLS and with SASL: a second broker that asks for both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.support.delivery.messages import context, messages_of
from tests.support.servers.certificates import Authority
from tests.support.servers.kafka import new_topic_name, read_topic
from tidemill.binlog.ddls import Ddl
from tidemill.binlog.drainer.kafka import KafkaOutlet
from tidemill.binlog.drainer.settings import Downstream
from tidemill.binlog.outputs.transactions import DdlBinlog
from tidemill.config.uri import parse_sink_uri
from tidemill.errors import SinkError
from tidemill.playground.programs.kafka_broker import KafkaBroker
from tidemill.process.ports import free_ports
from tidemill.secret import Secret
from tidemill.sinks.kafka import denials, options
from tidemill.sinks.kafka.task import KafkaTaskSink
from tidemill.sinks.spec import open_driver_sink
from tidemill.wire import slave_binlog_pb2

pytestmark = pytest.mark.kafka

_PASSWORD = "zq7secret"


@dataclass(frozen=True)
class Secured:
    plain: str
    tls: str
    sasl: str
    mutual: str
    ca: Path
    client_cert: Path
    client_key: Path


def _store(folder: Path, name: str, authority: Authority) -> Path:
    """A key store of a broker: a key and its certificate, which the authority has signed."""
    pair = authority.sign(name)
    store = folder / f"{name}.store.pem"
    store.write_bytes(pair.key + pair.certificate)
    return store


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("keys")
    of_brokers, of_clients = Authority("brokers"), Authority("clients")
    store, ca, trust = _store(folder, "broker", of_brokers), folder / "ca.pem", folder / "clients.pem"
    ca.write_bytes(of_brokers.pem)
    trust.write_bytes(of_clients.pem)
    certificate, key = of_clients.sign("client").write(folder, "client")
    broker = KafkaBroker()
    tls, sasl, mutual = (f"127.0.0.1:{port}" for port in free_ports(3))
    listeners = f"PLAINTEXT://{broker.address},TLS://{tls},SAFE://{sasl},MUTUAL://{mutual}"
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    broker.settings.update(
        {
            "listeners": f"{listeners},CONTROLLER://{broker.controller_address}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,SAFE:SASL_SSL,MUTUAL:SSL",
            "ssl.keystore.location": str(store),
            "ssl.keystore.type": "PEM",
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.truststore.location": str(trust),
            "listener.name.mutual.ssl.truststore.type": "PEM",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.safe.scram-sha-256.sasl.jaas.config": scram,
            "listener.name.safe.scram-sha-512.sasl.jaas.config": scram,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "true",
            "listener.name.safe.plain.sasl.jaas.config": f'{login} user_bob="{_PASSWORD}";',
        }
    )
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            user = UserScramCredentialUpsertion("ann", ScramCredentialInfo(mechanism, 4096), _PASSWORD.encode())
            for future in admin.alter_user_scram_credentials([user]).values():
                future.result()
        yield Secured(broker.address, tls, sasl, mutual, ca, certificate, key)


def deliver(uri: str, topic: str) -> None:
    driver, sink = open_driver_sink(uri), KafkaTaskSink(parse_sink_uri(uri))
    try:
        driver.ensure_topics({topic})
        sink.begin(context())
        sink.deliver(messages_of([(0, b"row", b"")]), [(topic, 0)])
        assert sink.flush() == 1
        driver.send_resolved([(topic, 0)], b"resolved", b"")
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
    """At once for the driver. A task's client is refused several times first: it is taken for one that worked before."""
    monkeypatch.setattr(options, "METADATA_TIMEOUT", 3.0)
    monkeypatch.setattr(denials, "LASTS_S", 1.0)
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
    driver.send_resolved([(topic, 0)], b"resolved", b"")
    with pytest.raises(SinkError) as caught:
        driver.finish_batch(context())
    told.append(caught.value)
    driver.close()
    for error in told:
        assert "zq7" not in str(error)
        assert "uthenticat" in str(error)
        assert not error.retryable


@pytest.mark.parametrize("mechanism", ["scram-sha-256", "scram-sha-512"])
def test_scram(secured: Secured, mechanism: str) -> None:
    topic = new_topic_name("scram")
    uri = f"kafka+ssl://{secured.sasl}/{topic}?protocol=open-protocol&partition-num=1&ca={secured.ca}&sasl-mechanism={mechanism}"
    deliver(f"{uri}&sasl-user=ann&sasl-password={_PASSWORD}", topic)
    assert [r.key for r in read_topic(secured.plain, topic)] == [b"row", b"resolved"]


@pytest.mark.parametrize(("mechanism", "user"), [("plain", "bob"), ("scram-sha-512", "ann")])
def test_the_drainer_of_binlogs_logs_in_too(secured: Secured, mechanism: str, user: str) -> None:
    topic = new_topic_name("drainer")
    admin = AdminClient({"bootstrap.servers": secured.plain})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    to = Downstream(
        kafka_addrs=secured.sasl, topic_name=topic, enable_tls=True, ca=str(secured.ca), sasl_mechanism=mechanism, sasl_user=user,
        sasl_password=Secret("sasl-password", _PASSWORD),
    )  # fmt: skip
    outlet = KafkaOutlet(to, 7, UTC)
    outlet.write([DdlBinlog(9, Ddl("d", "", "CREATE DATABASE d", names_database=True))])
    outlet.flush()
    outlet.close()
    (record,) = read_topic(secured.plain, topic)
    assert slave_binlog_pb2.Binlog.FromString(record.value or b"").commit_ts == 9


def test_scram_with_a_wrong_password(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "METADATA_TIMEOUT", 3.0)
    topic = new_topic_name("scram")
    uri = f"kafka+ssl://{secured.sasl}/{topic}?protocol=open-protocol&ca={secured.ca}&sasl-mechanism=scram-sha-512"
    with pytest.raises(SinkError, match="uthenticat") as caught:
        deliver(f"{uri}&sasl-user=ann&sasl-password=zq7wrong", topic)
    assert not caught.value.retryable
    assert "zq7" not in str(caught.value)


def test_mutual_tls(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "METADATA_TIMEOUT", 3.0)
    topic = new_topic_name("mutual")
    uri = f"kafka+ssl://{secured.mutual}/{topic}?protocol=open-protocol&partition-num=1&ca={secured.ca}"
    with pytest.raises(SinkError):
        deliver(uri, topic)
    deliver(f"{uri}&cert={secured.client_cert}&key={secured.client_key}", topic)
    assert [r.key for r in read_topic(secured.plain, topic)] == [b"row", b"resolved"]


def _only_admin_may(secured: Secured, topic: str, operation: AclOperation) -> None:
    """Only `admin` has a right on a topic. Everything without a rule is allowed to all."""
    place = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:admin", "*")
    rule = AclBinding(*place, operation, AclPermissionType.ALLOW)
    admin = AdminClient({"bootstrap.servers": secured.plain})
    admin.create_acls([rule])[rule].result()


def test_missing_rights_are_told_by_their_topic(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Write rows are refused for good, without Describe the topic cannot be looked at."""
    monkeypatch.setattr(options, "METADATA_TIMEOUT", 5.0)
    login = f"&ca={secured.ca}&sasl-user=bob&sasl-password={_PASSWORD}"
    topic = new_topic_name("acl")
    uri = f"kafka+ssl://{secured.sasl}/{topic}?protocol=open-protocol&partition-num=1{login}"
    deliver(uri, topic)
    _only_admin_may(secured, topic, AclOperation.WRITE)
    with pytest.raises(SinkError, match=f"{topic}.*TOPIC_AUTHORIZATION_FAILED") as caught:
        deliver(uri, topic)
    assert not caught.value.retryable
    assert "zq7" not in str(caught.value)


def test_without_the_right_to_see_settings_the_limit_is_not_known(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    topic = new_topic_name("acl")
    uri = (
        f"kafka+ssl://{secured.sasl}/{topic}?protocol=open-protocol&partition-num=1&ca={secured.ca}&sasl-user=bob&sasl-password={_PASSWORD}"
    )
    driver = open_driver_sink(uri)
    driver.ensure_topics({topic})
    assert driver.message_limits({topic}) == {topic: 67108864 - 128}
    _only_admin_may(secured, topic, AclOperation.WRITE)
    for _ in range(2):
        assert driver.message_limits({topic}) == {}
    assert caplog.text.count(f"DescribeConfigs on topic {topic}") == 1
    driver.close()
