"""What Spark writes down for everybody (event logs, plans, its log, command lines) holds no secret of the log's or the sink's address."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

from tests.support.changelog.logs import START
from tests.support.delivery.deliveries import deliver_all
from tests.support.delivery.feeds import World
from tests.support.servers.s3 import filesystem, make_bucket, s3_server
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader
from tidemill.config.file import parse_config
from tidemill.delivery.batch import BatchDriver
from tidemill.delivery.epoch_fence import Fence
from tidemill.delivery.inputs.log_source import LogSource
from tidemill.delivery.inputs.table_pack import PackStore
from tidemill.delivery.inputs.table_router import Settings, SinkEvents, TableRouter
from tidemill.delivery.position import Position
from tidemill.sinks.spec import open_driver_sink
from tidemill.spark.jobs import SparkRunner
from tidemill.spark.session import start_context, stop_spark

__all__ = ["s3_server"]

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECRET = "hunter2secret"


def test_they_are_nowhere_to_be_read(s3_server: str, tmp_path: Path) -> None:
    """A changefeed on a log on S3 whose address has a key in it, with the event log on."""
    make_bucket(s3_server, "secrets")
    world = World.make()
    pyarrow.fs.copy_files(
        world.log(tmp_path / "log"),
        "secrets/log",
        source_filesystem=pyarrow.fs.LocalFileSystem(),
        destination_filesystem=filesystem(s3_server),
    )
    log = f"s3://test:{SECRET}@secrets/log?endpoint_override={s3_server.partition('://')[2]}&scheme=http&region=us-east-1"
    events, data = tmp_path / "events", tmp_path / "data"
    events.mkdir()
    config = parse_config("")
    chosen = Settings("f", config.sink_uri(f"messages://{tmp_path}/out?protocol=open-protocol"), config, UTC)
    sink = open_driver_sink(chosen.sink.text)
    router = TableRouter(chosen)
    packs = PackStore(data / "packs", chosen.output, router.table, lambda topics: sink.ensure_topics(set(topics)), [chosen.sink.topic])
    reader = LogReader(log)
    upstream = LogSource(reader, load_history(reader, from_ts=START), packs, router.ddl)
    user = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false"}
    context: Any = start_context(data / "spark.log", master="local[2]", user=user)
    try:
        command = Path(f"/proc/{context._gateway.proc.pid}/cmdline").read_bytes().decode()
        fence = Fence(reader.storage, "fences/f.json")
        runner = SparkRunner(context, "g")
        driver = BatchDriver("f", upstream, SinkEvents(chosen, router, packs, sink), sink, chosen.sink.text, runner, fence)
        reports: list[Any] = []
        assert deliver_all(driver, log, Position(START), world.end, reports.append)
    finally:
        stop_spark(context)
        sink.close()
    assert sum(report.stats.rows for report in reports) > 0
    assert "org.apache.spark" in command
    assert SECRET not in command
    holders = [p for p in tmp_path.rglob("*") if p.is_file() and SECRET.encode() in p.read_bytes()]
    assert holders == []
    logs = [p for p in events.rglob("*") if p.is_file() and b"SparkListener" in p.read_bytes()]
    assert logs, "the event log is on"
