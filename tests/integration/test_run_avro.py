"""avro end to end: a real registry behind a password, a real Kafka, and a real Confluent consumer that reads everything.

The three commands of the Avro document, on one log, the first as `tidemill run`. Under it a NOT NULL column is added, which the registry
refuses at BACKWARD: the changefeed fails, says so, and goes on without loss once the compatibility is changed. The others have the same
flags as `tidemill replay`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.support.delivery.runs import PATIENCE_S, await_that, tidemill
from tests.support.servers.kafka import read_topic
from tests.support.servers.registries import Front, forward, registry
from tidemill.demo.session import Delivery
from tidemill.playground.programs.kafka_broker import KafkaBroker
from tidemill.playground.programs.schema_registry import RegistryProcess
from tidemill.playground.server import PlaygroundThread

__all__ = ["registry"]
pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

TOML = """[sink]
dispatchers = [
 {matcher = ['*.*'], topic = "tidb_{schema}_{table}"},
]
"""
TOPIC = "tidb_shop_item"
USER, PASSWORD, ENCODED = "us@er", "s3cr/et:x", "us%40er:s3cr%2Fet%3Ax"
COMMANDS = {
    "kafka-avro": "protocol=avro",
    "kafka-avro-enable-extension": "protocol=avro&enable-tidb-extension=true",
    "kafka-avro-string-option": "protocol=avro&avro-decimal-handling-mode=string&avro-bigint-unsigned-handling-mode=string",
}
"""--changefeed-id and the parameters of --sink-uri, of the document's examples; each has --schema-registry and --config too."""
CREATE = "CREATE DATABASE shop; USE shop; CREATE TABLE item (id BIGINT UNSIGNED PRIMARY KEY, price DECIMAL(10, 2), name VARCHAR(20))"
ITEMS = (
    "INSERT INTO item VALUES (1, 1.50, 'one'), (2, 2.25, NULL); ALTER TABLE item ADD COLUMN e ENUM('a', 'b'); DELETE FROM item WHERE id = 1"
)
REFUSED = "ALTER TABLE item ADD COLUMN stock INT NOT NULL; INSERT INTO item VALUES (3, 3.75, 'three', 'b', 33)"


class World:
    """The services, and the changefeeds on one log that deliver from `start_ts`."""

    def __init__(self, folder: Path, broker: KafkaBroker, front: Front, upstream: PlaygroundThread) -> None:
        self.folder, self.broker, self.front, self._upstream = folder, broker, front, upstream
        self.pd = upstream.pd_address
        (folder / "changefeed_config.toml").write_text(TOML)
        upstream.execute(CREATE)
        self.start_ts = self.now()

    def now(self) -> int:
        return int(self._upstream.call(self._upstream.playground.cluster.oracle.next))

    def execute(self, sql: str) -> None:
        self._upstream.execute(sql)

    def _flags(self, changefeed: str) -> tuple[str, str, tuple[str, str]]:
        """Sink URI, registry and configuration."""
        sink = f"kafka://{self.broker.address}/topic-name?{COMMANDS[changefeed]}"
        return sink, f"--schema-registry=http://{ENCODED}@{self.front.address}", ("--config", str(self.folder / "changefeed_config.toml"))

    def _delivery(self, changefeed: str, *more: str) -> Delivery:
        sink, registry, config = self._flags(changefeed)
        options = ["--changefeed-id", changefeed, registry, *config, "--trigger-ms", "50", *more]
        return Delivery(self.folder, self, sink, options=options, start_ts=self.start_ts)  # type: ignore[arg-type]

    def replay(self, changefeed: str, capsys: pytest.CaptureFixture[str]) -> None:
        """What the document's command delivers up to now."""
        sink, registry, config = self._flags(changefeed)
        code, _, err = tidemill(capsys, "replay", "--log", self.folder / "log", "--tz", "UTC", "--sink-uri", sink, registry, *config)
        assert code == 0, err

    def run(self, changefeed: str, *more: str) -> int:
        """The document's command, as a process, until its end: its exit code."""
        with self._delivery(changefeed, *more) as delivery:
            assert delivery.process is not None
            return delivery.process.wait(PATIENCE_S)

    def run_until_failed(self, changefeed: str) -> int:
        """Run the document's command until the changefeed has failed, stop it, and return its exit code."""
        with self._delivery(changefeed) as delivery:
            await_that(lambda: self.status(changefeed).get("state") == "failed", "the changefeed fails", delivery)
            before = self.status(changefeed)["capture"]["resolved_ts"]
            await_that(lambda: self.status(changefeed)["capture"]["resolved_ts"] > before, "the capture goes on", delivery)
            return delivery.stop()

    def status(self, changefeed: str) -> dict[str, Any]:
        """Its status.json."""
        file = self.folder / "data" / "changefeeds" / changefeed / "status.json"
        return dict(json.loads(file.read_text())) if file.exists() else {}

    def state(self, changefeed: str) -> dict[str, Any]:
        """Its feed.json."""
        return dict(json.loads((self.folder / "data" / "changefeeds" / changefeed / "feed.json").read_text()))

    def consumed(self) -> list[tuple[Any, Any]]:
        """Keys and values of the topic, read by Confluent's deserializer, partition after partition."""
        read = AvroDeserializer(SchemaRegistryClient({"url": self.front.url, "basic.auth.user.info": f"{USER}:{PASSWORD}"}))
        key, value = SerializationContext(TOPIC, MessageField.KEY), SerializationContext(TOPIC, MessageField.VALUE)
        return [(read(record.key, key), read(record.value, value)) for record in read_topic(self.broker.address, TOPIC)]

    def said(self) -> str:
        """What the runs said, and their logs."""
        return "".join((self.folder / name).read_text() for name in ("run.log", "tidemill.log"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, kafka_broker: KafkaBroker, registry: RegistryProcess) -> Iterator[World]:
    registry.set_compatibility("BACKWARD")
    with Front(forward(registry.url), user=USER, password=PASSWORD) as front, PlaygroundThread(seed=5, resolved_interval=0.2) as upstream:
        yield World(tmp_path_factory.mktemp("avro"), kafka_broker, front, upstream)


def test_a_refused_schema_fails_the_changefeed_which_goes_on_once_it_is_allowed(world: World, registry: RegistryProcess) -> None:
    world.execute(ITEMS)
    world.execute(REFUSED)
    assert world.run_until_failed("kafka-avro") == 0
    said = world.said()
    for part in (
        "changefeed kafka-avro failed and is not tried again: TM:ErrSchemaIncompatible: ",
        f"subject {TOPIC}-value (compatibility BACKWARD)",
        "column `stock` (INT as int) was added NOT NULL and without default",
        "answers 409",
        "the registry will refuse",
    ):
        assert part in said, said
    state = world.state("kafka-avro")
    assert (state["state"], state["error"]["code"]) == ("failed", "TM:ErrSchemaIncompatible")
    status = world.status("kafka-avro")
    assert (status["state"], status["error"]["code"]) == ("failed", "TM:ErrSchemaIncompatible")
    before = [
        ({"id": 1}, {"id": 1, "price": Decimal("1.50"), "name": "one"}),
        ({"id": 2}, {"id": 2, "price": Decimal("2.25"), "name": None}),
        ({"id": 1}, None),
    ]
    assert sorted(map(str, world.consumed())) == sorted(map(str, before))
    assert world.front.registered == [f"{TOPIC}-key", f"{TOPIC}-value", f"{TOPIC}-value", f"{TOPIC}-value"]

    registry.set_compatibility("NONE")
    assert world.run("kafka-avro", "--target-ts", str(world.now())) == 0
    assert world.state("kafka-avro")["state"] == "finished"
    assert world.state("kafka-avro")["error"] is None
    after = ({"id": 3}, {"id": 3, "price": Decimal("3.75"), "name": "three", "e": "b", "stock": 33})
    assert sorted(map(str, world.consumed())) == sorted(map(str, [*before, after]))


@pytest.mark.last
def test_the_documents_other_commands(world: World, registry: RegistryProcess, capsys: pytest.CaptureFixture[str]) -> None:
    registry.set_compatibility("NONE")
    for changefeed in ("kafka-avro-enable-extension", "kafka-avro-string-option"):
        had = len(world.consumed())
        calls = len(world.front.registered)
        world.replay(changefeed, capsys)
        assert len(world.consumed()) == had + 4
        assert len(world.front.registered) - calls <= 4  # a key, and a value for each of three versions
    values = [value for _, value in world.consumed() if value is not None and value["id"] in (2, "2")]
    assert {"id": 2, "price": Decimal("2.25"), "name": None} in values
    assert {"id": "2", "price": "2.25", "name": None} in values
    (extended,) = (value for value in values if "_tidb_op" in value)
    assert extended["_tidb_op"] == "c"
    assert extended["_tidb_commit_ts"] >> 18 == extended["_tidb_commit_physical_time"]


@pytest.mark.last
def test_the_password_is_in_no_file_of_a_run(world: World) -> None:
    """The log, what was said, status and feed.json, packs, the remembered ids, Spark's files."""
    files = [path for path in world.folder.rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        content = path.read_bytes()
        assert all(secret.encode() not in content for secret in ("s3cr", ENCODED)), path
