"""The producer of the Drainer's messages, without a broker."""

from datetime import UTC

import pytest

from tests.support.binlog.made import ddl
from tidemill.binlog.drainer.kafka import KafkaOutlet
from tidemill.binlog.drainer.settings import Downstream
from tidemill.errors import MessageTooLarge
from tidemill.tso import describe


def test_the_default_of_the_largest_message_is_one_that_the_client_takes() -> None:
    KafkaOutlet(Downstream(kafka_addrs="127.0.0.1:1"), 7, UTC).close()


def test_a_transaction_that_is_too_large_is_told_with_its_ts_and_not_skipped() -> None:
    outlet = KafkaOutlet(Downstream(kafka_addrs="127.0.0.1:1", kafka_max_message_size=2000), 7, UTC)
    with pytest.raises(MessageTooLarge) as told:
        outlet.write([ddl(1 << 58, f"ALTER TABLE t COMMENT '{'x' * 2000}'"), ddl(1 << 59, "ALTER TABLE t COMMENT 'y'")])
    assert describe(1 << 58) in told.value.message
    assert "ignore-txn-commit-ts" in told.value.hint
    outlet.close()
