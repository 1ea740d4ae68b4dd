"""The consumer as a Structured Streaming query: Spark reads the topics and decodes them in tasks, the driver orders and writes.

Progress is stored with the data, as by `tidemill consume`, so either can continue where the other stopped. Spark's own checkpoint does not
matter: a query always begins at the target's offsets.
"""

from __future__ import annotations

import json
import logging
import pickle
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemill import credentials
from tidemill.consumer.kafka import KafkaTopics
from tidemill.consumer.order.progress import TopicPartition
from tidemill.consumer.reading import read_at, reader
from tidemill.consumer.run import Consumer, Options, Patience
from tidemill.consumer.targets import ConsumerTarget
from tidemill.consumer.upstream import Upstream
from tidemill.errors import ConfigError, SinkUnavailable, TopicUnavailable
from tidemill.protocols.options import MessageFormat
from tidemill.sinks.claim_check import ClaimCheckStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

MAX_OFFSETS = 100_000
"""The default maxOffsetsPerTrigger. Without a limit a query that begins late would read everything at once."""
POLL_S = 1.0

_COLUMNS = ("topic", "partition", "offset", "key", "value")


class SparkConsumer:
    """Feeds a target from a streaming query.

    consumer = SparkConsumer(upstream("kafka://…/orders"), open_target("sqlite:///…"))
    query = consumer.start(spark)

    Needs Spark's Kafka source on the session's class path (spark-sql-kafka). The query fails with the errors of `Consumer`.
    """

    def __init__(self, source: Upstream, target: ConsumerTarget, options: Options | None = None) -> None:
        self._source, self._target = source, target
        self._listing = KafkaTopics(source, reads=False)
        self._protocol, self._claim_check_uri = source.protocol, source.claim_check_uri
        self._options = options or Options()
        self.consumer = Consumer(self._listing, target, reader(source.protocol), self._options)
        self._query: StreamingQuery | None = None
        self._closed = threading.Event()

    def start(self, spark: SparkSession, *, trigger: str = "1 second", options: Mapping[str, str] | None = None) -> StreamingQuery:
        """Start the query. `options` are those of Spark's Kafka source, such as maxOffsetsPerTrigger instead of MAX_OFFSETS.

        Raises TopicError, ConfigError.
        """
        self.consumer.begin()
        settings = {"maxOffsetsPerTrigger": str(MAX_OFFSETS), **self._spark_options(), **(options or {})}
        stream = spark.readStream.format("kafka").options(**settings).load()
        checkpoint = tempfile.mkdtemp(prefix="tidemill-consume-")
        writer = stream.writeStream.foreachBatch(self.batch).option("checkpointLocation", checkpoint)
        self._query = writer.trigger(processingTime=trigger).start()
        return self._query

    def _spark_options(self) -> dict[str, str]:
        names = [*map(_escaped, self._source.topics), *(p.pattern for p in self._source.patterns)]
        offsets: dict[str, dict[str, int]] = {}
        for (topic, partition), state in self.consumer.ordering.partitions.items():
            offsets.setdefault(topic, {})[str(partition)] = state.next_offset
        which = {"subscribePattern": "|".join(names)}
        if self._source.partition_num is not None:
            which = {"assign": json.dumps({topic: sorted(map(int, own)) for topic, own in offsets.items()})}
        return (
            _kafka_options(self._source)
            | which
            | {
                "startingOffsets": json.dumps(offsets) if offsets else "earliest",
                "failOnDataLoss": "true",
            }
        )

    def batch(self, frame: DataFrame, number: int) -> None:
        """Process a micro-batch, for `foreachBatch`: a frame with the columns of Spark's Kafka source.

        Tasks decode it in parallel; the driver iterates over the result and never holds all of it. While the target or the brokers are away
        the batch waits.
        """
        from pyspark import StorageLevel

        before = {source: state.next_offset for source, state in self.consumer.ordering.partitions.items()}
        patience = Patience(self._options.retry_s)
        decoded = self._decoded(frame).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            decoded.count()
            is_new = True
            while True:
                try:
                    if not is_new:
                        self.consumer.start_over()
                        self._take_again(frame.sparkSession, before)
                    self.take(_in_order(decoded))
                    return self.consumer.flush()
                except (SinkUnavailable, TopicUnavailable) as error:
                    wait = patience.wait_after(error)
                    if wait is None or not self._wait(wait):
                        raise
                    is_new = False
        finally:
            decoded.unpersist()

    def _decoded(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        events = _events_column(self._protocol, self._claim_check_uri)(*map(F.col, _COLUMNS))
        size = F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(F.octet_length("value"), F.lit(0))
        return frame.select("topic", "partition", "offset", size.alias("size"), events.alias("events"))

    def _take_again(self, spark: SparkSession, until: Mapping[TopicPartition, int]) -> None:
        """Read again the messages that earlier batches took but did not commit, up to these offsets."""
        begin: dict[str, dict[str, int]] = {}
        end: dict[str, dict[str, int]] = {}
        for source, state in self.consumer.ordering.partitions.items():
            topic, partition = source
            if until.get(source, 0) > state.next_offset:
                begin.setdefault(topic, {})[str(partition)] = state.next_offset
                end.setdefault(topic, {})[str(partition)] = until[source]
        if not begin:
            return
        which = {"assign": json.dumps({topic: sorted(map(int, own)) for topic, own in begin.items()}), "failOnDataLoss": "true"}
        offsets = {"startingOffsets": json.dumps(begin), "endingOffsets": json.dumps(end)}
        frame = spark.read.format("kafka").options(**_kafka_options(self._source), **which, **offsets).load()
        self.take(_in_order(self._decoded(frame)))

    def _wait(self, seconds: float) -> bool:
        """Wait. Returns whether the query is still active."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self._closed.wait(min(left, POLL_S)) or (self._query is not None and not self._query.isActive):
                return False
        return True

    def take(self, messages: Iterable[tuple[str, int, int, int, bytes]]) -> None:
        """Take decoded messages (topic, partition, offset, size, events), in order within a partition. Messages of a batch that Spark
        reruns are skipped."""
        ordering = self.consumer.ordering
        for topic, partition, offset, size, events in messages:
            if (topic, partition) not in ordering.partitions:
                self.consumer.begin()
            state = ordering.partitions.get((topic, partition))
            if state is not None and offset >= state.next_offset:
                ordering.take((topic, partition), offset, pickle.loads(events), size)
                self.consumer.counters.messages += 1

    def close(self) -> None:
        """Close the target and the connection for listing topics."""
        self._closed.set()
        self._listing.close()
        self._target.close()


def _in_order(decoded: DataFrame) -> Iterator[Any]:
    """Yield the rows ordered by topic, partition and offset, part by part."""
    return iter(decoded.orderBy("topic", "partition", "offset").toLocalIterator())


def _events_column(protocol: MessageFormat | None, claim_check_uri: str) -> Any:
    """Return the column function that tasks run: Arrow batches of messages → events."""
    from pyspark.sql.pandas.functions import arrow_udf

    def decoded(topics: pa.Array, partitions: pa.Array, offsets: pa.Array, keys: pa.Array, values: pa.Array) -> pa.Array:
        read = reader(protocol, ClaimCheckStorage(claim_check_uri).fetch if claim_check_uri else None)
        rows = zip(*(column.to_pylist() for column in (topics, partitions, offsets, keys, values)), strict=True)
        return pa.array([pickle.dumps(read_at(read, *row), pickle.HIGHEST_PROTOCOL) for row in rows], pa.binary())

    make: Any = arrow_udf
    return make(decoded, "binary")


def _escaped(topic: str) -> str:
    return topic.replace(".", r"\.")


def _kafka_options(source: Upstream) -> dict[str, str]:
    """Return the options for the connection of Spark's source to the brokers."""
    kafka = source.kafka
    found = {"kafka.bootstrap.servers": ",".join(kafka.hosts)}
    security = ("SASL_" if kafka.sasl else "") + ("SSL" if kafka.tls else "PLAINTEXT")
    found["kafka.security.protocol"] = security
    if kafka.tls:
        if kafka.tls.cert or kafka.tls.insecure_skip_verify:
            raise ConfigError(
                "Spark's Kafka source takes no cert, key or insecure-skip-verify here", hint="Give its own options to start()."
            )
        if kafka.tls.ca:
            found |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": kafka.tls.ca}
    if kafka.sasl:
        module = "plain.Plain" if kafka.sasl.mechanism == "PLAIN" else "scram.Scram"
        login = f'username="{_quoted(kafka.sasl.user)}" password="{_quoted(credentials.read(kafka.sasl.password))}"'
        found["kafka.sasl.mechanism"] = kafka.sasl.mechanism
        found["kafka.sasl.jaas.config"] = f"org.apache.kafka.common.security.{module}LoginModule required {login};"
    return found


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def consume_stream(
    spark: SparkSession, uri: str, sink_uri: str, *, topics: tuple[str, ...] = (), trigger: str = "1 second", **options: Any
) -> tuple[StreamingQuery, SparkConsumer]:
    """Start `tidemill consume` as a query from topics of `uri` (kafka://…) to the sink. Stop the query first, then close the consumer."""
    from tidemill.consumer.targets import open_target
    from tidemill.consumer.upstream import upstream

    source = upstream(uri, topics)
    consumer = SparkConsumer(source, open_target(sink_uri, consumer=source.names))
    return consumer.start(spark, trigger=trigger, options=options), consumer
