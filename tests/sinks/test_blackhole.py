"""blackhole:// counts; sinks of a worker are shared by URI."""

from __future__ import annotations

from tests.support.delivery.messages import context, messages_of
from tidemill.sinks.spec import open_driver_sink, open_task_sink


def test_everything_is_acknowledged() -> None:
    sink = open_task_sink("blackhole:///?protocol=open-protocol")
    assert sink is open_task_sink("blackhole:///?protocol=open-protocol")
    sink.begin(context())
    sink.deliver(messages_of([(0, b"k", b"v")] * 3), [("t", 0)])
    sink.deliver(messages_of([(0, b"k", b"v")]), [("t", 0)])
    assert sink.flush() == 4
    sink.begin(context(batch=2))
    assert sink.flush() == 0


def test_topics_have_partition_num_partitions() -> None:
    assert open_driver_sink("blackhole://").ensure_topics({"a", "b"}) == {"a": 1, "b": 1}
    driver = open_driver_sink("blackhole://?partition-num=7")
    assert driver.ensure_topics({"a"}) == {"a": 7}
    driver.begin_batch(context())
    driver.send("a", b"", None, range(7))
    driver.send_resolved([("a", 0)], b"", None)
    driver.finish_batch(context())
    driver.discard(context())
    driver.close()
