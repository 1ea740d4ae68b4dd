"""Topics of tables in a replay of TiCDC's cases: rows and DDLs go where the dispatcher sends them, renames follow the table's id."""

from __future__ import annotations

import json
import logging
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelog.logs import START, golden_log, golden_span
from tests.support.delivery.feeds import World
from tests.support.delivery.messages import Sent, sent_into
from tests.support.golden import ticdc
from tidemill.changefeed.replay import replay
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings
from tidemill.rules.topics import TopicExpression

TOPIC = TopicExpression("{schema}.{table}")


def deliver(folder: Path, toml: str, first: str, last: str = "", partitions: int = 1) -> list[Sent]:
    """What comes of these cases."""
    log = golden_log(folder / "log")
    config = parse_config(toml)
    uri = f"messages://{folder / 'out'}?protocol=open-protocol&partition-num={partitions}&topic=rest"
    start, end = golden_span(first, last)
    replay(str(log), Settings("test", config.sink_uri(uri), config, UTC), start_ts=start, target_ts=end)
    return sent_into(folder / "out")


def _ddls() -> list[dict[str, Any]]:
    """The DDL events that TiCDC sends."""
    return [e for line in ticdc.lines("ddl") for e in line["result"].get("events", ())]


@pytest.mark.slow
def test_rows_and_ddls_go_to_the_topics_of_their_tables(tmp_path: Path) -> None:
    toml = "[[sink.dispatchers]]\nmatcher = ['*.*', '!pub.cols']\ntopic = '{schema}.{table}'"
    sent = deliver(tmp_path, toml, "ddl_columns", "ddl_schema_misc", partitions=2)
    rows = [s for s in sent if s.head["t"] == 1]
    assert len(rows) > 120
    for s in rows:
        name = s.head["scm"], s.head["tbl"]
        assert s.topic == ("rest" if name == ("pub", "cols") else TOPIC.topic(*name, "")), name
    before = {
        (e["schema"], e["table"], e["sent_query"]): (e.get("pre_schema") or e["schema"], e.get("pre_table") or e["table"]) for e in _ddls()
    }
    ddls = [s for s in sent if s.head["t"] == 2]
    renamed = 0
    for s in ddls:
        schema, name = s.head["scm"], s.head.get("tbl", "")
        old = before.get((schema, name, s.body["q"]), (schema, name))
        renamed += bool(name) and old != (schema, name)
        wanted = "rest" if not name or old == ("pub", "cols") else TOPIC.topic(*old, "")
        assert s.topic == wanted, s
        assert {o.partition for o in ddls if (o.topic, o.body) == (s.topic, s.body)} == {0, 1}
    assert renamed > 8
    last = max(s.head["ts"] for s in sent if s.head["t"] == 3)
    told = {(s.topic, s.partition) for s in sent if s.head["t"] == 3 and s.head["ts"] == last}
    assert told >= {(s.topic, p) for s in sent for p in (0, 1)}, "a resolved event goes to every partition of every topic"


@pytest.mark.slow
@pytest.mark.parametrize(("inside", "ignored"), [("pub", False), ("otherdb", False), ("pub", True)])
def test_renames_into_and_out_of_the_filter(tmp_path: Path, inside: str, ignored: bool, caplog: pytest.LogCaptureFixture) -> None:
    """pub.rn becomes otherdb.rn2, then pub.rn3: rows come while its name is inside, both renames come unless an event filter says no, and
    the log says what it means in any case."""
    more = "\n[[filter.event-filters]]\nmatcher = ['*.*']\nignore-event = ['rename table']" if ignored else ""
    with caplog.at_level(logging.WARNING, logger="tidemill.delivery.inputs.table_router"):
        sent = deliver(tmp_path, f"filter.rules = ['{inside}.*']{more}", "ddl_table")
    assert {s.head["scm"] for s in sent if s.head["t"] == 1} <= {inside}
    names = [s.head["tbl"] for s in sent if s.head["t"] == 1 and s.head["tbl"].startswith("rn")]
    every = [r.expected["table"] for r in ticdc.rows().values() if r.zone == "UTC" and r.expected["schema"] == inside]
    assert len(names) == sum(n.startswith("rn") for n in every) - _forced(inside)
    renames = [s.body["q"] for s in sent if s.head["t"] == 2 and s.head.get("tbl", "").startswith("rn") and s.body["t"] == 14]
    assert renames == [
        e["sent_query"] for e in _ddls() if not ignored and e["table"].startswith("rn") and e.get("pre_table", "").startswith("rn")
    ]
    told = [r.getMessage() for r in caplog.records]
    out, into = ("is not delivered any more", "is delivered from")
    order = [out, into] if inside == "pub" else [into, out]
    assert [next(w for w in (out, into) if w in m) for m in told if ".rn" in m] == order


def test_topics_of_tables_without_rows_hear_resolved_events(tmp_path: Path) -> None:
    """Also before the first row of any table comes."""
    world = World.make(transactions=3)
    config = parse_config("[[sink.dispatchers]]\nmatcher = ['*.*']\ntopic = '{schema}-{table}'")
    sink = config.sink_uri(f"messages://{tmp_path / 'out'}?protocol=open-protocol&topic=rest")
    replay(world.log(tmp_path / "log"), Settings("test", sink, config, UTC), start_ts=START, target_ts=START)
    told = {json.loads(line)["topic"] for line in (tmp_path / "out").read_text().splitlines()}
    assert told == {"rest", "app-t1", "app-t2", "app-t3"}


@pytest.mark.slow
def test_an_exchange_with_a_table_outside_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="tidemill.delivery.inputs.table_router"):
        sent = deliver(tmp_path, "filter.rules = ['pub.prange']", "partition_range")
    told = [r.getMessage() for r in caplog.records]
    assert len(told) == 1
    assert told[0].startswith("pub.prange exchanged rows with pub.pexch, which is not delivered; load what pub.prange holds at ")
    assert [s.body["q"] for s in sent if s.head["t"] == 2 and s.body["t"] == 42]


def _forced(schema: str) -> int:
    """Rows that TiCDC gives twice: with force-replicate too."""
    return sum(
        r.expected.get("force", False) and r.expected["table"].startswith("rn") and r.expected["schema"] == schema
        for r in ticdc.rows().values()
        if r.zone == "UTC"
    )
