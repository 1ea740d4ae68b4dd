"""The producer of the Drainer's messages, without a broker."""

from datetime import UTC

from tidemill.binlog.drainer.kafka import KafkaOutlet
from tidemill.binlog.drainer.settings import Downstream


def test_the_default_of_the_largest_message_is_one_that_the_client_takes() -> None:
    KafkaOutlet(Downstream(kafka_addrs="127.0.0.1:1"), 7, UTC).close()
