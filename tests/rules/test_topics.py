"""Topic expressions against TiCDC's topic dispatcher."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.golden import ticdc
from tidemill.config.file import parse_config
from tidemill.errors import ConfigError
from tidemill.rules.topics import TopicExpression, check_topic

LINES = list(ticdc.lines("topics"))


@pytest.mark.parametrize("line", LINES, ids=[f"{o['protocol']}:{o['expression'][:40]!r}" for o in LINES])
def test_topics_are_ticdcs(line: dict[str, object]) -> None:
    text = str(line["expression"])
    if not line["valid"]:
        with pytest.raises(ValueError, match="topic name"):
            TopicExpression(text)
        return
    expression = TopicExpression(text)
    assert expression.fixed == line["hard_coded"]
    if line["protocol"] == "avro" and "router_error" in line:
        with pytest.raises(ValueError, match="both"):
            expression.check_avro()
        return
    if line["protocol"] == "avro":
        expression.check_avro()
    topics = line["topics"]
    assert isinstance(topics, list)
    for pair in topics:
        assert expression.topic(pair["schema"], pair["table"], "default-topic") == pair["topic"]


@given(st.text(max_size=70), st.text(max_size=70))
def test_a_topic_with_a_fixed_part_is_legal(schema: str, table: str) -> None:
    check_topic(TopicExpression("p{schema}_{table}").topic(schema, table, "t"))


def test_the_first_dispatcher_decides_the_topic_too() -> None:
    config = parse_config(
        """
        [[sink.dispatchers]]
        matcher = ["shop.*"]
        topic = "s_{schema}"
        [[sink.dispatchers]]
        matcher = ["shop.*", "logs.*"]
        topic = "{table}"
        [[sink.dispatchers]]
        matcher = ["plain.*"]
        partition = "ts"
        """
    )
    dispatcher = config.dispatcher()
    assert dispatcher.topic("SHOP", "a", "d") == "s_SHOP"
    assert dispatcher.topic("logs", "a b", "d") == "a_b"
    assert dispatcher.topic("plain", "a", "d") == "d"
    assert dispatcher.topic("other", "a", "d") == "d"


def test_a_topic_that_kafka_would_refuse_names_its_table() -> None:
    dispatcher = parse_config("[[sink.dispatchers]]\nmatcher = ['*.*']\ntopic = '..'").dispatcher()
    with pytest.raises(ConfigError, match=r"topic = '\.\.' makes '\.\.' of a\.b: expected 1 to 249"):
        dispatcher.topic("a", "b", "d")


def test_avro_needs_both_names() -> None:
    config = parse_config("[[sink.dispatchers]]\nmatcher = ['*.*']\ntopic = '{table}'")
    config.sink_uri("messages:///m?protocol=open-protocol")
