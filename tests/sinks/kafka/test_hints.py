"""What an error of Kafka advises helps."""

from __future__ import annotations

import pytest

from tidemill.changefeed.preflight import check_sink_reachable
from tidemill.config.file import parse_config
from tidemill.errors import SinkUnavailable
from tidemill.playground.programs.kafka_broker import KafkaBroker
from tidemill.sinks.kafka import options
from tidemill.sinks.kafka.faults import sink_error

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.mark.parametrize("then", ["away", pytest.param("runs", marks=pytest.mark.thorough("test_kafka.py has a broker that comes back"))])
def test_a_broker_that_is_away_and_then_runs(monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    monkeypatch.setattr(options, "METADATA_TIMEOUT", 2)
    broker = KafkaBroker()
    sink = parse_config("").sink_uri(f"kafka://{broker.address}/t?protocol=open-protocol&partition-num=1")
    with pytest.raises(SinkUnavailable, match=f"^Kafka {broker.address}: describing topic") as away:
        check_sink_reachable(sink)
    assert away.value.hint.startswith("Do the brokers run")
    assert "advertised.listeners" in away.value.hint
    monkeypatch.undo()
    if then == "runs":
        with broker:
            check_sink_reachable(sink)


@pytest.mark.parametrize(("code", "advised"), [(-185, True), (-195, True), (-187, True), (5, False), (29, False)])
def test_only_brokers_that_do_not_answer_are_looked_for(code: int, advised: bool) -> None:
    """LEADER_NOT_AVAILABLE passes by itself, TOPIC_AUTHORIZATION_FAILED is an answer."""
    assert bool(sink_error(code, "x").hint) is advised
