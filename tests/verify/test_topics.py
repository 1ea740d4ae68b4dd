"""`tidemill verify topic` on a real broker: topics that a replay wrote pass, and what is put behind them is found."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path

import pytest
import typer
from confluent_kafka import Producer
from typer.testing import CliRunner

from tests.support.changelog.logs import golden_log
from tests.support.delivery.feeds import World
from tests.support.servers.kafka import new_topic_name, read_topic
from tidemill.changefeed.replay import replay
from tidemill.cli.downstream import show
from tidemill.cli.downstream.verify import app
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings
from tidemill.playground.programs.kafka_broker import KafkaBroker

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json&enable-tidb-extension=true"])
def test_a_topic_as_written_and_with_an_old_row_behind_it(kafka_broker: KafkaBroker, tmp_path: Path, protocol: str) -> None:
    topic = new_topic_name("verify")
    config = parse_config('[[sink.dispatchers]]\nmatcher = ["*.*"]\npartition = "index-value"\n')
    uri = f"kafka://{kafka_broker.address}/{topic}?partition-num=3&protocol={protocol}"
    settings = Settings("k", config.sink_uri(uri), config, UTC)
    done = replay(World.make(seed=31).log(tmp_path / "log"), settings)
    arguments = ["topic", "--kafka", kafka_broker.address, "--topic", topic]
    good = CliRunner().invoke(app, arguments)
    assert good.exit_code == 0, good.output
    assert f"{done.rows} rows, 0 DDLs and 3 resolved events, 0 repeats" in good.output
    assert good.output.count("holds") == 5
    application = typer.Typer()
    application.command()(show.command)
    seen = CliRunner().invoke(application, [f"kafka://{kafka_broker.address}/{topic}", "--resolved"])
    assert seen.exit_code == 0, seen.output
    lines = seen.stdout.splitlines()
    assert (len([line for line in lines if "  resolved  " in line]), len(lines)) == (3, done.rows + 3)
    replay(World.make(seed=31).log(tmp_path / "again"), settings)
    repeated = CliRunner().invoke(app, arguments)
    assert repeated.exit_code == 0, repeated.output
    assert f"{done.rows} rows" in repeated.output
    _put_behind(kafka_broker, topic)
    bad = CliRunner().invoke(app, arguments)
    assert bad.exit_code == 1
    assert "resolved: broken" in bad.output
    assert "one-partition: broken" in bad.output


def _put_behind(broker: KafkaBroker, topic: str) -> None:
    """The first message of a partition comes once more, in another one."""
    first = next(r for r in read_topic(broker.address, topic) if r.partition == 0)
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce(topic, first.value, first.key, partition=1)
    producer.flush()


@pytest.mark.parametrize(
    ("protocol", "everywhere"),
    [
        ("open-protocol", 3),
        pytest.param(
            "canal-json&enable-tidb-extension=true", 1, marks=pytest.mark.thorough("less order to check: each DDL is in one partition")
        ),
    ],
)
def test_what_a_tidb_session_with_many_ddls_gives(kafka_broker: KafkaBroker, tmp_path: Path, protocol: str, everywhere: int) -> None:
    """Each DDL in all partitions, or in the first alone; commit order around them."""
    topic = new_topic_name("verify")
    config = parse_config('force-replicate = true\n[[sink.dispatchers]]\nmatcher = ["*.*"]\npartition = "index-value"\n')
    uri = f"kafka://{kafka_broker.address}/{topic}?partition-num=3&protocol={protocol}"
    done = replay(str(golden_log(tmp_path / "log", partitions=2)), Settings("k", config.sink_uri(uri), config, UTC))
    found = CliRunner().invoke(app, ["topic", "--kafka", kafka_broker.address, "--topic", topic])
    assert found.exit_code == 0, found.output
    assert done.ddls > 100
    assert f"{done.ddls * everywhere} DDLs" in found.output
